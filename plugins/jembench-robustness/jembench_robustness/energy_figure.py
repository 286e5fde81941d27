"""Energies of clean, adversarial and generated images, and the shift by each attack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jembench.report.figures.base import Drawing, Planned, Result, figure_of, rows_of
from jembench_robustness.energy_shift import ATTACKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    "clean": "test images",
    "pgd": "PGD",
    "apgd-t": "APGD-T",
    "cw": "Carlini & Wagner",
    "samples": "samples",
}


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan a figure for each attack, with all models."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        settings = (result.place, result.protocol_without(()))
        groups.setdefault(settings, []).append(result)
    for group in groups.values():
        yield figure_of(group, "energy-shift", draw, group)


def draw(results: Sequence[Result]) -> Drawing:
    """Draw energies and their shifts, a row for each model."""
    from jembench.parts import panels

    protocol = results[0].protocol
    title = (
        f"Energies and their shifts by attacks within {protocol['eps']} ({protocol['norm']}): "
        f"{results[0].trained_on}"
    )
    count = len(results)
    figure, axes = panels(title, 1.35 * count, 2 * count, 2)
    rows: list[dict[str, Any]] = []
    triples = zip(results, axes[::2], axes[1::2], strict=True)
    for result, left, right in triples:
        energies = {}
        for name in NAMES:
            if f"energy-{name}" in result.arrays:
                energies[name] = result.arrays[f"energy-{name}"]
        shifts = {attack: energies["clean"] - energies[attack] for attack in ATTACKS}
        left.set_title(result.model)
        for panel, quantity, arrays in (
            (left, "E(x)", energies),
            (right, "E(x) - E(attacked x)", shifts),
        ):
            named = {NAMES[name]: array for name, array in arrays.items()}
            _boxes(panel, named)
            panel.set_xlabel(f"{quantity}, nats")
            for images, array in named.items():
                columns = {"model": result.model, "quantity": quantity, "images": images}
                rows += rows_of({"value": array}, **columns)
        right.axvline(0, color="black", linewidth=0.5, zorder=0)
    return Drawing(figure, rows)


def _boxes(axes: Axes, arrays: Mapping[str, Any]) -> None:
    """Draw boxes of quartiles, with whiskers from the 5th to the 95th percentile.

    The first array is on top.
    """
    values = list(arrays.values())
    style = {"orientation": "horizontal", "whis": (5, 95), "showfliers": False}
    axes.boxplot(values, tick_labels=list(arrays), **style)
    axes.invert_yaxis()
