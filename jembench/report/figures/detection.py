"""Out-of-distribution detection: scores of images, and AUROC of all models.

The histograms are those of Grathwohl et al. (2020), arXiv:1912.03263, Table 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from jembench import drawing
from jembench.report.figures.base import (
    GUIDE,
    Drawing,
    Planned,
    Result,
    error_bars,
    figure_of,
    histograms,
    with_interval,
)
from jembench.report.protocols import without_options
from jembench.report.rows import grouped

_AXES = {
    "log-px": "log p(x) + constant, nats",
    "max-py": "log-odds of max p(y|x)",
    "grad-norm": "-|d log p(x) / dx|",
    "max-logit": "max f(x)",
}


WIDEST = 4
"""The largest number of columns of a grid; ``--models`` and ``--metrics`` select them."""


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan histograms of a model's scores, their grid, and the AUROC of all models."""
    results = [result for result in results if "under" not in result.protocol]
    for group in grouped(results, _of_one_score):
        title = f"{_words(_score(group[0]))}: {group[0].title}"
        yield figure_of(group, f"ood-{_score(group[0])}", densities, title, group)
    for group in grouped(results, _alike):
        if 1 < len({_column(result) for result in group}) <= WIDEST:
            yield figure_of(group, "ood-grid", densities, f"Scores on {group[0].trained_on}", group)
    ranked = [result for result in results if "auroc" in result.values]
    for group in grouped(ranked, lambda result: result.place):
        yield figure_of(group, "auroc", auroc, group)


def _of_one_score(result: Result) -> tuple[object, ...]:
    return result.fit.names, _alike(result), _score(result)


def _alike(result: Result) -> tuple[object, ...]:
    return *result.place, result.protocol.get("data_noise")


def _score(result: Result) -> str:
    score = result.protocol.get("score", "score")
    if "steps" not in result.protocol:
        return score
    return f"{score}-{result.protocol['steps']}"


def _place(score: str) -> int:
    """Return a score's place in the order of figures."""
    return list(_AXES).index(score) if score in _AXES else len(_AXES)


def _words(score: str) -> str:
    """Return a score as a formula, where it has one."""
    return _AXES.get(score, score).partition(" +")[0]


def _sets(results: Sequence[Result]) -> list[str]:
    """Return the set of each result, without its options where the name is unique."""
    full = [result.protocol.get("set", "outliers") for result in results]
    return list(map(without_options(full).__getitem__, full))


def densities(title: str, results: Sequence[Result]) -> Drawing:
    """Draw the scores of outliers over those of the test images, as densities.

    There is a panel for each set, model and score.

    Several models or scores have a column each, the layout of Table 2. With only one, the sets
    stand side by side.
    """
    names = _sets(results)
    by_place = {}
    for name, result in zip(names, results, strict=True):
        by_place[name, _column(result)] = result
    models = list(dict.fromkeys(result.model for result in results))

    def rank(column: tuple[str, str]) -> tuple[int, int]:
        model, score = column
        return models.index(model), _place(score)

    columns = sorted(dict.fromkeys(map(_column, results)), key=rank)
    places = list(itertools.product(dict.fromkeys(names), columns))
    alone = len(columns) == 1
    across = min(3, len(places)) if alone else len(columns)
    height = 0.7 + 1.55 * -(-len(places) // across)
    figure, panels = drawing.panels(title, height, len(places), across)
    rows: list[dict[str, Any]] = []
    for axes, (name, (model, score)) in zip(panels, places, strict=True):
        shown = by_place.get((name, (model, score)))
        if shown is None:  # not measured
            axes.set_axis_off()
            continue
        heading = name if alone else f"{model}, {name}"
        value = shown.values.get("auroc")
        if value:
            number = with_interval(value, 3) if alone else f"{value.value:.3f}"
            heading = f"{heading}\nAUROC {number}"
        axes.set_title(drawing.above(heading, across))
        if axes in panels[-across:]:  # the lowest of each column
            axes.set_xlabel(_AXES.get(score, score))
        axes.locator_params(axis="x", nbins=4)
        arrays = shown.arrays
        samples = {"test images": arrays["inside"], "outliers": arrays["outside"]}
        rows += histograms(axes, samples, model=model, score=score, set=name)
    drawing.legend_below(figure, panels[0], columns=2)
    return Drawing(figure, rows)


def _column(result: Result) -> tuple[str, str]:
    return result.model, _score(result)


def auroc(results: Sequence[Result]) -> Drawing:
    """Draw a panel for each score and a line for each OOD set.

    Each model has a point with its interval.
    """
    names = _sets(results)
    rows = []
    for name, result in zip(names, results, strict=True):
        model, score = _column(result)
        value, low, high = result.values["auroc"][:3]
        about = {"model": model, "score": score, "set": name}
        rows.append({**about, "auroc": value, "low": low, "high": high})
    sets = list(dict.fromkeys(names))
    colours = {result.model: result.colour for result in results}
    scores = sorted(dict.fromkeys(map(_score, results)), key=_place)
    columns = min(3, len(scores))
    height_of_score = 0.55 + 0.16 * len(sets) * max(1.0, 0.5 * len(colours))
    height = 0.85 + -(-len(scores) // columns) * height_of_score
    title = f"AUROC on {results[0].trained_on}: in-distribution is positive"
    figure, panels = drawing.panels(title, height, len(scores), columns, sharey=True)
    for axes, score in zip(panels, scores, strict=True):
        for index, (model, colour) in enumerate(colours.items()):
            shift = 0.6 * ((index + 0.5) / len(colours) - 0.5)
            places, values = [], []
            for name, result in zip(names, results, strict=True):
                if _column(result) == (model, score):
                    places.append(sets.index(name) + shift)
                    values.append(result.values["auroc"])
            style = {**drawing.line(index, colour), "linestyle": "none", "elinewidth": 0.8}
            middles = [value.value for value in values]
            bars = error_bars(values)
            axes.errorbar(middles, places, xerr=bars, label=model, **style)
        axes.axvline(0.5, **GUIDE)
        axes.set(title=_words(score), xlim=(-0.03, 1.03))
        axes.set_ylim(len(sets) - 0.5, -0.5)
        axes.set_yticks(range(len(sets)), sets)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
    for axes in panels[-columns:]:  # the lowest of each column
        axes.set_xlabel("AUROC")
    drawing.legend_below(figure, panels[0], columns=4)
    return Drawing(figure, rows)
