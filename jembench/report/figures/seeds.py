"""The values of several seeds, each one a point, with their mean and standard deviation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jembench.report.figures import names, style
from jembench.report.figures.drawing import Drawing, Planned
from jembench.report.record import grouped
from jembench.store.outcome import Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Seeded(NamedTuple):
    """One value of one seed."""

    model: str
    seed: int
    value: float


def plan(cells: Sequence[Cell]) -> Iterator[Planned]:
    """A figure for each metric and dataset with a model that was trained from several seeds: a panel for each value."""
    measured = [cell for cell in cells if cell.outcome.status == "ok"]
    for group in grouped(measured, _protocol):
        models = grouped(group, lambda cell: names.model_of(cell.fit))
        if max(map(len, models)) < 2:
            continue
        first = group[0]
        yield Planned(
            names.stem(f"seeds-{first.metric}", [cell.fit for cell in group], first.provenance.get("limit")),
            partial(strips, f"{first.metric} on {first.fit.dataset}", _by_label(group)),
        )


def _protocol(cell: Cell) -> tuple[object, ...]:
    return cell.metric, cell.outcome.protocol, cell.fit.dataset, cell.provenance.get("limit")


def _by_label(cells: Sequence[Cell]) -> dict[str, list[Seeded]]:
    found: dict[str, list[Seeded]] = {}
    for cell in cells:
        for label, value in cell.outcome.values.items():
            name = f"{label}, {value.unit}" if value.unit else label
            found.setdefault(name, []).append(Seeded(names.model_of(cell.fit), cell.fit.seed, value.value))
    return found


def strips(title: str, found: Mapping[str, Sequence[Seeded]]) -> Drawing:
    """A panel for each value, a line for each model: its seeds from top to bottom, their mean and their sd."""
    models = list(dict.fromkeys(one.model for values in found.values() for one in values))
    columns = min(2, len(found))
    height = 0.45 + -(-len(found) // columns) * (0.6 + 0.42 * len(models))
    figure = style.new_figure(style.PAGE if columns > 1 else style.COLUMN, height, title)
    rows = []
    axes_of_values = style.panels(figure, len(found), columns, sharey=True)
    for axes, (label, values) in zip(axes_of_values, found.items(), strict=True):
        for place, model in enumerate(models):
            seeds = sorted((one for one in values if one.model == model), key=lambda one: one.seed)
            _draw_strip(axes, place, [one.value for one in seeds])
            rows += [{"label": label, **one._asdict()} for one in seeds]
        axes.set_yticks(range(len(models)), [style.wrapped(model, 1.3) for model in models])
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.set_xlabel(label)
        axes.locator_params(axis="x", nbins=5)
    return Drawing(figure, rows)


def _draw_strip(axes: Axes, place: int, values: Sequence[float]) -> None:
    colour, _, marker, _ = style.look(place)
    spread = [place + 0.5 * ((index + 0.5) / len(values) - 0.5) for index in range(len(values))]
    axes.plot(values, spread, color=colour, marker=marker, linestyle="none", alpha=0.6, markersize=3)
    if len(values) > 1 and all(map(math.isfinite, values)):
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        axes.errorbar(mean, place, xerr=deviation, color=style.BLACK, marker="|", markersize=12, capsize=3)
