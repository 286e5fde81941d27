"""The history of a training: a row of means for each window of iterations."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jembench.files import write_atomically
from jembench.store.fits import HISTORY

LOSSES = {
    "loss": "loss",
    "energy_data": "E(data)",
    "energy_samples": "E(samples)",
    "joint_energy_data": "E(data, y)",
    "joint_energy_samples": "E(samples, y)",
}
"""Columns of the history that stand beside the progress, with their labels."""


@dataclass
class Window:
    """The iterations of a window so far, which checkpoints within it keep."""

    rate: float  # the learning rate of the first iteration
    rows: list[dict[str, float]] = field(default_factory=list)  # losses of each iteration
    seconds: float = 0.0

    def means(self) -> dict[str, float]:
        """Return the mean losses."""
        means, count = {}, len(self.rows)
        for name in self.rows[0]:
            means[name] = sum(losses[name] for losses in self.rows) / count
        return means


def in_words(row: Mapping[str, float]) -> str:
    """Return the losses of a row as text."""
    return " ".join(f"{LOSSES[name]} {value:.3f}" for name, value in row.items() if name in LOSSES)


def write(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write the losses and energies of a fit so far as CSV."""
    names = dict.fromkeys(name for row in rows for name in row)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / HISTORY, stream.getvalue().encode())
