"""A figure, with the numbers that it shows."""

from __future__ import annotations

from collections.abc import Mapping

from jembench.parts import Drawing, new_figure


def draw(values: Mapping[str, float]) -> Drawing:
    """A bar for each model."""
    figure = new_figure(width=3.3, height=2.0, title="Mean probability of the predicted class")
    axes = figure.subplots()
    axes.barh(list(values), list(values.values()))
    axes.set_xlabel("%")
    return Drawing(figure, [{"model": model, "confidence": value} for model, value in values.items()])
