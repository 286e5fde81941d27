"""Figures of training: the curves of losses and energies, and the kept chains."""

from __future__ import annotations

import csv
import io
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jembench import drawing
from jembench.data.grid import arranged
from jembench.errors import StoreError
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.files import read_bytes
from jembench.report import headings
from jembench.report.figures.base import (
    Drawing,
    Numbers,
    Planned,
    colours_of,
    dataset_of,
    legend_entry,
    model_of,
    planned,
    title_of,
)
from jembench.report.figures.images import Panel, grids
from jembench.report.rows import grouped
from jembench.store.outcome import FitKey
from jembench.store.store import Store
from jembench.store.tensors import age_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

History = Sequence[Mapping[str, float]]
"""A row for each window of training, with only the quantities measured in the window."""


def read_history(path: Path) -> History:
    """Read a fit's ``history.csv``; without a file, the history is empty.

    Raises:
        StoreError: if the file is damaged.
    """
    try:
        lines = io.StringIO(read_bytes(path).decode(), newline="")
        history = []
        for row in csv.DictReader(lines):
            history.append({name: float(text) for name, text in row.items() if text})
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise StoreError(
            f"{path} is not the history of a fit ({error}); its curves cannot be drawn."
        ) from error
    return history


# --- curves of all models -------------------------------------------------------------------------


_QUANTITIES = headings.table_of("figures/training.toml")
"""The figures by name, in order: the label of the axis, and the words of each column in the legend.
"""

_COUNTS = {"iteration", "iterations", "attempt", "passes"}
_SPAN = 100.0
"""Ratio of the largest to the 10th percentile of absolute values beyond which a scale is
logarithmic.
"""


def curves_of(
    fits: Iterable[FitKey],
    store: Store,
    left_out: Callable[[str], None],
    names: DisplayNames = NO_NAMES,
) -> Iterator[Planned]:
    """Plan a figure for each dataset and each quantity in the histories of fits.

    A figure has the curves of all models.

    Args:
        fits: in the order of the models.
        store: of the fits.
        left_out: called with a sentence for each damaged history.
        names: display names by canonical specs and recipes.
    """
    fits = list(fits)
    colours = colours_of(fits, names)
    for group in grouped(fits, lambda fit: fit.dataset):
        trainings = []
        for fit in group:
            try:
                history = read_history(store.history(fit))
            except StoreError as error:
                left_out(str(error))
            else:
                trainings.append((model_of(fit, names), fit.seed, history))
        measured: dict[str, None] = {}
        for row in itertools.chain(*(history for _, _, history in trainings)):
            finite = [name for name, value in row.items() if math.isfinite(value)]
            measured |= dict.fromkeys(finite)
        for name, columns in _quantities(measured).items():
            shown = {column: words for column, words in columns.items() if column in measured}
            if shown:
                title = f"training on {dataset_of(group[0], names)}: {columns['axis']}"
                draw = partial(curves, title, columns["axis"], shown, trainings, colours)
                yield planned(f"training-{name}", group, draw)


def _quantities(measured: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return figures by name, with one more for each unlisted column."""
    quantities: dict[str, Mapping[str, str]] = dict(_QUANTITIES)
    placed = _COUNTS.union(*_QUANTITIES.values())
    for name in measured:
        if name not in placed:
            columns = {"axis": name.replace("_", " "), name: ""}
            quantities[name.replace("_", "-")] = columns
    return quantities


def curves(
    title: str,
    label: str,
    columns: Mapping[str, str],
    trainings: Iterable[tuple[str, int, History]],
    colours: Mapping[str, str],
) -> Drawing:
    """Draw some columns of histories over the iterations.

    Each model has a colour, and several seeds have thin lines.

    A vertical line in the colour of the model marks where the guard has intervened. The scale is
    logarithmic where the values span decades, and linear around 0 if some are negative.

    Args:
        title: of the figure.
        label: of the vertical axis.
        columns: words in the legend, by column.
        trainings: model, seed and history of each fit.
        colours: of the models.
    """
    figure, (axes,) = drawing.panels(title, 2.3)
    fields = ("iteration", "attempt", *columns)
    rows: list[dict[str, Any]] = []
    for model, seed, history in trainings:
        for row in history:
            if not columns.keys().isdisjoint(row):
                numbers = {name: row.get(name, "") for name in fields}
                rows.append({"model": model, "seed": seed, **numbers})
    trained = {(row["model"], row["seed"]) for row in rows}
    seeds = Counter(model for model, _ in trained)
    styles = {name: drawing.look(index).line for index, name in enumerate(columns)}
    values: list[float] = []
    for line in grouped(rows, operator.itemgetter("model", "seed", "attempt")):
        first = line[0]
        colour = colours[first["model"]]
        width = 1.2 if seeds[first["model"]] == 1 else 0.6
        look = {"color": colour, "linewidth": width}
        for name, style in styles.items():
            values += _draw(axes, line, name, linestyle=style, **look)
        if first["attempt"] > 0:
            mark = axes.axvline(first["iteration"], color=colour, linestyle=":")
            mark.set_linewidth(drawing.HAIR)
    for model in dict.fromkeys(row["model"] for row in rows):
        legend_entry(axes, model, color=colours[model])
    if len(styles) > 1:
        for name, style in styles.items():
            legend_entry(axes, columns[name], color=drawing.BLACK, linestyle=style)
    _scale(axes, np.array(values))
    axes.set(xlabel="iteration", ylabel=drawing.beside(label))
    drawing.legend_below(figure, axes, columns=4)
    return Drawing(figure, rows)


def _draw(axes: Axes, line: Sequence[Mapping[str, Any]], name: str, **look: Any) -> list[float]:
    """Draw a column of a training over the iterations; return its values.

    Points without a finite neighbour, which make no line, are marked.
    """
    measured = [row for row in line if row[name] != ""]
    values = [row[name] for row in measured]
    finite = np.isfinite(np.array(values, dtype=float))
    around = np.pad(finite, 1)
    alone = finite & ~(around[:-2] | around[2:])
    iterations = [row["iteration"] for row in measured]
    axes.plot(iterations, values, marker="o", markevery=alone.tolist(), **look)
    return values


def _scale(axes: Axes, values: Numbers) -> None:
    """Make the scale logarithmic if the values span decades."""
    finite = values[np.isfinite(values)]
    sizes = np.abs(finite[finite != 0])
    low = math.inf
    if sizes.size:
        low = float(np.percentile(sizes, 10))
    if sizes.max(initial=0) > _SPAN * low:
        if (values < 0).any():
            # a power of ten, so that ticks stay apart from 0
            linear = 10.0 ** math.ceil(math.log10(low))
            decades = math.log10(sizes.max() / linear)
            axes.set_yscale("symlog", linthresh=linear, linscale=max(1, decades / 3))
            axes.locator_params(axis="y", numticks=7)
        else:
            axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")


# --- chains ---------------------------------------------------------------------------------------

SHOWN = 36
"""Chains of each buffer that are drawn."""


def buffers_of(
    fits: Sequence[FitKey], store: Store, names: DisplayNames = NO_NAMES
) -> Iterator[Planned]:
    """Plan a figure for each fit whose training has kept the chains of its last epochs."""
    for fit in fits:
        folder = store.fit_folder(fit)
        if _buffer_files(folder):
            title = f"kept chains: {title_of(fit, names)}"
            yield planned("chains", [fit], partial(buffers, title, folder))


def buffers(title: str, folder: Path) -> Drawing:
    """Draw a grid of images for each kept buffer, with the iteration above.

    All grids show the same chains. The score is the age of a chain, in steps.

    Args:
        title: of the figure.
        folder: of the fit.

    Raises:
        CheckpointError: if a buffer is damaged.
    """
    from jembench.training import snapshots

    kept = snapshots.read(folder)
    count = min(SHOWN, *(len(samples.images) for samples in kept))
    side = math.ceil(math.sqrt(count))
    grid = arranged(np.arange(count), side, side)
    images, labels, ages = [], [], []
    for samples in kept:
        images.append(samples.images[:count].numpy())
        if samples.labels is not None:
            labels.append(samples.labels[:count].numpy())
        unknown = np.full(count, math.nan)
        ages.append(unknown if samples.ages is None else samples.ages[:count].numpy())
    shown = np.arange(len(kept) * count)
    arrays = {"images": np.concatenate(images), "shown": shown}
    classes = np.concatenate(labels) if len(labels) == len(kept) else None
    score = np.concatenate(ages)
    panels = []
    for number, path in enumerate(_buffer_files(folder)):
        of_buffer = np.where(grid < 0, -1, grid + number * count)
        panels.append(Panel(f"iteration {age_of(path):,}", of_buffer, score))
    return grids(title, arrays, classes, panels, columns=len(kept))


def _buffer_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("buffer-*.safetensors"))
