"""What a store has, and what of it nothing needs any more."""

from __future__ import annotations

import datetime
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from jembench.catalog import spec
from jembench.catalog.spec import slug
from jembench.errors import SpecError
from jembench.files import abandoned, cannot_write
from jembench.store import fits
from jembench.store.fits import UNREADABLE
from jembench.store.layout import PARTS, id_of, listed
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import LEASES, Store

_HASH = re.compile("[0-9a-f]{16}")
"""The name of a folder of predictions."""


# --- what there is ----------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A trained model of a store."""

    fit: FitKey
    status: Literal["done", "imported", "failed"]
    iteration: int  # that the weights are from
    cells: int
    size: int  # of its folder, in bytes
    time: str  # of the end of its training, ISO 8601


class Total(NamedTuple):
    """What a folder of a store takes."""

    files: int
    size: int  # in bytes


class Inventory(NamedTuple):
    """What a store has."""

    fits: list[Entry]
    unfinished: list[str]  # folders of trainings without a record that can be read
    totals: dict[str, Total]  # by the folders of a store


def inventory(store: Store) -> Inventory:
    """The trained models of a store, and the space that each kind of file takes.

    Raises:
        SpecError: if there is no such folder.
    """
    store.check_exists()
    measured = Counter(cell.fit.id for cell in store.contents().cells)
    found = Inventory([], [], {part: _size(store.root / part) for part in PARTS})
    for folder in _folders(store.root / "fits"):
        try:
            record, moment = fits.read(folder), (folder / fits.RECORD).stat().st_mtime
            written = datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="seconds")
        except UNREADABLE:
            found.unfinished.append(folder.name)
            continue
        time = str(record.provenance.get("time", written))
        cells = measured[record.key.id]
        found.fits.append(Entry(record.key, record.status, record.iteration, cells, _size(folder).size, time))
    return found


def _size(folder: Path) -> Total:
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append(Path(place, name).lstat().st_size)
    return Total(len(sizes), sum(sizes))


def _folders(folder: Path) -> list[Path]:
    return [path for path in listed(folder) if path.is_dir()]


# --- what is garbage --------------------------------------------------------------------------------------------------


class Garbage(NamedTuple):
    """A file that nothing needs."""

    file: str  # relative to the store
    size: int  # in bytes
    reason: str


def garbage(store: Store) -> list[Garbage]:
    """The files of a store that no result, no training and no later run needs, in the order of their names.

    These are checkpoints of trainings that have ended, arrays without a cell, predictions of weights and features of
    networks that no result in the store is from, and what killed processes left. Units of work stay: they may wait in a
    queue although no process lives. While any process works on the store, only checkpoints are given, and none of the
    models that it works on.

    Raises:
        SpecError: if there is no such folder.
    """
    store.check_exists()
    arrays = list((store.root / "arrays").glob("*.npz"))  # before the leases, and these before the cells
    busy = store.in_work()
    folders = [folder for folder in _folders(store.root / "fits") if id_of(folder) not in busy]
    found = [(path, "the training has ended") for folder in folders for path in _old_checkpoints(folder)]
    if not busy:
        cells = {id_of(path) for path in (store.root / "cells").glob("*.json")}
        found += [(path, "no cell has these arrays") for path in arrays if id_of(path) not in cells]
        found += [(path, "no model in the store has these weights") for path in _old_readings(store, folders)]
        found += [(path, "no result is from this network") for path in _old_features(store)]
        left = [path for part in PARTS for path in abandoned(store.root / part)]
        left += [*abandoned(store.root, below=False), *(store.root / LEASES).glob("*.json")]
        found += [(path, "a killed process left it") for path in left]
    return sorted(Garbage(str(path.relative_to(store.root)), path.lstat().st_size, why) for path, why in found)


def remove(store: Store, found: Iterable[Garbage]) -> list[Garbage]:
    """Remove files that :func:`garbage` has given just before.

    Returns:
        Those that are left, because a process now works on their models.

    Raises:
        StoreError: if a file cannot be removed.
    """
    left = []
    by_folder: defaultdict[Path, list[Garbage]] = defaultdict(list)
    for each in found:
        by_folder[store.root / Path(each.file).parent].append(each)
    try:
        for folder, files in by_folder.items():
            if folder == store.root / LEASES:
                store.sweep()  # a process may hold one by now
                continue
            of_fit = folder.parent == store.root / "fits"
            with store.lease(id_of(folder)) if of_fit else nullcontext(True) as free:
                if free:
                    for each in files:
                        (store.root / each.file).unlink(missing_ok=True)
                else:
                    left += files
            if folder.parent == store.root / "readings":
                with suppress(OSError):  # somebody's file is in it
                    folder.rmdir()
    except OSError as error:
        raise cannot_write(Path(error.filename or store.root), error) from error
    return left


def _old_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a training that has ended with a model: it is never resumed."""
    with suppress(*UNREADABLE):
        if fits.read(folder).status != "failed" and fits.has_weights(folder):
            return fits.checkpoints(folder)
    return []


def _old_readings(store: Store, folders: Iterable[Path]) -> list[Path]:
    try:
        trained = [folder for folder in folders if (folder / fits.WEIGHTS[0]).exists()]
        known = {store.readings_of(id_of(folder), fits.weights_digest(folder)) for folder in trained}
    except UNREADABLE:
        return []  # those of a damaged model cannot be recognised
    unknown = [folder for folder in _folders(store.root / "readings") if folder not in known]
    return [path for folder in unknown if _HASH.fullmatch(folder.name) for path in folder.glob("*.safetensors")]


def _old_features(store: Store) -> list[Path]:
    kept = list((store.features / "of-images").glob("*.safetensors"))
    cells, problems = store.contents() if kept else ([], [])
    networks = set(filter(None, map(_network, cells)))
    return [] if problems else [path for path in kept if path.stem.rpartition("-")[0] not in networks]


def _network(cell: Cell) -> str:
    """The feature network that a cell was measured with, as files of features name it; "" if with none."""
    with suppress(SpecError):
        return slug(dict(spec.parse(cell.outcome.protocol).arguments).get("features", ""))
    return ""
