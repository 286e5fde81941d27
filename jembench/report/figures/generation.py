"""Figures of generation: scores against the share kept, steps and cost.

Tables 3 to 6 of the reproducibility report of Grathwohl et al. (2020), as curves.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from jembench import drawing
from jembench.interfaces import Value
from jembench.report.figures.base import Drawing, Planned, Result, error_bars, figure_of
from jembench.report.headings import in_words
from jembench.report.rows import grouped

_SCALES = {
    "kept": "share of the samples kept, %",
    "steps": "steps of new chains",
    "passes": "network passes of a sample",
    "hours": "hours of training",
}
"""The horizontal axes: the name in the figure's name and in the CSV, and the label."""

_NETWORKS = {"model": "the model's", "features": "the feature network's"}
_POOLING = ("one-buffer", "five-buffers", "mean-of-five-buffers")
_SOURCES = {"buffer": "kept chains", "chains": "new chains", "direct": "direct samples"}


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan curves against the share of samples kept, chain steps and network passes.

    The last ones are of all models.
    """
    selections = [result for result in results if result.protocol.get("selection") in _NETWORKS]
    selections.sort(
        key=lambda result: (
            result.protocol["selection"],
            _POOLING.index(result.protocol["pooling"]),
        )
    )
    for group in _peers(selections, "top", "selection", "pooling", "images"):
        shares = [100 * float(Fraction(result.protocol["top"])) for result in group]
        points = list(zip(map(_selection, group), shares, group, strict=True))
        yield from curves_over("kept", group[0].title, points)
    new_chains = [
        result
        for result in results
        if result.options.get("source") == "fresh" and "steps" in result.options
    ]
    for group in _peers(new_chains, "steps", "source"):
        steps = [(result.model, float(result.options["steps"]), result) for result in group]
        yield from curves_over("steps", group[0].title, steps)
    whole = [result for result in results if result.protocol.get("selection") not in _NETWORKS]
    known = [result for result in whole if result.cell.outcome.details.get("sample_passes")]
    for group in grouped(known, lambda result: (result.place, result.protocol_without(["source"]))):
        passes = [
            (_sampled(result), result.cell.outcome.details["sample_passes"], result)
            for result in group
        ]
        yield from curves_over("passes", f"all models on {group[0].trained_on}", passes)


def _peers(results: Sequence[Result], *free: str) -> list[list[Result]]:
    """Group results of one model whose protocols differ in the free parts alone."""
    return grouped(
        results, lambda result: (result.fit.names, result.place, result.protocol_without(free))
    )


def curves_over(
    scale: str, of: str, points: Sequence[tuple[str, float, Result]]
) -> Iterator[Planned]:
    """Plan the curves of each value of some results.

    Args:
        scale: one of the horizontal axes.
        of: what the values are of, for the title.
        points: the curve, the place on the horizontal axis and the result of each.
    """
    results = [result for *_, result in points]
    colours = {
        curve: result.colour for curve, _, result in points if curve.startswith(result.model)
    }
    if len({x for _, x, _ in points}) > 1:
        for label in dict.fromkeys(label for result in results for label in result.values):
            valued = [
                (curve, x, result.values[label])
                for curve, x, result in points
                if label in result.values
            ]
            yield figure_of(
                results,
                f"{label}-{scale}",
                curves,
                f"{in_words(label)} of {of}",
                label,
                scale,
                valued,
                colours,
            )


def _selection(result: Result) -> str:
    pooling = result.protocol["pooling"].replace("-", " ")
    each = ", per class" if result.protocol.get("per_class") == "true" else ""
    return f"{_NETWORKS[result.protocol['selection']]} confidence{each}, {pooling}"


def _sampled(result: Result) -> str:
    kind = result.protocol.get("source", "").partition(":")[0]
    return f"{result.model}, {_SOURCES.get(kind, 'new chains')}"


def curves(
    title: str,
    label: str,
    scale: str,
    points: Sequence[tuple[str, float, Value]],
    colours: Mapping[str, str],
) -> Drawing:
    """Draw a curve for each name among the points, with intervals.

    The horizontal axis is logarithmic.

    Args:
        title: of the figure.
        label: of the values.
        scale: one of the horizontal axes.
        points: the curve, the place on the horizontal axis and the value of each.
        colours: of the curves that are of one model each.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    found = grouped(points, lambda point: point[0])
    figure, (axes,) = drawing.panels(title, 2.4)
    for index, group in enumerate(found):
        ordered = sorted(group, key=lambda point: point[1])
        values = [value for *_, value in ordered]
        beside = [[curve for curve, other, _ in points if other == x] for _, x, _ in ordered]
        nudges = [1.03 ** (names.index(group[0][0]) - (len(names) - 1) / 2) for names in beside]
        # no interval hides another
        places = [x * nudge for (_, x, _), nudge in zip(ordered, nudges, strict=True)]
        heights = [value.value for value in values]
        style = {**drawing.line(index, colours.get(group[0][0], "")), "elinewidth": 0.8}
        axes.errorbar(places, heights, yerr=error_bars(values), label=group[0][0], **style)
    name = ", ".join(filter(None, (in_words(label), points[0][2].unit)))
    axes.set(xscale="log", xlabel=_SCALES[scale], ylabel=drawing.beside(name))
    axes.xaxis.set(
        major_locator=LogLocator(subs=(1, 2, 5)),
        minor_locator=NullLocator(),
        major_formatter="{x:g}",
    )
    if len(found) > 1:
        drawing.legend_below(figure, axes, columns=2)
    rows = [
        {
            "curve": curve,
            scale: x,
            label: value.value,
            "low": value.low,
            "high": value.high,
            "n": value.n,
        }
        for curve, x, value in points
    ]
    return Drawing(figure, rows)
