"""Figures of generation: the Inception score against the share kept, and any score against the chain's steps.

Tables 3 to 6 of the reproducibility report of Grathwohl et al. (2020), as curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from jembench import drawing
from jembench.interfaces import Value
from jembench.report.figures.base import Drawing, Planned, Result, error_bars, figure_of, identity
from jembench.report.rows import grouped

_NETWORKS = {"model": "the model's", "features": "the feature network's"}
_POOLING = ("one-buffer", "five-buffers", "mean-of-five-buffers")


class Point(NamedTuple):
    """One value of a curve."""

    curve: str
    x: float
    value: Value


class Scale(NamedTuple):
    """The horizontal axis."""

    name: str  # in the figure's name and in the CSV
    label: str
    options: tuple[str, ...]  # of the metric, which differ from point to point and from curve to curve


KEPT = Scale("kept", "share of the samples kept, %", ("top", "selection", "pooling"))
STEPS = Scale("steps", "steps of new chains", ("steps", "source"))


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan for each model and score a figure of the selected share and one of new chains, given two points."""
    selections = [result for result in results if result.protocol.get("selection") in _NETWORKS]
    selections.sort(key=lambda result: (result.protocol["selection"], _POOLING.index(result.protocol["pooling"])))
    for group in grouped(selections, lambda result: _peers(result, (*KEPT.options, "images"))):
        yield from _planned(
            KEPT, group, [(_selection(result), 100 * float(Fraction(result.protocol["top"]))) for result in group]
        )
    new_chains = [result for result in results if result.options.get("source") == "fresh" and "steps" in result.options]
    for group in grouped(new_chains, lambda result: _peers(result, STEPS.options)):
        points = [(result.model, float(result.options["steps"])) for result in group]
        yield from _planned(STEPS, group, points)


def _peers(result: Result, free: Sequence[str]) -> tuple[object, ...]:
    return identity(result.fit), result.place, result.protocol_without(free)


def _planned(scale: Scale, results: Sequence[Result], places: Sequence[tuple[str, float]]) -> Iterator[Planned]:
    if len({x for _, x in places}) < 2:
        return
    for label in dict.fromkeys(label for result in results for label in result.values):
        points = [
            Point(curve, x, result.values[label])
            for (curve, x), result in zip(places, results, strict=True)
            if label in result.values
        ]
        title = f"{label} of {results[0].title}"
        yield figure_of(results, f"{label}-{scale.name}", curves, title, label, scale, points)


def _selection(result: Result) -> str:
    pooling = result.protocol["pooling"].replace("-", " ")
    each = ", per class" if result.protocol.get("per_class") == "true" else ""
    return f"{_NETWORKS[result.protocol['selection']]} confidence{each}, {pooling}"


def curves(title: str, label: str, scale: Scale, points: Sequence[Point]) -> Drawing:
    """Draw a curve for each name among the points, with intervals, on a logarithmic horizontal axis."""
    from matplotlib.ticker import NullLocator

    found = grouped(sorted(points, key=lambda point: point.x), lambda point: point.curve)
    found.sort(key=lambda group: [point.curve for point in points].index(group[0].curve))
    figure, (axes,) = drawing.panels(drawing.column(), 2.3 + 0.16 * len(found) * (len(found) > 1), title)
    for index, group in enumerate(found):
        values = [point.value for point in group]
        nudge = 1.03 ** (index - (len(found) - 1) / 2)  # apart, so that intervals do not hide one another
        axes.errorbar(
            [point.x * nudge for point in group],
            [value.value for value in values],
            yerr=error_bars(values),
            elinewidth=0.8,
            label=group[0].curve,
            **drawing.line(index),
        )
    ticks = sorted({point.x for point in points})
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(scale.label)
    axes.set_ylabel(label)
    if len(found) > 1:
        drawing.legend_below(figure, axes, columns=1)
    rows = [
        {"curve": curve, scale.name: x, label: value.value, "low": value.low, "high": value.high, "n": value.n}
        for curve, x, value in points
    ]
    return Drawing(figure, rows)
