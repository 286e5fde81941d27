"""Out-of-distribution detection: scores of images, and AUROC of all models.

The histograms are those of Grathwohl et al. (2020), arXiv:1912.03263, Table 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from jembench import drawing
from jembench.report.figures.base import (
    Drawing,
    Planned,
    Result,
    error_bars,
    figure_of,
    histograms,
    with_interval,
)
from jembench.report.headings import without_options
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
    for group in grouped(
        results, lambda result: (result.fit.names, _alike(result), _score(result))
    ):
        title = f"{_words(_score(group[0]))}: {group[0].title}"
        yield figure_of(group, f"ood-{_score(group[0])}", densities, title, group)
    for group in grouped(results, _alike):
        if 1 < len({_column(result) for result in group}) <= WIDEST:
            yield figure_of(group, "ood-grid", densities, f"Scores on {group[0].trained_on}", group)
    ranked = [result for result in results if "auroc" in result.values]
    for group in grouped(ranked, lambda result: result.place):
        yield figure_of(group, "auroc", auroc, group)


def _alike(result: Result) -> tuple[object, ...]:
    return *result.place, result.protocol.get("data_noise")


def _score(result: Result) -> str:
    steps = result.protocol.get("steps")
    return result.protocol.get("score", "score") + (f"-{steps}" if steps else "")


def _place(score: str) -> int:
    """Return the place of a score in the order of figures."""
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

    Several models or scores have a column each, the layout of Table 2; the sets of one of them
    stand side by side.
    """
    of_places = {
        (name, _column(result)): result
        for name, result in zip(_sets(results), results, strict=True)
    }
    sets, models = (
        dict.fromkeys(_sets(results)),
        list(dict.fromkeys(result.model for result in results)),
    )
    columns = sorted(
        {column for _, column in of_places}, key=lambda one: (models.index(one[0]), _place(one[1]))
    )
    places, alone = list(itertools.product(sets, columns)), len(columns) == 1
    across = min(3, len(sets)) if alone else len(columns)
    figure, panels = drawing.panels(
        title, 0.7 + 1.55 * -(-len(places) // across), len(places), across
    )
    rows: list[dict[str, Any]] = []
    for axes, (name, (model, score)) in zip(panels, places, strict=True):
        result = of_places.get((name, (model, score)))
        if result is None:  # not measured
            axes.set_axis_off()
            continue
        value = result.values.get("auroc")
        number = (
            f"AUROC {with_interval(value, 3) if alone else f'{value.value:.3f}'}" if value else ""
        )
        heading = name if alone else f"{model}, {name}"
        axes.set_title(drawing.above(f"{heading}\n{number}", across))
        # the lowest of each column
        axes.set_xlabel(_AXES.get(score, score) if axes in panels[-across:] else "")
        axes.locator_params(axis="x", nbins=4)
        samples = {"test images": result.arrays["inside"], "outliers": result.arrays["outside"]}
        rows += histograms(axes, samples, model=model, score=score, set=name)
    drawing.legend_below(figure, panels[0], columns=2)
    return Drawing(figure, rows)


def _column(result: Result) -> tuple[str, str]:
    return result.model, _score(result)


def auroc(results: Sequence[Result]) -> Drawing:
    """Draw a panel for each score and a line for each OOD set.

    Each model has a point with its interval.
    """
    sets_of = _sets(results)
    found = [
        (one.model, _score(one), name, one.values["auroc"])
        for name, one in zip(sets_of, results, strict=True)
    ]
    title = f"AUROC on {results[0].trained_on}: in-distribution is positive"
    colours, sets = (
        {result.model: result.colour for result in results},
        list(dict.fromkeys(sets_of)),
    )
    models = list(colours)
    scores = list(dict.fromkeys(line[1] for line in found))
    scores.sort(key=_place)
    columns = min(3, len(scores))
    height = 0.85 + -(-len(scores) // columns) * (
        0.55 + 0.16 * len(sets) * max(1.0, 0.5 * len(models))
    )
    figure, axes_of_scores = drawing.panels(title, height, len(scores), columns, sharey=True)
    for axes, score in zip(axes_of_scores, scores, strict=True):
        for index, model in enumerate(models):
            own = [
                (name, value) for of, under, name, value in found if (of, under) == (model, score)
            ]
            shift = 0.6 * ((index + 0.5) / len(models) - 0.5)
            places, values = (
                [sets.index(name) + shift for name, _ in own],
                [value for _, value in own],
            )
            style = {**drawing.line(index, colours[model]), "linestyle": "none", "elinewidth": 0.8}
            axes.errorbar(
                [one.value for one in values], places, xerr=error_bars(values), label=model, **style
            )
        axes.axvline(0.5, color=drawing.BLACK, linewidth=drawing.HAIR, linestyle=":")
        axes.set(title=_words(score), xlim=(-0.03, 1.03), ylim=(len(sets) - 0.5, -0.5))
        axes.set_yticks(range(len(sets)), sets)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
    for axes in axes_of_scores[-columns:]:  # the lowest of each column
        axes.set_xlabel("AUROC")
    drawing.legend_below(figure, axes_of_scores[0], columns=4)
    rows = [
        {
            "model": model,
            "score": score,
            "set": name,
            "auroc": value.value,
            "low": value.low,
            "high": value.high,
        }
        for model, score, name, value in found
    ]
    return Drawing(figure, rows)
