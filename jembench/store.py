"""The store: a folder of small files, each written whole, that any number of processes may share.

    fits/<slug>-<hash>/     fit.json, model.safetensors, sampler.safetensors, checkpoint.safetensors, history.csv
    cells/<slug>-<hash>.json one outcome
    arrays/<slug>-<hash>.npz its per-example values
    features/               feature networks made by us
    leases/                 who works on what

What a process did not finish is simply not there, so running the same command again goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench import outcome
from jembench.errors import StoreError
from jembench.files import read_json, write_atomically, write_json
from jembench.lease import lease
from jembench.outcome import Cell, FitKey
from jembench.spec import slug

if TYPE_CHECKING:
    import numpy as np


class FitRecord(NamedTuple):
    """What ``fit.json`` says of a trained model."""

    key: FitKey
    status: str  # "done" or "failed"
    reason: str  # why it failed
    recipe: Mapping[str, Any]  # every field
    iteration: int  # that the kept weights are from
    validation_accuracy: float | None
    seconds: float  # spent in training iterations
    iteration_seconds: Sequence[float]  # mean of each logged window but the first
    provenance: Mapping[str, Any]


class Contents(NamedTuple):
    """All cells of a store, and what could not be read."""

    cells: list[Cell]
    problems: list[str]  # one sentence a file


class Store:
    """Access to one store.

    Raises:
        StoreError: if the folder is a file, or cannot be written when something is written.
    """

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise StoreError(f"The store {root} is a file, not a folder. Choose another place with --store.")
        self.root = root

    def check_writable(self) -> None:
        """Fail now rather than after an hour of training.

        Raises:
            StoreError: if nothing can be written here.
        """
        probe = self.root / ".writable"
        write_atomically(probe, lambda stream: stream.write(b""))
        probe.unlink()

    # --- fits ---------------------------------------------------------------------------------------------------------

    def fit_folder(self, key: FitKey) -> Path:
        """Where a fit lives."""
        return self.root / "fits" / file_name(f"{key.model}-{key.dataset}-{key.recipe}-s{key.seed}", key.id)

    def read_fit(self, key: FitKey) -> FitRecord | None:
        """What is known of a fit; None if it has not been finished.

        Raises:
            StoreError: if the record is torn or of a newer version.
        """
        path = self.fit_folder(key) / "fit.json"
        if not path.exists():
            return None
        record = read_json(path)
        try:
            if record["schema"] > outcome.SCHEMA:
                raise StoreError(f"{path} was written by a newer jembench. Update jembench, or choose another --store.")
            return FitRecord(
                key=outcome.fit_key_from_json(record["key"], str(path)),
                **{name: record[name] for name in FitRecord._fields if name != "key"},
            )
        except (KeyError, TypeError) as error:
            raise StoreError(
                f"{path} is not the record of a fit ({type(error).__name__}: {error}). Remove the file and run the "
                "same command again; the fit goes on from its last checkpoint."
            ) from error

    def write_fit(self, record: FitRecord) -> None:
        """Write a fit's record: from now on the fit is finished."""
        fields = {**record._asdict(), "key": asdict(record.key), "schema": outcome.SCHEMA}
        write_json(self.fit_folder(record.key) / "fit.json", outcome.encode(fields))

    # --- cells --------------------------------------------------------------------------------------------------------

    def cell_path(self, cell_id: str, name: str) -> Path:
        """Where a cell's outcome lies; ``name`` is for human eyes."""
        return self.root / "cells" / f"{file_name(name, cell_id)}.json"

    def read_cell(self, cell_id: str, name: str) -> Cell | None:
        """A cell's outcome, or None. One that is torn is as good as absent: it will be computed again."""
        path = self.cell_path(cell_id, name)
        if not path.exists():
            return None
        try:
            return outcome.from_json(read_json(path), str(path))
        except StoreError as error:
            if "newer jembench" in str(error):
                raise
            return None

    def is_settled(self, cell_id: str, name: str) -> bool:
        """Whether a cell need not be computed again: it has values, or is N/A for what its model is.

        One that failed, or that waits for something to be installed, is tried again.
        """
        cell = self.read_cell(cell_id, name)
        if cell is None:
            return False
        return cell.outcome.status == "ok" or bool(cell.outcome.details.get("capability"))

    def write_cell(self, cell: Cell, name: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write a cell, its arrays first: a cell that can be read is complete."""
        if arrays:
            import numpy as np

            path = self.root / "arrays" / f"{file_name(name, cell.id)}.npz"
            write_atomically(path, lambda stream: np.savez_compressed(stream, allow_pickle=False, **arrays))
        write_json(self.cell_path(cell.id, name), outcome.to_json(cell))

    def contents(self) -> Contents:
        """Every cell in the store. A file that is not a cell is reported and passed over."""
        cells: list[Cell] = []
        problems: list[str] = []
        for path in self._files("cells"):
            try:
                cells.append(outcome.from_json(read_json(path), str(path)))
            except StoreError as error:
                problems.append(str(error))
        return Contents(cells, problems)

    def _files(self, folder: str) -> Iterable[Path]:
        try:
            return sorted(path for path in (self.root / folder).iterdir() if not path.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"Cannot read the store {self.root}: {error.strerror}. Choose another --store.") from error

    # --- the rest -----------------------------------------------------------------------------------------------------

    @property
    def features(self) -> Path:
        """Where feature networks are kept."""
        return self.root / "features"

    def lease(self, fit_id: str) -> AbstractContextManager[bool]:
        """Hold the right to work on a fit and its cells: gives False while another process holds it."""
        return lease(self.root / "leases" / f"{fit_id}.json")


def file_name(name: str, identity: str) -> str:
    """A name that a person reads and a program can rely on."""
    return f"{slug(name)}-{identity}"
