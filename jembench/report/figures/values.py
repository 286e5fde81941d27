"""Figures of values of any metric: those of several seeds, and those against what they cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from jembench import drawing
from jembench.report.figures.base import Drawing, Planned, Result, error_bars, figure_of, rows_of
from jembench.report.headings import in_words
from jembench.report.rows import grouped


def seeds(results: Sequence[Result]) -> Iterator[Planned]:
    """Plan a figure for each metric and dataset with a model that was trained from several seeds."""
    alike = grouped(results, lambda one: (one.cell.metric, one.cell.outcome.protocol, one.fit.dataset, one.cell.limit))
    for group in alike:
        if max(map(len, grouped(group, lambda one: one.fit.names))) > 1:
            options = (f"{key} {value}" for key, value in group[0].options.items())
            title = f"{', '.join((in_words(group[0].metric), *options))} on {group[0].dataset}"
            yield figure_of(group, f"seeds-{group[0].metric}", strips, title, group)


def strips(title: str, results: Sequence[Result]) -> Drawing:
    """Draw a panel for each value, a line for each model: its seeds from top to bottom, their mean and their sd."""
    units = {label: value.unit for result in results for label, value in result.values.items()}
    models = list(dict.fromkeys(result.model for result in results))
    columns = min(2, len(units))
    height = 0.45 + -(-len(units) // columns) * (0.6 + 0.42 * len(models))
    figure, panels = drawing.panels(title, height, len(units), columns, sharey=True)
    rows = []
    for axes, (label, unit) in zip(panels, units.items(), strict=True):
        name = ", ".join(filter(None, (in_words(label), unit)))
        for place, model in enumerate(models):
            own = [result for result in results if result.model == model and label in result.values]
            numbers = {result.fit.seed: result.values[label].value for result in own}
            seeds = sorted(numbers)
            values = [numbers[seed] for seed in seeds]
            rows += rows_of({"seed": seeds, "value": values}, label=name, model=model)
            colour, _, marker, _ = drawing.look(place)
            spread = [place + 0.5 * ((index + 0.5) / len(values) - 0.5) for index in range(len(values))]
            axes.plot(values, spread, color=colour, marker=marker, linestyle="none", alpha=0.6, markersize=3)
            if len(values) > 1 and all(map(math.isfinite, values)):
                mean, deviation = statistics.mean(values), statistics.stdev(values)
                axes.errorbar(mean, place, xerr=deviation, color=drawing.BLACK, marker="|", markersize=12, capsize=3)
        axes.set_yticks(range(len(models)), [drawing.wrapped(model, 1.3) for model in models])
        axes.set(xlabel=name, ylim=(len(models) - 0.5, -0.5))
        axes.locator_params(axis="x", nbins=5)
    return Drawing(figure, rows)


# --- costs ------------------------------------------------------------------------------------------------------------

_SCALES = {"fid": "network passes of a sample", "accuracy": "hours of training"}
"""The label of the horizontal axis by metric."""

Point = tuple[float, Result]
"""A result and its cost."""


def costs(results: Sequence[Result]) -> Iterator[Planned]:
    """Plan a figure for each dataset on which results have different costs; hours are of one machine."""
    for group in grouped(results, lambda result: (result.fit.dataset, result.cell.limit)):
        times = [(one.values["training-hours"].value, one) for one in group if "training-hours" in one.values]
        hours = {one.fit: time for time, one in _alike(times)}
        passes = [(one.cell.outcome.details.get("sample_passes"), one) for one in group if one.metric == "fid"]
        timed = [(hours.get(one.fit), one) for one in group if one.metric == "accuracy"]
        panels = {"fid": _alike(passes, free=("source",)), "accuracy": _alike(timed)}
        shown = {metric: points for metric, points in panels.items() if len({cost for cost, _ in points}) > 1}
        if shown:
            yield figure_of(group, "cost-curves", curves, f"Cost on {group[0].dataset}", shown)


def _alike(results: Sequence[tuple[float | None, Result]], free: Collection[str] = ()) -> list[Point]:
    """Return the results of known cost whose protocol, apart from its free parts, most of them have; cheapest first."""
    known = [(cost, one) for cost, one in results if cost]
    alike = max(grouped(known, lambda point: point[1].protocol_without(free)), key=len, default=[])
    return sorted(alike, key=itemgetter(0))


def curves(title: str, panels: Mapping[str, Sequence[Point]]) -> Drawing:
    """Draw a panel for each metric, a colour for each model; a line joins the new chains of one training.

    Args:
        title: of the figure.
        panels: results by ``fid`` and ``accuracy``.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    models = sorted({one.model for points in panels.values() for _, one in points})
    figure, grid = drawing.panels(title, 2.2 + 0.1 * len(models), len(panels), len(panels))
    rows = []
    hollow: dict[str, Any] = {"markerfacecolor": drawing.WHITE, "linestyle": "none"}
    for axes, (metric, points) in zip(grid, panels.items(), strict=True):
        for own in grouped(points, lambda point: (point[1].fit, _source(point[1]))):
            (_, first), costs = own[0], [cost for cost, _ in own]
            label, values = next(iter(first.values)), [next(iter(one.values.values())) for _, one in own]
            look = drawing.line(models.index(first.model)) | (hollow if _source(first) == "buffer" else {})
            axes.errorbar(costs, [value.value for value in values], yerr=error_bars(values), **look)
            about = {"model": first.model, "seed": first.fit.seed, "source": _source(first), "cost": _SCALES[metric]}
            of_values = [
                {"at": cost, "quantity": label, **value._asdict()} for cost, value in zip(costs, values, strict=True)
            ]
            rows += [about | of_value for of_value in of_values]
        axes.set(
            xscale="log", xlabel=_SCALES[metric], ylabel=", ".join(filter(None, (in_words(label), values[0].unit)))
        )
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    for index, model in enumerate(models):
        grid[0].plot([], [], label=model, **drawing.line(index))
    if "buffer" in {row["source"] for row in rows}:
        grid[0].plot([], [], label="kept chains", color=drawing.BLACK, marker="o", **hollow)
    drawing.legend_below(figure, grid[0], columns=3)
    return Drawing(figure, rows)


def _source(result: Result) -> str:
    """Return the kind of samples: ``buffer``, ``direct`` or ``chains``; "": the metric has none."""
    return result.protocol.get("source", "").partition(":")[0]
