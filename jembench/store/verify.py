"""Whether a store holds what was written into it: every file read, every digest checked.

Writes nothing, and imports no torch. Pictures, leases and hidden files are passed over: nothing is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from jembench.errors import StoreError
from jembench.files import digest, read_bytes
from jembench.store import cells, fits, manifest, records, tensors
from jembench.store.fits import UNREADABLE
from jembench.store.latest import EXPERIMENTS, LOG, asked, experiment
from jembench.store.layout import PARTS, id_of, listed
from jembench.store.manifest import CARD, MANIFEST
from jembench.store.outcome import Cell
from jembench.store.store import Store

Status = Literal["ok", "damaged", "stray", "copied", "kept", "busy"]
"""``stray``: belongs to nothing in the store. The last three are said by :func:`jembench.store.merge.merge`."""


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
    store.check_exists()
    found = []
    for path, check in _Files(store).all():
        status, reason = _said(path, check)
        found.append(Finding(str(path.relative_to(store.root)), status, reason))
    return sorted(found)


Check = Callable[[Path], object]
"""Raises what is wrong with a file."""


class _Stray(Exception):
    """Why a file belongs to nothing that is in the store."""


def _said(path: Path, check: Check) -> tuple[Status, str]:
    try:
        check(path)
    except _Stray as reason:
        return "stray", str(reason)
    except UNREADABLE as error:
        return "damaged", str(error)
    return "ok", ""


class _Files:
    """The files of a store with their checks. Some note what later files are held against, so each is run at once."""

    def __init__(self, store: Store) -> None:
        self.store, self.root = store, store.root
        self.seen: set[str] = set()  # ids of cells
        self.known_arrays: dict[Path, Cell] = {}
        self.known_readings: set[Path] = set()

    def all(self) -> Iterator[tuple[Path, Check]]:
        yield from ((path, self.cell) for path in _list(self.root / "cells"))
        yield from ((path, self.arrays) for path in sorted({*_list(self.root / "arrays"), *self.known_arrays}))
        for folder in _list(self.root / "fits"):
            yield from self.of_fit(folder)
        for folder in _list(self.root / "readings"):
            if folder in self.known_readings:
                yield from ((path, _read_digest) for path in _list(folder))
            else:
                yield folder, _stray("no model in the store has these weights")
        for folder in _list(self.root / "features"):
            yield from ((path, _read_digest) for path in _list(folder))
        yield from ((path, self.experiment) for path in _list(self.root / EXPERIMENTS))
        alone = {self.root / LOG: self.log, self.root / MANIFEST: _manifest}
        yield from ((path, check) for path, check in alone.items() if path.exists() or path.is_symlink())
        parts = {*PARTS, "leases", "works", LOG, MANIFEST, *([CARD] if (self.root / MANIFEST).exists() else [])}
        others = (path for path in _list(self.root) if path.name not in parts)
        yield from ((path, _stray("it is no part of a store")) for path in others)

    def cell(self, path: Path) -> None:
        if path.suffix != ".json":
            raise _Stray("it is no cell")
        cell = cells.read(path)
        if cell.id in self.seen:
            raise StoreError(f"It holds the cell {cell.id} a second time.")
        self.seen.add(cell.id)
        arrays = self.store.arrays_path(cell)
        if cell.arrays:
            self.known_arrays[arrays] = cell

    def arrays(self, path: Path) -> None:
        if path not in self.known_arrays:
            raise _Stray("no cell that can be read was written with it")
        self.store.check_arrays(self.known_arrays[path])

    def of_fit(self, folder: Path) -> Iterator[tuple[Path, Check]]:
        if not folder.is_dir():
            yield folder, _stray("it is no folder of a trained model")
            return
        written: dict[str, str] = {}
        record = folder / fits.RECORD
        if record.exists():  # otherwise the training goes on, or was stopped
            yield record, partial(_fit_record, written)
        for path in sorted({*_list(folder), *(folder / name for name in written)} - {record}):
            yield path, partial(self.of_training, written.get(path.name))

    def of_training(self, written: str | None, path: Path) -> None:
        """``written``: the digest in the record of the fit."""
        if path.name == "interventions.json":
            _read_digest(path)
            return
        if path.name == fits.HISTORY:
            _same(written, digest(path))
            return
        if path.suffix != ".safetensors":
            raise _Stray("it is no file of a training")
        seal = _checked(path)
        _same(written, seal.digest)
        if path.name == fits.WEIGHTS[0]:
            self.known_readings.add(self.store.readings_of(id_of(path.parent), seal.digest))

    def experiment(self, path: Path) -> None:
        if not experiment(self.store, path.name):
            raise StoreError("It is not the file that its name says.")

    def log(self, path: Path) -> None:
        lines = sum(bool(line) for line in read_bytes(path).splitlines())
        if torn := lines - len(asked(self.store)):
            raise StoreError(f"{torn} of {lines} lines cannot be read.")


def _list(folder: Path) -> list[Path]:
    return [path for path in listed(folder) if path.suffix != ".png"]


def _stray(reason: str) -> Check:
    def check(path: Path) -> None:
        raise _Stray(reason)

    return check


def _fit_record(written: dict[str, str], path: Path) -> None:
    """Check a record, and note the digests in it."""
    written.update(fits.read(path.parent).files)
    _read_digest(path)


def _manifest(path: Path) -> None:
    for name, entry in manifest.read(path.parent).items():
        if not (path.parent / name).exists() or digest(path.parent / name) != entry.sha256:
            raise StoreError(f"{name} is missing, or is not the file that was shared.")


def _read_digest(path: Path) -> None:
    """Read a file that carries its digest, which is checked."""
    if path.suffix not in (".json", ".safetensors"):
        raise _Stray("no such file is written there")
    if path.suffix == ".json":
        records.read(path)
    else:
        _checked(path)


def _checked(path: Path) -> tensors.Seal:
    seal = tensors.check(path)
    if not seal.is_sealed:
        raise StoreError("It has no digest.")
    return seal


def _same(written: str | None, found: str) -> None:
    if written not in (None, found):
        raise StoreError("It is not the file that the training left.")
