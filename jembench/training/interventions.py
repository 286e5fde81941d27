"""The file in a fit's folder that says what the guard did so far. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jembench.errors import CheckpointError, DamagedError
from jembench.store import records
from jembench.training.guard import Intervention

INTERVENTIONS = "interventions.json"


class _Interventions(NamedTuple):
    interventions: tuple[Intervention, ...]


def write_interventions(folder: Path, interventions: Sequence[Intervention]) -> None:
    """Write what the guard did so far."""
    written = [intervention._asdict() for intervention in interventions]
    records.write(folder / INTERVENTIONS, {"interventions": written})


def read_interventions(folder: Path) -> list[Intervention]:
    """What the guard did so far.

    Raises:
        CheckpointError: if the file is damaged.
    """
    path = folder / INTERVENTIONS
    if not path.exists():
        return []
    try:
        return list(records.read(path).read(_Interventions).interventions)
    except DamagedError as error:
        raise CheckpointError(
            f"{path} is damaged. It says how this training was kept from diverging, and training cannot go on without "
            f"it. Remove the folder {folder} to train the model again. ({error})"
        ) from error
