"""Whether a store holds what was written into it: every file read, every digest checked.

Writes nothing, and imports no torch. Pictures, leases and hidden files are passed over: nothing is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jembench.errors import CheckpointError, SpecError, StoreError
from jembench.files import digest, read_bytes
from jembench.store import records, tensors
from jembench.store.latest import LOG, asked
from jembench.store.outcome import Cell
from jembench.store.store import HISTORY, FitRecord, Store, read_cell_file, read_fit_record

Status = Literal["ok", "damaged", "no digest", "stray"]
"""``no digest``: written by version 0.1, and readable. ``stray``: belongs to nothing that is in the store."""

PASSED_OVER = {"leases", "figures"}
"""Folders of a store that hold nothing that is computed with."""


class Finding(NamedTuple):
    """What is to be said of one file."""

    file: str  # relative to the store
    status: Status
    reason: str = ""


def verify(store: Store) -> list[Finding]:
    """What there is to be said of every file of a store, in the order of their names.

    Raises:
        SpecError: if there is no such folder.
        StoreError: if the store, or one of its folders, cannot be listed.
    """
    if not store.root.is_dir():
        raise SpecError(f"There is no store {store.root}. Give its folder with --store.")
    check = _Check(store)
    parts = {"cells": check.cells, "arrays": check.arrays, "fits": check.fits, "features": check.features}
    found = [finding for part in parts.values() for finding in part()]
    found += [*check.readings(), *check.log()]
    others = (path for path in _list(store.root) if path.name not in {*parts, *PASSED_OVER, "readings", LOG})
    found += [check.finding(path, "stray", "it is no part of a store") for path in others]
    return sorted(found)


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix != ".png" and not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"Cannot read {folder}: {error.strerror}. Choose another --store.") from error


class _Check:
    """Goes through a store, and remembers what later parts are held against."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known_arrays: dict[Path, Cell] = {}
        self.known_readings: set[Path] = set()

    def finding(self, path: Path, status: Status, reason: str = "") -> Finding:
        return Finding(str(path.relative_to(self.store.root)), status, reason)

    def _tried(self, path: Path, check: Callable[..., bool], *arguments: Any) -> Finding:
        """The finding of ``check``, which says whether there was a digest, or raises."""
        try:
            return self.finding(path, "ok" if check(*arguments) else "no digest")
        except (OSError, StoreError, CheckpointError) as error:
            return self.finding(path, "damaged", str(error))

    # --- cells ---

    def cells(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for path in _list(self.store.root / "cells"):
            if path.suffix == ".json":
                yield self._tried(path, self._cell, path, seen)
            else:
                yield self.finding(path, "stray", "it is no cell")

    def _cell(self, path: Path, seen: set[str]) -> bool:
        cell = read_cell_file(path)
        if cell.id in seen:
            raise StoreError(f"It holds the cell {cell.id} a second time.")
        seen.add(cell.id)
        arrays = self.store.arrays_path(cell.id, cell.metric)
        if cell.arrays or (cell.arrays is None and arrays.exists()):
            self.known_arrays[arrays] = cell
        return cell.arrays is not None

    def arrays(self) -> Iterator[Finding]:
        for path in sorted({*_list(self.store.root / "arrays"), *self.known_arrays}):
            if path in self.known_arrays:
                yield self._tried(path, self._arrays, self.known_arrays[path])
            else:
                yield self.finding(path, "stray", "no cell that can be read was written with it")

    def _arrays(self, cell: Cell) -> bool:
        self.store.check_arrays(cell)
        if cell.arrays is None:
            self.store.read_arrays(cell)
        return cell.arrays is not None

    # --- fits ---

    def fits(self) -> Iterator[Finding]:
        for folder in _list(self.store.root / "fits"):
            if not folder.is_dir():
                yield self.finding(folder, "stray", "it is no folder of a trained model")
                continue
            record, fit_id = None, folder.name.rpartition("-")[2]
            path = folder / "fit.json"
            try:
                record = read_fit_record(path, fit_id)
                yield self.finding(path, "ok" if records.read(path).is_sealed else "no digest")
            except FileNotFoundError:
                pass  # the training goes on, or was stopped
            except StoreError as error:
                yield self.finding(path, "damaged", str(error))
            for path in sorted({*_list(folder), *(folder / name for name in (record.files if record else ()))}):
                if path.name != "fit.json":
                    yield self._of_fit(path, fit_id, record)

    def _of_fit(self, path: Path, fit_id: str, record: FitRecord | None) -> Finding:
        written = record.files.get(path.name) if record else None
        if path.name == "interventions.json":
            return self._tried(path, _has_digest, path)
        if path.name == HISTORY:
            return self._tried(path, self._history, path, written)
        if path.suffix != ".safetensors":
            return self.finding(path, "stray", "it is no file of a training")
        return self._tried(path, self._tensors_of_fit, path, fit_id, written)

    def _history(self, path: Path, written: str | None) -> bool:
        return _same(written, digest(path))

    def _tensors_of_fit(self, path: Path, fit_id: str, written: str | None) -> bool:
        seal = _checked(path)
        _same(written, seal.digest)
        if path.name == "model.safetensors":
            self.known_readings.add(self.store.readings_of(fit_id, seal.digest))
        return seal.is_sealed

    # --- the rest ---

    def readings(self) -> Iterator[Finding]:
        for folder in _list(self.store.root / "readings"):
            if folder not in self.known_readings:
                yield self.finding(folder, "stray", "no model in the store has these weights")
                continue
            for path in _list(folder):
                yield self._tried(path, _has_digest, path)

    def features(self) -> Iterator[Finding]:
        for folder in _list(self.store.root / "features"):
            for path in _list(folder):
                if path.suffix in (".json", ".safetensors"):
                    yield self._tried(path, _has_digest, path)
                else:
                    yield self.finding(path, "stray", "it is no file of features")

    def log(self) -> Iterator[Finding]:
        path = self.store.root / LOG
        if path.exists() or path.is_symlink():
            yield self._tried(path, self._log)

    def _log(self) -> bool:
        lines = sum(bool(line) for line in read_bytes(self.store.root / LOG).splitlines())
        if torn := lines - len(asked(self.store)):
            raise StoreError(f"{torn} of {lines} lines cannot be read.")
        return True


def _has_digest(path: Path) -> bool:
    return records.read(path).is_sealed if path.suffix == ".json" else _checked(path).is_sealed


def _checked(path: Path) -> tensors.Seal:
    """Check a file of tensors. One without a digest must be as version 0.1 wrote it: a damaged key would hide one."""
    seal = tensors.check(path)
    if not seal.is_sealed and seal.record and not {"schema", "state"} <= seal.record.keys():
        raise StoreError("It has neither a digest nor the metadata of version 0.1.")
    return seal


def _same(written: str | None, found: str) -> bool:
    if written not in (None, found):
        raise StoreError("It is not the file that the training left.")
    return written is not None
