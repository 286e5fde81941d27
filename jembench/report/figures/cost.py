"""Cost curves: FID against the network passes of a sample, accuracy against the hours of training."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from jembench import drawing
from jembench.experiment.names import NO_NAMES, Names
from jembench.report.figures.base import Drawing, Planned, Result, dataset_of, error_bars, figure_of
from jembench.report.headings import in_words
from jembench.report.rows import grouped
from jembench.store.outcome import Cell

_SCALES = {"fid": "network passes of a sample", "accuracy": "hours of training"}
"""The label of the horizontal axis by metric."""

Point = tuple[float, Result]
"""A result and its cost."""


def plan(cells: Sequence[Cell], names: Names = NO_NAMES) -> Iterator[Planned]:
    """Plan a figure for each dataset on which results have different costs; hours are of one machine."""
    results = [Result(cell, {}, names) for cell in cells if cell.outcome.status == "ok"]
    for group in grouped(results, lambda result: (result.fit.dataset, result.cell.limit)):
        times = [(one.values["training-hours"].value, one) for one in group if "training-hours" in one.values]
        hours = {one.fit: time for time, one in _alike(times)}
        passes = [(one.cell.outcome.details.get("sample_passes"), one) for one in group if one.metric == "fid"]
        timed = [(hours.get(one.fit), one) for one in group if one.metric == "accuracy"]
        panels = {"fid": _alike(passes, free=("source",)), "accuracy": _alike(timed)}
        shown = {metric: points for metric, points in panels.items() if len({cost for cost, _ in points}) > 1}
        if shown:
            yield figure_of(group, "cost-curves", curves, f"Cost on {dataset_of(group[0].fit, names)}", shown)


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
