"""Samples: the images, the ages of their chains, and the training images nearest to them.

Grathwohl et al. (2020), arXiv:1912.03263, Figures 2, 3, 7, 8 and 12.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jembench import drawing
from jembench.data.grid import arranged, sheet
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, histograms, rows_of
from jembench.report.figures.images import Panel, draw_sheet, grids
from jembench.report.headings import in_words
from jembench.report.protocols import source_in_words

_PERCENTILES = {"p5": 5, "q1": 25, "median": 50, "q3": 75, "p95": 95}
_PAIRS_IN_A_ROW = 4
_PIXELS = "-pixels"


def by_class(results: list[Result]) -> Iterator[Planned]:
    """Plan samples of each model, a row per class."""
    for result in results:
        source = source_in_words(str(result.cell.outcome.details.get("source", "samples")))
        conditional = " on E(x, y)" if "labels" in result.arrays else ""
        yield result.figure("samples", class_grid, f"{source}{conditional}: {result.title}", result.arrays)


def confident(results: list[Result]) -> Iterator[Planned]:
    """Plan the samples of each model with the highest confidence."""
    for result in results:
        yield result.figure("confident", confident_grid, f"most confident: {result.title}", result.arrays)


def class_grid(title: str, arrays: Arrays) -> Drawing:
    """Draw a row of samples for each class: the one that they were drawn for, else the predicted one.

    Their score is the model's confidence, max p(y|x).
    """
    classes = arrays.get("labels", arrays["predicted"])
    labels = list(map(str, range(len(arrays["grid"]))))
    return grids(title, arrays, classes, [Panel("", arrays["grid"], arrays["confidence"], labels)], columns=1)


def confident_grid(title: str, arrays: Arrays) -> Drawing:
    """Draw the samples that the model is most confident of, row by row, in a square."""
    count = len(arrays["images"])
    side = int(np.ceil(np.sqrt(count)))
    panel = Panel("", arranged(np.arange(count), side, side), arrays["confidence"])
    return grids(title, arrays, arrays["predicted"], [panel], columns=1)


# --- the age of chains ------------------------------------------------------------------------------------------------


def ages(results: list[Result]) -> Iterator[Planned]:
    """Plan box plots of the ages of each model's chains, per class."""
    for result in results:
        yield result.figure("chain-age", ages_by_class, result.title, result.arrays)


def ages_by_class(title: str, arrays: Arrays) -> Drawing:
    """Draw a box for each class: the median, the middle half, and whiskers over the middle 90 %."""
    ages, predicted = arrays["ages"], arrays["predicted"]
    classes = np.unique(predicted).tolist()
    rows = [
        {
            "class": number,
            "chains": int((predicted == number).sum()),
            **{name: float(np.percentile(ages[predicted == number], p)) for name, p in _PERCENTILES.items()},
        }
        for number in classes
    ]
    figure, (axes,) = drawing.panels(title, 2.4, width=drawing.column() if len(classes) <= 20 else drawing.page())
    boxes = [{**row, "med": row["median"], "whislo": row["p5"], "whishi": row["p95"]} for row in rows]
    thin = {"linewidth": 0.6}
    look: dict[str, Any] = {"boxprops": {"facecolor": drawing.SKY, **thin}, "whiskerprops": thin, "capprops": thin}
    look["medianprops"] = {"color": drawing.VERMILLION, "linewidth": 1.2}
    places = range(len(classes))
    axes.bxp(boxes, places, widths=0.6, patch_artist=True, showfliers=False, manage_ticks=False, **look)
    axes.set_xticks(places, [str(number) for number in classes])
    axes.set(xlabel="predicted class", ylabel="age of chains, steps", ylim=(0, None))
    return Drawing(figure, rows)


# --- the nearest training images --------------------------------------------------------------------------------------


def neighbours(results: list[Result]) -> Iterator[Planned]:
    """Plan samples of each model beside their nearest training images, and histograms of all distances."""
    for result in results:
        yield result.figure("neighbours", pairs, result.title, result.arrays)
        yield result.figure("neighbours-distances", distances, result.title, result.arrays)


def pairs(title: str, arrays: Arrays) -> Drawing:
    """Draw the samples that are nearest to a training image by the features, each left of it, the nearest first."""
    spaces = _spaces(arrays)
    by_features = next((space for space in spaces if space != _PIXELS), spaces[0])
    closest = np.argsort(arrays[f"distance{by_features}"], kind="stable")[: len(arrays["images"])]
    images = arrays["images"]
    between = np.full((*images.shape[:3], max(1, images.shape[3] // 16)), 255, dtype=np.uint8)
    both = np.concatenate([images, between, arrays["neighbours"]], axis=3)
    places = arranged(np.arange(len(both)), -(-len(both) // _PAIRS_IN_A_ROW), _PAIRS_IN_A_ROW)
    picture = sheet(both, places, gap=24)
    figure, (axes,) = drawing.panels(title, drawing.column() * picture.shape[0] / picture.shape[1] + 0.45)
    draw_sheet(axes, picture)
    axes.set_title("samples, each with its nearest training image")
    fields = [f"{kind}{space}" for space in spaces for kind in ("nearest", "distance")]
    of_fields = {field: arrays[field][closest] for field in fields}
    return Drawing(figure, rows_of({"rank": range(len(closest)), "index": closest, **of_fields}))


def distances(title: str, arrays: Arrays) -> Drawing:
    """Draw the distances of samples and test images to the nearest training image: a panel for each space."""
    spaces = _spaces(arrays)
    figure, axes_of_spaces = drawing.panels(title, 0.6 + 1.6 * len(spaces), len(spaces))
    rows: list[dict[str, Any]] = []
    for axes, space in zip(axes_of_spaces, spaces, strict=True):
        measured = {"test images": arrays[f"test-distance{space}"], "samples": arrays[f"distance{space}"]}
        name = {"": "features of Inception", _PIXELS: "pixels"}.get(space, f"features of {in_words(space[1:])}")
        rows += histograms(axes, measured, space=name)
        axes.set_xlabel(f"distance in {name}")
    axes_of_spaces[0].set_title("to the nearest training image")
    drawing.legend_below(figure, axes_of_spaces[0], columns=2)
    return Drawing(figure, rows)


def _spaces(arrays: Arrays) -> list[str]:
    return [name.removeprefix("distance") for name in arrays if name.startswith("distance")]
