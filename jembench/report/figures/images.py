"""Grids of images.

Legend: N examples, M pictures of some of them, C channels, H height, W width, R rows, S columns of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.report.figures.base import Arrays, Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE = 64
_HEAD = 0.22  # inches for a title above a panel
_LABELS = 0.2  # inches for the labels of rows


class Panel(NamedTuple):
    """A grid under its own title."""

    title: str
    grid: NDArray[np.int64]  # (R, S) index of the picture; -1: none
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


def grid_of(count: int, rows: int, columns: int) -> NDArray[np.int64]:
    """Return a grid of the first ``count`` pictures, row by row; -1 where there is none."""
    grid = np.full(rows * columns, -1)
    grid[:count] = np.arange(count)
    return grid.reshape(rows, columns)


def sheet(images: NDArray[np.uint8], grid: NDArray[np.int64], gap: int = 4, ground: int = 255) -> NDArray[np.uint8]:
    """Join pictures into one, ``ground`` where there is none: (M, C, H, W) and (R, S) -> (height, width, 3).

    The images are enlarged by a whole factor, pixel by pixel, until their shorter side has 64 pixels, with ``gap``
    pixels between them.
    """
    height, width = images.shape[2:]
    scale = math.ceil(_SIDE / min(height, width))
    step_y, step_x = height * scale + gap, width * scale + gap
    rows, columns = grid.shape
    picture = np.full((rows * step_y - gap, columns * step_x - gap, 3), ground, dtype=np.uint8)
    for row, column in np.argwhere(grid >= 0):
        image = images[grid[row, column]].transpose(1, 2, 0).repeat(scale, axis=0).repeat(scale, axis=1)
        top, left = row * step_y, column * step_x
        picture[top : top + height * scale, left : left + width * scale] = image  # one channel fills all three
    return picture


def draw_sheet(axes: Axes, picture: NDArray[np.uint8], labels: Sequence[str] = ()) -> None:
    """Show a sheet, with a label for each of its rows."""
    axes.imshow(picture, interpolation="nearest")
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    step = picture.shape[0] / len(labels) if labels else 0
    axes.set_yticks([(index + 0.5) * step for index in range(len(labels))], labels)
    axes.tick_params(length=0)
