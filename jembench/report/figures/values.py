"""Figures of values of any metric, by seed and against training hours.

Only accuracy is drawn against the hours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jembench import drawing
from jembench.report.figures.base import Drawing, Planned, Result, figure_of, rows_of
from jembench.report.figures.generation import curves_over
from jembench.report.headings import in_words
from jembench.report.rows import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def seeds(results: Sequence[Result]) -> Iterator[Planned]:
    """Plan a figure for each metric and dataset with a model of several seeds."""
    for group in grouped(results, _alike):
        models = {result.fit.names for result in group}
        if len(models) < len(group):
            first = group[0]
            options = [f"{key} {value}" for key, value in first.options.items()]
            title = f"{', '.join([in_words(first.metric), *options])} on {first.dataset}"
            yield figure_of(group, f"seeds-{first.metric}", strips, title, group)


def _alike(result: Result) -> tuple[object, ...]:
    cell = result.cell
    return cell.metric, cell.outcome.protocol, result.fit.dataset, cell.limit


def strips(title: str, results: Sequence[Result]) -> Drawing:
    """Draw a panel for each value and a line for each model.

    A line has the model's seeds from top to bottom, with mean and standard deviation.
    """
    units: dict[str, str] = {}
    for result in results:
        units |= {label: value.unit for label, value in result.values.items()}
    of_models = grouped(results, lambda result: result.model)
    labels = [drawing.wrapped(group[0].model, 1.3) for group in of_models]
    columns = min(2, len(units))
    height_of_panel = 0.6 + 0.42 * len(labels)
    height = 0.45 + -(-len(units) // columns) * height_of_panel
    figure, panels = drawing.panels(title, height, len(units), columns, sharey=True)
    room = figure.get_figwidth() / drawing.fitting(columns)
    rows = []
    for axes, (label, unit) in zip(panels, units.items(), strict=True):
        name = ", ".join(filter(None, (in_words(label), unit)))
        for place, group in enumerate(of_models):
            by_seed: dict[int, float] = {}
            for result in group:
                if label in result.values:
                    by_seed[result.fit.seed] = result.values[label].value
            seeds = sorted(by_seed)
            values = [by_seed[seed] for seed in seeds]
            model, look = group[0].model, drawing.line(place, group[0].colour)
            rows += rows_of({"seed": seeds, "value": values}, label=name, model=model)
            _draw_seeds(axes, place, values, look)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xlabel(name)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=5 if room > 2 else 3)
    return Drawing(figure, rows)


def _draw_seeds(axes: Axes, place: int, values: Sequence[float], look: dict[str, Any]) -> None:
    """Draw the values of a model in a line, with their mean and standard deviation."""
    count = len(values)
    shares = (np.arange(count) + 0.5) / count - 0.5
    points = {**look, "linestyle": "none", "alpha": 0.6}
    axes.plot(values, place + 0.5 * shares, **points, markersize=3)
    if count > 1 and all(map(math.isfinite, values)):
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        bar: dict[str, Any] = {"color": drawing.BLACK, "marker": "|", "markersize": 12}
        axes.errorbar(mean, place, xerr=deviation, capsize=3, **bar)


def hours(results: Sequence[Result]) -> Iterator[Planned]:
    """Plan the accuracy of all models against the hours of their training on one machine."""
    timed = (result for result in results if "training-hours" in result.values)
    accuracies = [result for result in results if result.metric == "accuracy"]
    for on_machine in grouped(timed, _place_and_protocol):
        costs = {result.fit: result.values["training-hours"].value for result in on_machine}
        trained = [result for result in accuracies if result.fit in costs]
        for group in grouped(trained, _place_and_protocol):
            points = [(result.model, costs[result.fit], result) for result in group]
            yield from curves_over("hours", f"all models on {group[0].trained_on}", points)


def _place_and_protocol(result: Result) -> tuple[object, ...]:
    return result.place, result.cell.outcome.protocol
