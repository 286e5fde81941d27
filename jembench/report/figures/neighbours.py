"""Samples beside the training images that are nearest to them, and how near that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench.report.figures import drawing
from jembench.report.figures.drawing import Drawing, Planned
from jembench.report.figures.images import draw_sheet, sheet
from jembench.report.figures.results import Arrays, Result, needs

_PAIRS_IN_A_ROW = 4
_PIXELS = "-pixels"


@needs(
    {
        "images": "M C H W",
        "neighbours": "M C H W",
        "distance*": "N",
        "nearest*": "N",
        "test-distance*": "T",
    }
)
def plan(results: list[Result]) -> Iterator[Planned]:
    """For each model and choice of samples the nearest pairs, and the distances of all."""
    for result in results:
        yield result.figure("neighbours", pairs, result.title, result.arrays)
        yield result.figure("neighbours-distances", distances, result.title, result.arrays)


def pairs(title: str, arrays: Arrays) -> Drawing:
    """The samples that are nearest to a training image by the features, each left of that image, the nearest first."""
    spaces = _spaces(arrays)
    by_features = next((space for space in spaces if space != _PIXELS), spaces[0])
    closest = np.argsort(arrays[f"distance{by_features}"], kind="stable")[: len(arrays["images"])]
    picture = _sheet_of_pairs(arrays)
    height = drawing.COLUMN * picture.shape[0] / picture.shape[1] + 0.45
    figure, (axes,) = drawing.panels(drawing.COLUMN, height, title)
    draw_sheet(axes, picture)
    axes.set_title("samples, each with its nearest training image")
    fields = [f"{kind}{space}" for space in spaces for kind in ("nearest", "distance")]
    of_fields = {field: arrays[field][closest] for field in fields}
    return Drawing(figure, drawing.rows_of({"rank": range(len(closest)), "index": closest, **of_fields}))


def distances(title: str, arrays: Arrays) -> Drawing:
    """How far samples and test images are from the nearest training image: a panel for each space."""
    spaces = _spaces(arrays)
    figure, axes_of_spaces = drawing.panels(drawing.COLUMN, 0.4 + 1.6 * len(spaces), title, len(spaces))
    rows: list[dict[str, Any]] = []
    for axes, space in zip(axes_of_spaces, spaces, strict=True):
        measured = {"test images": arrays[f"test-distance{space}"], "samples": arrays[f"distance{space}"]}
        name = {"": "features of Inception", _PIXELS: "pixels"}.get(space, f"features of {space[1:]}")
        rows += drawing.histograms(axes, measured, space=name)
        axes.set_xlabel(f"distance in {name}")
    axes_of_spaces[0].set_title("to the nearest training image")
    axes_of_spaces[0].legend(loc="upper right")
    return Drawing(figure, rows)


def _spaces(arrays: Arrays) -> list[str]:
    return [name.removeprefix("distance") for name in arrays if name.startswith("distance")]


def _sheet_of_pairs(arrays: Arrays) -> NDArray[np.uint8]:
    images, neighbours = arrays["images"], arrays["neighbours"]
    between = np.full((*images.shape[:3], max(1, images.shape[3] // 16)), 255, dtype=np.uint8)
    both = np.concatenate([images, between, neighbours], axis=3)
    lines = -(-len(both) // _PAIRS_IN_A_ROW)
    grid = np.full(lines * _PAIRS_IN_A_ROW, -1)
    grid[: len(both)] = np.arange(len(both))
    return sheet(both, grid.reshape(lines, _PAIRS_IN_A_ROW), gap=24)
