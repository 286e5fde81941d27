"""Energies of clean, adversarial and generated images of each model, and the shift of each image by each attack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jembench.interfaces import Value
from jembench.parts import Drawing, Planned, panels
from jembench.report.figures.base import Result, figure_of, histograms
from jembench_robustness.energy_shift import ATTACKS

NAMES = {"pgd": "PGD", "apgd-t": "APGD-T", "cw": "Carlini & Wagner"}


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan a figure of the models that were attacked in the same way, on the same images."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        groups.setdefault((result.place, result.protocol_without(())), []).append(result)
    for group in groups.values():
        yield figure_of(group, "energy-shift", draw, group)


def draw(results: Sequence[Result]) -> Drawing:
    """Draw a row for each model: energies of all images at the left, shifts at the right."""
    protocol = results[0].protocol
    title = (
        f"Energies and their shifts by attacks within {protocol['eps']} ({protocol['norm']}): {results[0].trained_on}"
    )
    figure, axes = panels(title, 1.7 * len(results), 2 * len(results), 2)
    rows: list[dict[str, Any]] = []
    for result, left, right in zip(results, axes[::2], axes[1::2], strict=True):
        arrays = {name: array.astype("float64") for name, array in result.arrays.items() if name.startswith("energy-")}
        sets = {"test images": "clean", **{NAMES[attack]: attack for attack in ATTACKS}, "samples": "samples"}
        shown = {label: arrays[f"energy-{name}"] for label, name in sets.items() if f"energy-{name}" in arrays}
        shifts = {NAMES[attack]: arrays["energy-clean"] - arrays[f"energy-{attack}"] for attack in ATTACKS}
        rows += histograms(left, shown, model=result.model, quantity="energy")
        rows += histograms(right, shifts, model=result.model, quantity="shift")
        right.axvline(0, color="black", linewidth=0.5)
        left.set(xlabel="E(x), nats", ylabel="density", title=result.model)
        right.set(xlabel="E(x) - E(attacked x), nats", title="mean shift " + ", ".join(_means(result.values)))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return Drawing(figure, rows)


def _means(values: Mapping[str, Value]) -> list[str]:
    return [f"{values[f'energy-shift-{attack}'].value:+.1f}" for attack in ATTACKS]
