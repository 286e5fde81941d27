"""Figures of training: the energies of data and samples over it, and the values of several seeds."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jembench import drawing
from jembench.errors import StoreError
from jembench.files import read_bytes
from jembench.report.figures.energies import History, curves_in, energies
from jembench.report.figures.planned import Drawing, Planned, rows_of
from jembench.report.figures.results import model_of, stem, title_of
from jembench.report.names import NO_NAMES, Names
from jembench.report.record import grouped
from jembench.store.outcome import Cell, FitKey

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def energies_of(
    fits: Iterable[FitKey],
    history_of: Callable[[FitKey], Path],
    left_out: Callable[[str], None],
    names: Names = NO_NAMES,
) -> Iterator[Planned]:
    """A figure for each fit that is trained on energies, as far as its training has come."""
    for fit in fits:
        try:
            history = read_history(history_of(fit))
        except StoreError as error:
            left_out(str(error))
            continue
        if curves_in(history):
            yield Planned(stem("energies", [fit]), partial(of_history, title_of(fit, names), history))


def of_history(title: str, history: History) -> Drawing:
    """The energies of a history, abandoned attempts included."""
    figure = energies(title, history)
    curves = ("iteration", "attempt", *curves_in(history))
    return Drawing(figure, [{name: row.get(name, "") for name in curves} for row in history])


def read_history(path: Path) -> History:
    """What ``history.csv`` of a fit holds; nothing, if there is none.

    Raises:
        StoreError: if it is damaged.
    """
    try:
        lines = io.StringIO(read_bytes(path).decode(), newline="")
        return [{name: float(text) for name, text in row.items() if text} for row in csv.DictReader(lines)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise StoreError(f"{path} is not the history of a fit ({error}); its energies cannot be drawn.") from error


# --- seeds ------------------------------------------------------------------------------------------------------------


def seeds_of(cells: Sequence[Cell], names: Names = NO_NAMES) -> Iterator[Planned]:
    """A figure for each metric and dataset with a model that was trained from several seeds: a panel for each value."""
    measured = [cell for cell in cells if cell.outcome.status == "ok"]
    for group in grouped(measured, _protocol):
        of_models = grouped(group, lambda cell: (cell.fit.model, cell.fit.recipe))
        named = [(model_of(cells[0].fit, names), cells) for cells in of_models]
        count = Counter(name for name, _ in named)  # a model may have more than one usual recipe
        models = {f"{name} ({cells[0].fit.recipe})" if count[name] > 1 else name: cells for name, cells in named}
        if max(map(len, models.values())) < 2:
            continue
        first = group[0]
        yield Planned(
            stem(f"seeds-{first.metric}", [cell.fit for cell in group], first.provenance.get("limit")),
            partial(strips, f"{first.metric} on {first.fit.dataset}", models),
        )


def _protocol(cell: Cell) -> tuple[object, ...]:
    return cell.metric, cell.outcome.protocol, cell.fit.dataset, cell.provenance.get("limit")


def strips(title: str, models: Mapping[str, Sequence[Cell]]) -> Drawing:
    """A panel for each value, a line for each model: its seeds from top to bottom, their mean and their sd."""
    units = {
        label: value.unit for cells in models.values() for cell in cells for label, value in cell.outcome.values.items()
    }
    columns = min(2, len(units))
    height = 0.45 + -(-len(units) // columns) * (0.6 + 0.42 * len(models))
    width = drawing.page() if columns > 1 else drawing.column()
    figure, panels = drawing.panels(width, height, title, len(units), columns, sharey=True)
    rows = []
    for axes, (label, unit) in zip(panels, units.items(), strict=True):
        name = f"{label}, {unit}" if unit else label
        for place, (model, of_model) in enumerate(models.items()):
            having = sorted((cell for cell in of_model if label in cell.outcome.values), key=lambda cell: cell.fit.seed)
            values = [cell.outcome.values[label].value for cell in having]
            _draw_strip(axes, place, values)
            seeds = [cell.fit.seed for cell in having]
            rows += rows_of({"seed": seeds, "value": values}, label=name, model=model)
        axes.set_yticks(range(len(models)), [drawing.wrapped(model, 1.3) for model in models])
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.set_xlabel(name)
        axes.locator_params(axis="x", nbins=5)
    return Drawing(figure, rows)


def _draw_strip(axes: Axes, place: int, values: Sequence[float]) -> None:
    colour, _, marker, _ = drawing.look(place)
    spread = [place + 0.5 * ((index + 0.5) / len(values) - 0.5) for index in range(len(values))]
    axes.plot(values, spread, color=colour, marker=marker, linestyle="none", alpha=0.6, markersize=3)
    if len(values) > 1 and all(map(math.isfinite, values)):
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        axes.errorbar(mean, place, xerr=deviation, color=drawing.BLACK, marker="|", markersize=12, capsize=3)
