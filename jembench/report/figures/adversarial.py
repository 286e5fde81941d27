"""Figures of attacked images beside their originals, and of distal images.

Distal images are made from noise.

Grathwohl et al. (2020), arXiv:1912.03263, Figure 6.

Legend: N attacked images, M ends of ascents from noise, C channels, H height, W width, R rows, S
    columns of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.data.grid import Indices, Pixels, arranged, sheet
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, rows_of
from jembench.report.figures.images import draw_sheet
from jembench.report.headings import in_words
from jembench.report.protocols import in_common

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = 255
"""Distances are shown in levels of 8-bit images."""

NORMS = {"linf": "L∞", "l2": "L2"}
"""The norms in the order in which they are shown."""

_COLUMNS = 10
_LABELS = 0.85  # inches for the labels of rows
_ROUNDING = 1e-6  # smaller changes of float32 images in [0, 1] are rounding


def norms_of(result: Result) -> tuple[str, ...]:
    """Return the norms in which an attack looked for the nearest image.

    An attack whose protocol names no norm has both.
    """
    norm = result.protocol.get("norm")
    return tuple(NORMS) if norm is None else (norm,)


def rightly_classified(arrays: Arrays) -> NDArray[np.bool_]:
    """Return which images were classified correctly before the attack."""
    withstood: NDArray[np.bool_] = ~arrays["found"].astype(bool)
    return withstood | (arrays["distance-linf"] > 0)


# --- adversarial images ---


def images_of(result: Result) -> Iterator[Planned]:
    """Plan a model's attacked images, if the model classifies any correctly."""
    if not rightly_classified(result.arrays).any():
        return
    attack = in_words(result.metric)
    if "eps" in result.protocol:
        attack = f"{attack} within {result.protocol['eps']}"
    spent = in_common([result.cell.outcome.protocol])
    arguments = (f"{attack}: {result.title}\n{spent}".strip(), result.arrays, norms_of(result))
    yield result.figure(f"{result.metric}-images", changes, *arguments)


def changes(title: str, arrays: Arrays, norms: Sequence[str]) -> Drawing:
    """Draw images, their adversarial images and the differences.

    The classes stand above, and the distances below.

    Args:
        title: of the figure.
        arrays: of an attack.
        norms: of the distances.
    """
    right = rightly_classified(arrays)
    chosen = spread(arrays["label"], arrays["index"], right, _columns())
    count, columns = len(chosen), _columns_for(len(chosen))
    originals, made = arrays["image"][chosen], arrays["adversarial"][chosen]
    change = made - originals / np.float32(LEVELS)
    factor = amplification(change)
    amplified = 0.5 + factor * change
    drawn = np.concatenate([made, amplified]).clip(0, 1)
    levels = np.rint(LEVELS * drawn).astype(np.uint8)
    grid = _grid(np.arange(3 * count).reshape(3, count), columns)
    picture = sheet(np.concatenate([originals, levels]), grid)
    labels = ["original", "adversarial", f"difference\nx {factor}"]
    margins = 0.33 + 0.13 * len(norms)
    figure, axes = _sheet(title, picture, columns, margins, labels)

    fields: dict[str, Any] = {"column": range(count)}
    for name in ("index", "label", "predicted", "found", "wrong"):
        fields[name] = arrays[name][chosen]
    for norm in NORMS:
        fields[f"{norm}_255"] = LEVELS * arrays[f"distance-{norm}"][chosen]
    rows = rows_of({**fields, "factor": [factor] * count})
    centres = (np.arange(columns) + 0.5) * picture.shape[1] / columns
    below = []
    for centre, row in zip(centres, rows, strict=False):  # the last columns may be empty
        classes = f"{row['label']} → {row['predicted']}"
        axes.text(centre, -4, classes, ha="center", va="bottom")
        distances = [f"{NORMS[norm]} {row[f'{norm}_255']:.1f}" for norm in norms]
        below.append("\n".join(distances) if row["found"] else "robust")
    axes.set_xticks(centres[:count], below)
    axes.set_xlabel("distance, 1/255")
    return Drawing(figure, rows)


def spread(labels: Indices, index: Indices, among: NDArray[np.bool_], count: int) -> Indices:
    """Choose the first images of each class, spread evenly over the classes.

    Args:
        labels: (N,) classes.
        index: (N,) places in the test split, the order within a class.
        among: (N,) True for images that may be taken.
        count: the largest number of images.

    Returns:
        Positions in ``labels``, by class.
    """
    by_class = np.lexsort((index, labels))
    candidates = by_class[among[by_class]]
    classes = labels[candidates]
    turn = np.arange(len(candidates)) - np.searchsorted(classes, classes)  # place within the class
    order = np.lexsort((index[candidates], turn))
    return candidates[np.sort(order[:count])]


def amplification(change: NDArray[np.floating[Any]]) -> int:
    """Return the integer factor that scales changes (N, C, H, W) for display.

    The median of the images' largest changes becomes .5 at most.
    """
    largest = np.abs(change).max(axis=(1, 2, 3))
    changed = largest[largest > _ROUNDING]
    if not changed.size:
        return 1
    factor: float = 0.5 / np.median(changed)
    return max(1, math.floor(factor))


def _columns() -> int:
    """Return the number of images in a figure's row.

    The figure has the width of a page, or the width that was chosen.
    """
    if drawing.page() > 1.5 * drawing.COLUMN:
        return _COLUMNS
    return _COLUMNS // 2


def _columns_for(images: int) -> int:
    """Return a grid's columns: all, or half if they suffice.

    So images have one size in all figures.
    """
    half = _columns() // 2
    return _columns() if images > half else half


def _sheet(
    title: str, picture: Pixels, columns: int, margins: float, labels: Sequence[str]
) -> tuple[Figure, Axes]:
    """Draw a sheet of images, as wide as a page or half of it, with a label for each row."""
    width = drawing.page() if columns == _columns() else drawing.column()
    height = (width - _LABELS) * picture.shape[0] / picture.shape[1]
    figure, (axes,) = drawing.panels(title, height + 0.35 + margins, width=width)
    draw_sheet(axes, picture, labels)
    return figure, axes


# --- from noise ---


def distal(results: list[Result]) -> Iterator[Planned]:
    """Plan distal images of each model, class by class."""
    for result in results:
        spent = in_common([result.cell.outcome.protocol])
        title = f"noise made into images of a class: {result.title}\n{spent}".strip()
        threshold = float(result.protocol["threshold"])
        yield result.figure("distal", ends, title, result.arrays, threshold)


def ends(title: str, arrays: Arrays, threshold: float) -> Drawing:
    """Draw distal images class by class, with the confidence above.

    ``*`` means that the threshold was not reached.
    """
    grid, labels = by_class(arrays["target"])
    columns = grid.shape[1]
    side = arrays["images"].shape[2]
    room = math.ceil(0.35 * side)  # for the text above an image, in its pixels
    margins = ((0, 0), (0, 0), (room, 0), (0, 0))
    images = np.pad(arrays["images"], margins, constant_values=255)
    picture = sheet(images, grid)
    reached = arrays["reached"].astype(bool)
    share = f"{reached.sum()} of {len(reached)} reach p(y|x) > {threshold:g}"
    figure, axes = _sheet(f"{title}\n{share}", picture, columns, 0.15, labels)
    high = picture.shape[0] / len(grid)
    wide = picture.shape[1] / columns
    band = room / (side + room)
    lines, places = np.nonzero(grid >= 0)
    shown = grid[lines, places]
    legend = "above each image: p(y|x) of its class"
    for line, column, index in zip(lines, places, shown, strict=True):
        text, colour = f"{arrays['confidence'][index]:.2f}", drawing.BLACK
        if not reached[index]:
            text, colour = f"{text} *", drawing.VERMILLION
        centre = (column + 0.5) * wide, (line + 0.55 * band) * high
        axes.text(*centre, text, color=colour, ha="center", va="center")
    if not reached.all():
        legend = f"{legend}; *: not reached"
    axes.set(xlabel=legend, ylabel="class")
    fields = {"row": lines, "column": places, "index": shown}
    for name in ("target", "confidence", "reached", "steps"):
        fields[name] = arrays[name][shown]
    return Drawing(figure, rows_of(fields))


def by_class(target: Indices) -> tuple[Indices, list[str]]:
    """Return the first images of each class as a grid, and its labels.

    The grid has image indices (R, S), and a label for each row. Of more than ten classes, it has
    ten rows of the first images by class.
    """
    classes, most = np.unique(target), _columns()
    if len(classes) > _COLUMNS:
        ordered = np.argsort(target, kind="stable")[: _COLUMNS * most]
        starts = range(0, len(ordered), most)
        lines = [ordered[start : start + most] for start in starts]
    else:
        lines = [np.flatnonzero(target == number)[:most] for number in classes]
    columns = _columns_for(max(map(len, lines)))
    labels = []
    for line in lines:
        ends = dict.fromkeys(target[line[[0, -1]]])
        labels.append(" to ".join(map(str, ends)))
    return _grid(lines, columns), labels


def _grid(lines: Iterable[Indices], columns: int) -> Indices:
    """Return a grid's indices from those of its lines, which may be shorter."""
    return np.concatenate([arranged(line, 1, columns) for line in lines])
