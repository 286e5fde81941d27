"""The energies of data and samples over a training, and where the guard stepped in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jembench import drawing
from jembench.training.guard import HIGHEST, HIGHEST_START

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History = Sequence[Mapping[str, float]]
"""A row for each window of training; what was not measured in it is not in the row."""

_CURVES = {
    "energy_data": ("E(x) of data, mean", "-"),
    "energy_samples": ("E(x) of samples, mean", "--"),
    "joint_energy_data": ("E(x, y) of data, mean", "-"),
    "joint_energy_samples": ("E(x, y) of samples, mean", "--"),
    HIGHEST: ("sample of the highest energy", "-."),
    HIGHEST_START: ("random start of the highest energy", ":"),
}


LINEAR = 10.0
"""nats"""


def energies(title: str, history: History) -> Figure:
    """Draw the energies of a history that has some, abandoned attempts included."""
    figure, (axes,) = drawing.panels(drawing.page(), 3.2, title)
    plot_energies(axes, history)
    drawing.legend_below(figure, axes, columns=2)
    return figure


def curves_in(history: History) -> list[str]:
    """Return the names of the energies that a history holds."""
    return [name for name in _CURVES if any(name in row for row in history)]


def plot_energies(axes: Axes, history: History) -> None:
    """Draw the energies of a history that has some, abandoned attempts included, in the colours of the current style.

    The guard's interventions are numbered lines. The scale is linear within 10 nats, and logarithmic beyond where there
    is anything beyond, so that both training and divergence are seen.
    """
    curves = curves_in(history)
    attempts = sorted({row["attempt"] for row in history})
    for color, name in enumerate(curves):
        label, line = _CURVES[name]
        for attempt in attempts:
            rows = [row for row in history if row["attempt"] == attempt and name in row]
            axes.plot(
                [row["iteration"] for row in rows],
                [row[name] for row in rows],
                color=f"C{color}",
                linestyle=line,
                linewidth=1.2 if name.endswith(("data", "samples")) else 0.8,
                label=label if attempt == attempts[0] else None,
            )
    for number, attempt in enumerate(attempts[1:], 1):  # one for each intervention of the guard
        start = min(row["iteration"] for row in history if row["attempt"] == attempt)
        axes.axvline(start, color="black", linewidth=0.6, linestyle=":")
        axes.text(start, 1.0, str(number), transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=7)
    energies = [row[name] for row in history for name in curves if math.isfinite(row.get(name, math.nan))]
    if max(map(abs, energies), default=0) > LINEAR:
        axes.set_yscale("symlog", linthresh=LINEAR)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(2 * min(-LINEAR / 2, *energies), 2 * max(LINEAR / 2, *energies))
    axes.set_xlabel("iteration")
    axes.set_ylabel("energy, nats")
