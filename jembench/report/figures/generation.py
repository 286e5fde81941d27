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
"""The horizontal axes: the name in file names and in the CSV, and the label."""

_NETWORKS = {"model": "the model's", "features": "the feature network's"}
_POOLING = ("one-buffer", "five-buffers", "mean-of-five-buffers")
_SOURCES = {"buffer": "kept chains", "chains": "new chains", "direct": "direct samples"}


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan curves against the share of samples kept, chain steps and network passes.

    A figure against passes is of all models.
    """
    selections = [result for result in results if result.protocol.get("selection") in _NETWORKS]
    selections.sort(key=_selection_rank)
    for group in _peers(selections, "top", "selection", "pooling", "images"):
        points = [(_selection(result), _share(result), result) for result in group]
        yield from curves_over("kept", group[0].title, points)
    new_chains = [result for result in results if result.options.get("source") == "fresh"]
    of_steps = [result for result in new_chains if "steps" in result.options]
    for group in _peers(of_steps, "steps", "source"):
        points = [(result.model, float(result.options["steps"]), result) for result in group]
        yield from curves_over("steps", group[0].title, points)
    whole = [result for result in results if result.protocol.get("selection") not in _NETWORKS]
    for group in grouped(filter(_passes, whole), _without_source):
        points = [(_sampled(result), _passes(result), result) for result in group]
        yield from curves_over("passes", f"all models on {group[0].trained_on}", points)


def _share(result: Result) -> float:
    """Return the share of kept samples, in %."""
    return 100 * float(Fraction(result.protocol["top"]))


def _without_source(result: Result) -> tuple[object, ...]:
    return result.place, result.protocol_without(["source"])


def _passes(result: Result) -> float:
    """Return the network passes of a sample, or 0 if they are not known."""
    return result.cell.outcome.details.get("sample_passes") or 0


def _selection_rank(result: Result) -> tuple[str, int]:
    return result.protocol["selection"], _POOLING.index(result.protocol["pooling"])


def _peers(results: Sequence[Result], *free: str) -> list[list[Result]]:
    """Group results of one model whose protocols differ only in the free parts."""
    return grouped(
        results, lambda result: (result.fit.names, result.place, result.protocol_without(free))
    )


def curves_over(
    scale: str, of: str, points: Sequence[tuple[str, float, Result]]
) -> Iterator[Planned]:
    """Plan a figure of curves for each value of results.

    Args:
        scale: one of the horizontal axes.
        of: the model or models, for the title.
        points: each point's curve, place on the horizontal axis and result.
    """
    if len({x for _, x, _ in points}) < 2:
        return
    colours: dict[str, str] = {}
    values: dict[str, list[tuple[str, float, Value]]] = {}
    for curve, x, result in points:
        if curve.startswith(result.model):
            colours[curve] = result.colour
        for label, value in result.values.items():
            values.setdefault(label, []).append((curve, x, value))
    results = [result for *_, result in points]
    for label, valued in values.items():
        title = f"{in_words(label)} of {of}"
        arguments = (title, label, scale, valued, colours)
        yield figure_of(results, f"{label}-{scale}", curves, *arguments)


def _selection(result: Result) -> str:
    parts = [f"{_NETWORKS[result.protocol['selection']]} confidence"]
    if result.protocol.get("per_class") == "true":
        parts.append("per class")
    parts.append(result.protocol["pooling"].replace("-", " "))
    return ", ".join(parts)


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
        points: each point's curve, place on the horizontal axis and value.
        colours: of the curves of single models.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    beside: dict[float, list[str]] = {}
    rows = []
    for curve, x, value in points:
        beside.setdefault(x, []).append(curve)
        ends = {"low": value.low, "high": value.high, "n": value.n}
        rows.append({"curve": curve, scale: x, label: value.value, **ends})

    of_curves = grouped(points, lambda point: point[0])
    figure, (axes,) = drawing.panels(title, 2.4)
    for index, group in enumerate(of_curves):
        curve = group[0][0]
        places, values = [], []
        for _, x, value in sorted(group, key=lambda point: point[1]):
            # shifted, so that no interval hides another
            names = beside[x]
            shift = names.index(curve) - (len(names) - 1) / 2
            places.append(x * 1.03**shift)
            values.append(value)
        style = {**drawing.line(index, colours.get(curve, "")), "elinewidth": 0.8}
        heights = [value.value for value in values]
        bars = error_bars(values)
        axes.errorbar(places, heights, yerr=bars, label=curve, **style)
    unit = points[0][2].unit
    words = filter(None, (in_words(label), unit))
    axes.set(xscale="log", xlabel=_SCALES[scale])
    axes.set_ylabel(drawing.beside(", ".join(words)))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    if len(of_curves) > 1:
        drawing.legend_below(figure, axes, columns=2)
    return Drawing(figure, rows)
