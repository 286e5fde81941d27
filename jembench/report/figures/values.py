"""Figures of values of any metric, by seed and against training hours.

Accuracy is drawn against the hours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from jembench import drawing
from jembench.report.figures.base import Drawing, Planned, Result, figure_of, rows_of
from jembench.report.figures.generation import curves_over
from jembench.report.headings import in_words
from jembench.report.rows import grouped


def seeds(results: Sequence[Result]) -> Iterator[Planned]:
    """Plan a figure for each metric and dataset with a model of several seeds."""
    alike = grouped(
        results,
        lambda one: (one.cell.metric, one.cell.outcome.protocol, one.fit.dataset, one.cell.limit),
    )
    for group in alike:
        if max(map(len, grouped(group, lambda one: one.fit.names))) > 1:
            options = (f"{key} {value}" for key, value in group[0].options.items())
            title = f"{', '.join((in_words(group[0].metric), *options))} on {group[0].dataset}"
            yield figure_of(group, f"seeds-{group[0].metric}", strips, title, group)


def strips(title: str, results: Sequence[Result]) -> Drawing:
    """Draw a panel for each value and a line for each model.

    A line has its seeds from top to bottom, their mean and their standard deviation.
    """
    units = {label: value.unit for result in results for label, value in result.values.items()}
    colours = {result.model: result.colour for result in results}
    models = list(colours)
    columns = min(2, len(units))
    height = 0.45 + -(-len(units) // columns) * (0.6 + 0.42 * len(models))
    figure, panels = drawing.panels(title, height, len(units), columns, sharey=True)
    room, rows = figure.get_figwidth() / drawing.fitting(columns), []
    for axes, (label, unit) in zip(panels, units.items(), strict=True):
        name = ", ".join(filter(None, (in_words(label), unit)))
        for place, model in enumerate(models):
            own = [result for result in results if result.model == model and label in result.values]
            numbers = {result.fit.seed: result.values[label].value for result in own}
            seeds = sorted(numbers)
            values = [numbers[seed] for seed in seeds]
            rows += rows_of({"seed": seeds, "value": values}, label=name, model=model)
            look = drawing.line(place, colours[model]) | {"linestyle": "none"}
            spread = [
                place + 0.5 * ((index + 0.5) / len(values) - 0.5) for index in range(len(values))
            ]
            axes.plot(values, spread, **look, alpha=0.6, markersize=3)
            if len(values) > 1 and all(map(math.isfinite, values)):
                mean, deviation = statistics.mean(values), statistics.stdev(values)
                axes.errorbar(
                    mean,
                    place,
                    xerr=deviation,
                    color=drawing.BLACK,
                    marker="|",
                    markersize=12,
                    capsize=3,
                )
        axes.set_yticks(range(len(models)), [drawing.wrapped(model, 1.3) for model in models])
        axes.set(xlabel=name, ylim=(len(models) - 0.5, -0.5))
        axes.locator_params(axis="x", nbins=5 if room > 2 else 3)
    return Drawing(figure, rows)


def hours(results: Sequence[Result]) -> Iterator[Planned]:
    """Plan the accuracy of all models against the hours of their training on one machine."""
    timed = (one for one in results if "training-hours" in one.values)
    for alike in grouped(timed, lambda one: (one.place, one.cell.outcome.protocol)):
        costs = {one.fit: one.values["training-hours"].value for one in alike}
        trained = [one for one in results if one.metric == "accuracy" and one.fit in costs]
        for group in grouped(trained, lambda one: (one.place, one.cell.outcome.protocol)):
            points = [(one.model, costs[one.fit], one) for one in group]
            yield from curves_over("hours", f"all models on {group[0].trained_on}", points)
