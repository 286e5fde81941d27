"""Samples beside their nearest training images, and distances of all samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jembench import drawing
from jembench.data.grid import arranged, sheet
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, histograms, rows_of
from jembench.report.figures.images import draw_sheet
from jembench.report.headings import in_words

_PAIRS_IN_A_ROW = 4
_PIXELS = "-pixels"


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan samples beside their nearest training images, and histograms of distances."""
    for result in results:
        yield result.figure("neighbours", pairs, result.title, result.arrays)
        yield result.figure("neighbours-distances", distances, result.title, result.arrays)


def pairs(title: str, arrays: Arrays) -> Drawing:
    """Draw the samples nearest to training images, each beside its neighbour.

    Samples are ranked by their distance in features.
    """
    spaces = _spaces(arrays)
    of_networks = [space for space in spaces if space != _PIXELS]
    by_features = [*of_networks, *spaces][0]
    images = arrays["images"]
    order = np.argsort(arrays[f"distance{by_features}"], kind="stable")
    closest = order[: len(images)]
    # a white strip between a sample and its neighbour
    width = max(1, images.shape[3] // 16)
    between = np.full((*images.shape[:3], width), 255, dtype=np.uint8)
    both = np.concatenate([images, between, arrays["neighbours"]], axis=3)
    rows = -(-len(both) // _PAIRS_IN_A_ROW)
    places = arranged(np.arange(len(both)), rows, _PAIRS_IN_A_ROW)
    picture = sheet(both, places, gap=24)
    height = drawing.column() * picture.shape[0] / picture.shape[1]
    figure, (axes,) = drawing.panels(title, height + 0.45)
    draw_sheet(axes, picture)
    axes.set_title("samples, each with its nearest training image")
    fields = [f"{kind}{space}" for space in spaces for kind in ("nearest", "distance")]
    of_fields = {field: arrays[field][closest] for field in fields}
    columns = {"rank": range(len(closest)), "index": closest, **of_fields}
    return Drawing(figure, rows_of(columns))


def distances(title: str, arrays: Arrays) -> Drawing:
    """Draw distances to the nearest training image, a panel for each space."""
    spaces = _spaces(arrays)
    count = len(spaces)
    figure, axes_of_spaces = drawing.panels(title, 0.6 + 1.6 * count, count)
    rows: list[dict[str, Any]] = []
    for axes, space in zip(axes_of_spaces, spaces, strict=True):
        measured = {
            "test images": arrays[f"test-distance{space}"],
            "samples": arrays[f"distance{space}"],
        }
        name = {"": "features of Inception", _PIXELS: "pixels"}.get(
            space, f"features of {in_words(space[1:])}"
        )
        rows += histograms(axes, measured, space=name)
        axes.set_xlabel(f"distance in {name}")
    axes_of_spaces[0].set_title("to the nearest training image")
    drawing.legend_below(figure, axes_of_spaces[0], columns=2)
    return Drawing(figure, rows)


def _spaces(arrays: Arrays) -> list[str]:
    return [name.removeprefix("distance") for name in arrays if name.startswith("distance")]
