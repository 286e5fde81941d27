"""Whether a store holds what was written into it: every file read, every digest checked.

Writes nothing, and imports no torch. Pictures, leases and hidden files are passed over: nothing is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jembench.errors import CheckpointError, SpecError, StoreError
from jembench.files import digest, read_bytes
from jembench.store import manifest, records, tensors
from jembench.store.latest import EXPERIMENTS, LOG, asked, experiment
from jembench.store.manifest import CARD, MANIFEST
from jembench.store.outcome import Cell
from jembench.store.store import HISTORY, Store, id_of, listed, read_cell_file, read_fit_record

Status = Literal["ok", "damaged", "no digest", "stray", "copied", "kept", "busy"]
"""``no digest``: written by version 0.1, and readable. ``stray``: belongs to nothing in the store. The last three
are said by :func:`jembench.store.merge.merge`.
"""

PASSED_OVER = {"leases", "figures", "works"}
"""Folders of a store that hold nothing that is computed with."""


class Finding(NamedTuple):
    """What is to be said of one file."""

    file: str  #: relative to the store
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
    parts = {
        "cells": check.cells,
        "arrays": check.arrays,
        "fits": check.fits,
        "readings": check.readings,
        "features": check.features,
        EXPERIMENTS: check.experiments,
        LOG: check.log,
        MANIFEST: check.manifest,
    }
    found = [finding for name, part in parts.items() for finding in part(store.root / name)]
    of_bundle = {CARD} if (store.root / MANIFEST).exists() else set()
    others = (path for path in _list(store.root) if path.name not in {*parts, *PASSED_OVER, *of_bundle})
    found += [check.finding(path, "stray", "it is no part of a store") for path in others]
    return sorted(found)


def _list(folder: Path) -> list[Path]:
    return [path for path in listed(folder) if path.suffix != ".png"]


class _Stray(Exception):
    """Why a file belongs to nothing that is in the store."""


class _Check:
    """Goes through a store, and remembers what later parts are held against."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seen: set[str] = set()  # ids of cells
        self.known_arrays: dict[Path, Cell] = {}
        self.known_readings: set[Path] = set()

    def finding(self, path: Path, status: Status, reason: str = "") -> Finding:
        return Finding(str(path.relative_to(self.store.root)), status, reason)

    def _tried(self, check: Callable[..., bool], path: Path, *arguments: Any) -> Finding:
        """The finding of ``check``, which says whether there was a digest, or raises."""
        try:
            return self.finding(path, "ok" if check(path, *arguments) else "no digest")
        except _Stray as reason:
            return self.finding(path, "stray", str(reason))
        except (OSError, StoreError, CheckpointError) as error:
            return self.finding(path, "damaged", str(error))

    # --- cells ---

    def cells(self, folder: Path) -> list[Finding]:
        return [self._tried(self._cell, path) for path in _list(folder)]

    def _cell(self, path: Path) -> bool:
        if path.suffix != ".json":
            raise _Stray("it is no cell")
        cell = read_cell_file(path)
        if cell.id in self.seen:
            raise StoreError(f"It holds the cell {cell.id} a second time.")
        self.seen.add(cell.id)
        arrays = self.store.arrays_path(cell.id, cell.name)
        if cell.arrays or (cell.arrays is None and arrays.exists()):
            self.known_arrays[arrays] = cell
        return cell.arrays is not None

    def arrays(self, folder: Path) -> list[Finding]:
        return [self._tried(self._arrays, path) for path in sorted({*_list(folder), *self.known_arrays})]

    def _arrays(self, path: Path) -> bool:
        if path not in self.known_arrays:
            raise _Stray("no cell that can be read was written with it")
        cell = self.known_arrays[path]
        self.store.check_arrays(cell)
        if cell.arrays is None:
            self.store.read_arrays(cell)
        return cell.arrays is not None

    # --- fits ---

    def fits(self, folder: Path) -> Iterator[Finding]:
        for fit in _list(folder):
            if not fit.is_dir():
                yield self.finding(fit, "stray", "it is no folder of a trained model")
                continue
            fit_id, path = id_of(fit), fit / "fit.json"
            files: dict[str, str] = {}
            if path.exists():  # otherwise the training goes on, or was stopped
                yield self._tried(self._fit, path, fit_id, files)
            for path in sorted({*_list(fit), *(fit / name for name in files)}):
                if path.name != "fit.json":
                    yield self._tried(self._of_fit, path, fit_id, files.get(path.name))

    def _fit(self, path: Path, fit_id: str, files: dict[str, str]) -> bool:
        files.update(read_fit_record(path, fit_id).files)
        return _has_digest(path)

    def _of_fit(self, path: Path, fit_id: str, written: str | None) -> bool:
        if path.name == "interventions.json" or path.name.startswith("tracked-"):
            return _has_digest(path)
        if path.name == HISTORY:
            return _same(written, digest(path))
        if path.suffix != ".safetensors":
            raise _Stray("it is no file of a training")
        seal = _checked(path)
        _same(written, seal.digest)
        if path.name == "model.safetensors":
            self.known_readings.add(self.store.readings_of(fit_id, seal.digest))
        return seal.is_sealed

    # --- the rest ---

    def readings(self, folder: Path) -> Iterator[Finding]:
        for of_model in _list(folder):
            if of_model in self.known_readings:
                yield from (self._tried(_has_digest, path) for path in _list(of_model))
            else:
                yield self.finding(of_model, "stray", "no model in the store has these weights")

    def features(self, folder: Path) -> list[Finding]:
        return [self._tried(_has_digest, path) for network in _list(folder) for path in _list(network)]

    def experiments(self, folder: Path) -> list[Finding]:
        return [self._tried(self._experiment, path) for path in _list(folder)]

    def _experiment(self, path: Path) -> bool:
        if not experiment(self.store, path.name):
            raise StoreError("It is not the file that its name says.")
        return True

    def log(self, path: Path) -> list[Finding]:
        return [self._tried(self._log, path)] if path.exists() or path.is_symlink() else []

    def _log(self, path: Path) -> bool:
        lines = sum(bool(line) for line in read_bytes(path).splitlines())
        if torn := lines - len(asked(self.store)):
            raise StoreError(f"{torn} of {lines} lines cannot be read.")
        return True

    def manifest(self, path: Path) -> list[Finding]:
        return [self._tried(self._manifest, path)] if path.exists() else []

    def _manifest(self, path: Path) -> bool:
        for name, entry in manifest.read(path.parent).files.items():
            if not (path.parent / name).exists() or digest(path.parent / name) != entry.sha256:
                raise StoreError(f"{name} is missing, or is not the file that was shared.")
        return True


def _has_digest(path: Path) -> bool:
    if path.suffix not in (".json", ".safetensors"):
        raise _Stray("no such file is written there")
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
