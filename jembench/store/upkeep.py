"""The contents of a store, and the removal of needless files."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from jembench.files import cannot_write
from jembench.store import fits
from jembench.store.fits import UNREADABLE, FitRecord
from jembench.store.layout import PARTS, id_of, listed
from jembench.store.lease import in_work
from jembench.store.store import Store
from jembench.store.walk import walk

# --- contents -------------------------------------------------------------------------------------


class StoredFit(NamedTuple):
    """A trained model of a store."""

    record: FitRecord
    cells: int
    size: int  # of its folder, in bytes


class Inventory(NamedTuple):
    """The contents of a store."""

    fits: list[StoredFit]
    unfinished: list[str]  # folders of trainings without a readable record
    sizes: dict[str, int]  # of each part of the store, in bytes


def inventory(store: Store) -> Inventory:
    """List a store's trained models and its disk space.

    Raises:
        SpecError: if there is no such folder.
        StoreError: if the store cannot be listed.
    """
    store.check_exists()
    measured = Counter(cell.fit.id for cell in store.cells())
    sizes = {part: _size(store.root / part) for part in PARTS}
    contents = Inventory([], [], sizes)
    for folder in filter(Path.is_dir, listed(store.root / "fits")):
        try:
            record = fits.read(folder)
            contents.fits.append(StoredFit(record, measured[record.key.id], _size(folder)))
        except UNREADABLE:
            contents.unfinished.append(folder.name)
    return contents


def _size(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(place, name).lstat().st_size
    return size


# --- garbage --------------------------------------------------------------------------------------


class Garbage(NamedTuple):
    """A file that is no longer needed."""

    file: str  # relative to the store
    size: int  # in bytes
    reason: str


_REASONS = {
    "checkpoint": "the training has ended",
    "arrays": "no cell has these arrays",
    "readings": "no model in the store has these weights",
}
"""The reasons why files without an owner can be removed, by the kinds of files."""


def garbage(store: Store) -> list[Garbage]:
    """List the files that nothing in the store needs, by name.

    The files are checkpoints of trainings that have ended, arrays without a cell, predictions of
    weights that no model in the store has, and units of work that ended more than a day ago, which
    the next run of their command writes again. While any process works on the store, only
    checkpoints and units are listed, except those on which a process works.

    Raises:
        SpecError: if there is no such folder.
        StoreError: if the store, or one of its folders, cannot be listed.
    """
    reasons: dict[Path, str] = {}
    for item in walk(store):
        if not item.owner and item.kind in _REASONS:
            reasons[item.path] = _REASONS[item.kind]
    for unit in store.works.old(in_work(store.leases)):
        for path in filter(Path.exists, store.works.files(unit)):
            reasons[path] = "the unit ended more than a day ago"

    needless = []
    for path, reason in reasons.items():
        name, size = str(path.relative_to(store.root)), path.lstat().st_size
        needless.append(Garbage(name, size, reason))
    return sorted(needless)


def remove(store: Store, needless: Sequence[Garbage]) -> list[Garbage]:
    """Remove the files that :func:`garbage` has listed just before.

    Temporary files and leases of killed processes are removed too.

    Returns:
        The files that are left, because a process now works on their models.

    Raises:
        StoreError: if a file cannot be removed.
    """
    store.sweep()
    left: list[Garbage] = []
    try:
        for waste in needless:
            path = store.root / waste.file
            of_fit = path.parent.parent == store.root / "fits"
            with store.lease(id_of(path.parent)) if of_fit else nullcontext(True) as free:
                if free:
                    path.unlink(missing_ok=True)
                else:
                    left.append(waste)
            if path.parent.parent == store.root / "readings":
                with suppress(OSError):  # the folder has other files
                    path.parent.rmdir()
    except OSError as error:
        raise cannot_write(Path(error.filename or store.root), error) from error
    return left
