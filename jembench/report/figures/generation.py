"""Figures of generation: the Inception score against the share kept, and any score against the chain's steps.

Tables 3 to 6 of the reproducibility report of Grathwohl et al. (2020), as curves.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from jembench import drawing
from jembench.interfaces import Value
from jembench.report.figures.base import Drawing, Planned, Result, error_bars, figure_of
from jembench.report.headings import in_words
from jembench.report.rows import grouped

_SCALES = {"kept": "share of the samples kept, %", "steps": "steps of new chains"}
"""The horizontal axes: the name in the figure's name and in the CSV, and the label."""

_NETWORKS = {"model": "the model's", "features": "the feature network's"}
_POOLING = ("one-buffer", "five-buffers", "mean-of-five-buffers")


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan curves of the score against the share of samples kept and against the steps of new chains."""
    selections = [result for result in results if result.protocol.get("selection") in _NETWORKS]
    selections.sort(key=lambda result: (result.protocol["selection"], _POOLING.index(result.protocol["pooling"])))
    for group in _peers(selections, "top", "selection", "pooling", "images"):
        shares = [100 * float(Fraction(result.protocol["top"])) for result in group]
        yield from _planned("kept", group, list(map(_selection, group)), shares)
    new_chains = [result for result in results if result.options.get("source") == "fresh" and "steps" in result.options]
    for group in _peers(new_chains, "steps", "source"):
        steps = [float(result.options["steps"]) for result in group]
        yield from _planned("steps", group, [result.model for result in group], steps)


def _peers(results: Sequence[Result], *free: str) -> list[list[Result]]:
    """Group results of one model whose protocols differ in the free parts alone."""
    return grouped(results, lambda result: (result.fit.names, result.place, result.protocol_without(free)))


def _planned(
    scale: str, results: Sequence[Result], curves_of: Sequence[str], places: Sequence[float]
) -> Iterator[Planned]:
    if len(set(places)) > 1:
        of_all = list(zip(curves_of, places, results, strict=True))
        for label in dict.fromkeys(label for result in results for label in result.values):
            points = [(curve, x, result.values[label]) for curve, x, result in of_all if label in result.values]
            title = f"{in_words(label)} of {results[0].title}"
            yield figure_of(results, f"{label}-{scale}", curves, title, label, scale, points)


def _selection(result: Result) -> str:
    pooling = result.protocol["pooling"].replace("-", " ")
    each = ", per class" if result.protocol.get("per_class") == "true" else ""
    return f"{_NETWORKS[result.protocol['selection']]} confidence{each}, {pooling}"


def curves(title: str, label: str, scale: str, points: Sequence[tuple[str, float, Value]]) -> Drawing:
    """Draw a curve for each name among the points, with intervals, on a logarithmic horizontal axis.

    Args:
        title: of the figure.
        label: of the values.
        scale: ``kept`` or ``steps``.
        points: the curve, the place on the horizontal axis and the value of each.
    """
    from matplotlib.ticker import NullLocator

    found = grouped(points, lambda point: point[0])
    figure, (axes,) = drawing.panels(title, 2.3 + 0.16 * len(found) * (len(found) > 1))
    for index, group in enumerate(found):
        ordered = sorted(group, key=lambda point: point[1])
        values = [value for *_, value in ordered]
        nudge = 1.03 ** (index - (len(found) - 1) / 2)  # apart, so that intervals do not hide one another
        places, heights = [x * nudge for _, x, _ in ordered], [value.value for value in values]
        style = {**drawing.line(index), "elinewidth": 0.8}
        axes.errorbar(places, heights, yerr=error_bars(values), label=group[0][0], **style)
    ticks = sorted({x for _, x, _ in points})
    axes.set(xscale="log", xlabel=_SCALES[scale], ylabel=in_words(label))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    if len(found) > 1:
        drawing.legend_below(figure, axes, columns=1)
    rows = [
        {"curve": curve, scale: x, label: value.value, "low": value.low, "high": value.high, "n": value.n}
        for curve, x, value in points
    ]
    return Drawing(figure, rows)
