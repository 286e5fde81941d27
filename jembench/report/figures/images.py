"""Figures of images: grids of them, samples, and the ages of their chains.

Grathwohl et al. (2020), arXiv:1912.03263, Figures 2, 3, 7, 8 and 12.

Legend: N examples, M of them as pictures, C channels, H height, W width, R rows, S columns of
    a grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.data.grid import Indices, Pixels, arranged, sheet
from jembench.report.figures.base import Arrays, Drawing, Planned, Result
from jembench.report.protocols import source_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PERCENTILES = {"p5": 5, "q1": 25, "median": 50, "q3": 75, "p95": 95}
_PARTS_OF_BOX = ("whislo", "q1", "med", "q3", "whishi")
_HEAD = 0.22  # inches for a title above a panel
_LABELS = 0.2  # inches for the labels of rows


class Panel(NamedTuple):
    """A grid under its own title."""

    title: str
    grid: Indices  # (R, S) index of the picture; -1: none
    score: NDArray[Any]  # (N,) the score that chose the pictures, or describes them
    rows: Sequence[str] = ()  # labels of the R rows


def grids(
    title: str, arrays: Arrays, classes: NDArray[Any] | None, panels: Sequence[Panel], columns: int
) -> Drawing:
    """Draw panels of images, ``columns`` of them side by side.

    Args:
        title: of the figure.
        arrays: ``images`` uint8 (M, C, H, W) and ``shown`` (M,), the index of each picture among
            the N examples.
        classes: (N,), or None if they are unknown.
        panels: the CSV has a line for each image: position, class, index among the examples and
            score.
        columns: panels side by side.
    """
    sheets = [sheet(arrays["images"], panel.grid) for panel in panels]
    width = drawing.page() if columns > 1 else drawing.column()
    columns = drawing.fitting(columns)
    inner = width / columns - 0.1
    if any(panel.rows for panel in panels):
        inner -= _LABELS
    heights = [inner * picture.shape[0] / picture.shape[1] for picture in sheets]
    head = _HEAD if any(panel.title for panel in panels) else 0.05
    ratios = []
    for start in range(0, len(heights), columns):
        ratios.append(max(heights[start : start + columns]) + head)
    shape: dict[str, Any] = {"width": width, "height_ratios": ratios}
    height = sum(ratios) + 0.3
    figure, axes_of_panels = drawing.panels(title, height, len(panels), columns, **shape)
    rows = []
    for axes, panel, picture in zip(axes_of_panels, panels, sheets, strict=True):
        draw_sheet(axes, picture, panel.rows)
        axes.set_title(panel.title)
        for row, column in np.argwhere(panel.grid >= 0).tolist():
            index = int(arrays["shown"][panel.grid[row, column]])
            place = {"panel": panel.title, "row": row, "column": column}
            number = "" if classes is None else int(classes[index])
            score = float(panel.score[index])
            rows.append({**place, "class": number, "index": index, "score": score})
    return Drawing(figure, rows)


def draw_sheet(axes: Axes, picture: Pixels, labels: Sequence[str] = ()) -> None:
    """Show a sheet, with a label for each row."""
    axes.imshow(picture, interpolation="nearest")
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    step = picture.shape[0] / max(1, len(labels))
    centres = (np.arange(len(labels)) + 0.5) * step
    axes.set_yticks(centres, labels)
    axes.tick_params(length=0)


# --- samples --------------------------------------------------------------------------------------


def by_class(results: list[Result]) -> Iterator[Planned]:
    """Plan samples of each model, a row per class."""
    for result in results:
        details = result.cell.outcome.details
        source = source_in_words(str(details.get("source", "samples")))
        if "labels" in result.arrays:
            source = f"{source} on E(x, y)"
        yield result.figure("samples", class_grid, f"{source}: {result.title}", result.arrays)


def confident(results: list[Result]) -> Iterator[Planned]:
    """Plan the samples of each model with the highest confidence."""
    for result in results:
        title = f"most confident: {result.title}"
        yield result.figure("confident", confident_grid, title, result.arrays)


def class_grid(title: str, arrays: Arrays) -> Drawing:
    """Draw a row of samples for each class.

    The class is the one that samples were drawn for, else the predicted class. The score is the
    model's confidence, max p(y|x).
    """
    classes = arrays.get("labels", arrays["predicted"])
    labels = list(map(str, range(len(arrays["grid"]))))
    panel = Panel("", arrays["grid"], arrays["confidence"], labels)
    return grids(title, arrays, classes, [panel], columns=1)


def confident_grid(title: str, arrays: Arrays) -> Drawing:
    """Draw the samples that the model is most confident of, row by row, in a square."""
    count = len(arrays["images"])
    side = int(np.ceil(np.sqrt(count)))
    grid = arranged(np.arange(count), side, side)
    panel = Panel("", grid, arrays["confidence"])
    return grids(title, arrays, arrays["predicted"], [panel], columns=1)


# --- the age of chains ----------------------------------------------------------------------------


def ages(results: list[Result]) -> Iterator[Planned]:
    """Plan box plots of the ages of each model's chains, per class."""
    for result in results:
        yield result.figure("chain-age", ages_by_class, result.title, result.arrays)


def ages_by_class(title: str, arrays: Arrays) -> Drawing:
    """Draw a box for each class: the median, the middle half, and whiskers over the middle 90 %."""
    predicted = arrays["predicted"]
    classes = np.unique(predicted).tolist()
    rows, boxes = [], []
    ranks = list(_PERCENTILES.values())
    for number in classes:
        ages = arrays["ages"][predicted == number]
        ends = np.percentile(ages, ranks).tolist()
        row = {"class": number, "chains": len(ages)}
        rows.append(row | dict(zip(_PERCENTILES, ends, strict=True)))
        boxes.append(dict(zip(_PARTS_OF_BOX, ends, strict=True)))
    width = drawing.column() if len(classes) <= 20 else drawing.page()
    figure, (axes,) = drawing.panels(title, 2.4, width=width)
    thin = {"linewidth": 0.6}
    look: dict[str, Any] = {"whiskerprops": thin, "capprops": thin}
    look["boxprops"] = {"facecolor": drawing.SKY, **thin}
    look["medianprops"] = {"color": drawing.VERMILLION, "linewidth": 1.2}
    look |= {"widths": 0.6, "patch_artist": True, "showfliers": False, "manage_ticks": False}
    places = range(len(classes))
    axes.bxp(boxes, places, **look)
    axes.set_xticks(places, list(map(str, classes)))
    axes.set(xlabel="predicted class", ylabel="age of chains, steps", ylim=(0, None))
    return Drawing(figure, rows)
