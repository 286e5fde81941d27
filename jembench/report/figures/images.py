"""Grids of images.

Legend: N examples, M pictures of some of them, C channels, H height, W width, R rows, S columns of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.data.grid import Indices, Pixels, sheet
from jembench.report.figures.base import Arrays, Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD = 0.22  # inches for a title above a panel
_LABELS = 0.2  # inches for the labels of rows


class Panel(NamedTuple):
    """A grid under its own title."""

    title: str
    grid: Indices  # (R, S) index of the picture; -1: none
    score: NDArray[Any]  # (N,) what decided, or tells of, the choice
    rows: Sequence[str] = ()  # labels of the R rows


def grids(title: str, arrays: Arrays, classes: NDArray[Any] | None, panels: Sequence[Panel], columns: int) -> Drawing:
    """Draw panels of images, ``columns`` of them side by side.

    Args:
        title: of the figure.
        arrays: ``images`` uint8 (M, C, H, W) and ``shown`` (M,), the index of each picture among the N examples.
        classes: (N,), or None if they are unknown.
        panels: with a line in the CSV for each image: its position, class, index among the examples and score.
        columns: of panels.
    """
    sheets = [sheet(arrays["images"], panel.grid) for panel in panels]
    whole_page, columns = columns > 1, drawing.fitting(columns)
    width = drawing.page() if whole_page else drawing.column()
    inner = width / columns - 0.1 - (_LABELS if any(panel.rows for panel in panels) else 0)
    heights = [inner * picture.shape[0] / picture.shape[1] for picture in sheets]
    head = _HEAD if any(panel.title for panel in panels) else 0.05
    ratios = [max(heights[start : start + columns]) + head for start in range(0, len(heights), columns)]
    figure, axes_of_panels = drawing.panels(
        title, sum(ratios) + 0.3, len(panels), columns, width=width, height_ratios=ratios
    )
    rows = []
    for axes, panel, picture in zip(axes_of_panels, panels, sheets, strict=True):
        draw_sheet(axes, picture, panel.rows)
        axes.set_title(panel.title)
        for row, column in np.argwhere(panel.grid >= 0).tolist():
            index = int(arrays["shown"][panel.grid[row, column]])
            place = {"panel": panel.title, "row": row, "column": column}
            number = "" if classes is None else int(classes[index])
            rows.append({**place, "class": number, "index": index, "score": float(panel.score[index])})
    return Drawing(figure, rows)


def draw_sheet(axes: Axes, picture: Pixels, labels: Sequence[str] = ()) -> None:
    """Show a sheet, with a label for each of its rows."""
    axes.imshow(picture, interpolation="nearest")
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    step = picture.shape[0] / len(labels) if labels else 0
    axes.set_yticks([(index + 0.5) * step for index in range(len(labels))], labels)
    axes.tick_params(length=0)
