"""A figure, with the numbers that it shows."""

from __future__ import annotations

from collections.abc import Mapping

from jembench.parts import Drawing, panels


def draw(values: Mapping[str, float]) -> Drawing:
    """A bar for each model."""
    figure, (axes,) = panels("Mean probability of the predicted class", height=2.0)
    axes.barh(list(values), list(values.values()))
    axes.set_xlabel("%")
    return Drawing(
        figure, [{"model": model, "confidence": value} for model, value in values.items()]
    )
