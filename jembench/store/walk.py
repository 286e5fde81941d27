"""The walk over a store's files: kinds, owners and checks.

Verification runs the checks, garbage collection removes files without an owner, and a merge copies
files with an owner. A walk writes nothing. Imports no torch.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from jembench.errors import StoreError
from jembench.files import digest
from jembench.store import fits, manifest, pictures, records, tensors
from jembench.store.fits import UNREADABLE
from jembench.store.layout import PARTS, id_of, listed
from jembench.store.lease import in_work
from jembench.store.manifest import CARD, MANIFEST
from jembench.store.outcome import Cell
from jembench.store.store import LEASES, OF_IMAGES, Store, read_cell

T = TypeVar("T")

Check = Callable[[], Any]
"""The check of a file, which raises the error of a damaged file. It returns the content of a cell
or of a record, and None for other files.
"""

Kind = Literal[
    "cell",
    "arrays",
    "record",
    "training",
    "checkpoint",
    "picture",
    "readings",
    "features",
    "other",
    "stray",
]
"""The kind of a file. ``stray``: not from jembench; ``training``: left by a training; ``picture``:
of samples, or any other PNG file.
"""

_HASH = re.compile("[0-9a-f]{16}")
"""The name of a folder of predictions."""


class Item(NamedTuple):
    """A file of a store."""

    path: Path
    kind: Kind
    # id of the fit, or name of what else needs the file; "": nothing needs it
    owner: str
    check: Check


def walk(store: Store) -> Iterator[Item]:
    """Yield every file of a store that can be checked.

    Hidden files, leases, units of work and figures are left out.

    Raises:
        SpecError: if there is no such folder.
        StoreError: if the store, or one of its folders, cannot be listed.
    """
    store.check_exists()
    root = store.root
    arrays = _list(root / "arrays")
    # read between arrays and cells: listed arrays without a cell have a process that writes it
    busy = in_work(store.leases)
    cells: dict[str, Cell | None] = {}  # None: it cannot be read
    for path in _list(root / "cells"):
        yield _cell(path, cells)
    yield from _arrays(store, arrays, cells, is_busy=bool(busy))

    owners: dict[Path, str] = {}  # folder of predictions -> its fit
    is_known = not busy  # True if ``owners`` is complete
    for folder in _list(root / "fits"):
        fit = id_of(folder)
        yield from _fit(store, folder, is_busy=fit in busy)
        try:
            if (folder / fits.WEIGHTS[0]).exists():
                owners[store.readings_of(fit, fits.weights_digest(folder))] = fit
        except UNREADABLE:
            is_known = False
    for folder in _list(root / "readings"):
        owner = owners.get(folder, "" if is_known else folder.name)
        yield from _readings(folder, owner)
    for folder in _list(store.features):
        yield from _features(folder)
    yield from _others(root)


def _readings(folder: Path, owner: str) -> Iterator[Item]:
    paths = [folder]
    if folder.is_dir() and _HASH.fullmatch(folder.name):
        paths = _list(folder)
    for path in paths:
        if path.suffix != ".safetensors":
            yield _stray(path)
        elif owner:
            yield Item(path, "readings", owner, partial(tensors.check, path, placed=True))
        else:
            yield _stray(path, "readings", "no model in the store has these weights")


def _features(folder: Path) -> Iterator[Item]:
    if not folder.is_dir():
        yield _stray(folder)
        return
    for path in _list(folder):
        if path.suffix != ".safetensors":
            yield _stray(path)
        else:
            check = partial(tensors.check, path, placed=folder.name == OF_IMAGES)
            yield Item(path, "features", folder.name, check)


def _others(root: Path) -> Iterator[Item]:
    parts = {*PARTS, LEASES, "works"}
    if (root / MANIFEST).exists():
        parts.add(CARD)
    for path in _list(root):
        if path.name == MANIFEST:
            yield Item(path, "other", "", partial(manifest.check, root))
        elif path.name not in parts:
            yield _stray(path)


def _fit(store: Store, folder: Path, *, is_busy: bool) -> Iterator[Item]:
    """Yield every file in the folder of a fit.

    Missing files that the record of the fit names are included.
    """
    if not folder.is_dir():
        yield _stray(folder)
        return
    fit, present, record = id_of(folder), set(listed(folder)), None
    home = folder / fits.RECORD
    if home in present:  # otherwise training is running, or was stopped
        record, check = _attempt(lambda: fits.read(folder))
        yield Item(home, "record", fit, check)
    written = record.files if record else {}
    has_ended = record is not None and not is_busy and store.is_trained(record.key)
    present.update(folder / name for name in written)
    for path in sorted(present - {home}):
        name = path.name
        if path.suffix == ".png":
            is_sealed = name == pictures.SAMPLES
            looked_at: Check = partial(pictures.check, path) if is_sealed else lambda: None
            yield Item(path, "picture", fit, looked_at)
        elif name not in (fits.HISTORY, fits.INTERVENTIONS) and path.suffix != ".safetensors":
            yield _stray(path)
        elif name.startswith("checkpoint-"):
            whole = partial(tensors.check, path, placed=True)
            yield Item(path, "checkpoint", "" if has_ended else fit, whole)
        else:
            placed = name.startswith("buffer-")
            same = partial(_check_file, path, written.get(name), placed=placed)
            yield Item(path, "training", fit, same)


def _cell(path: Path, cells: dict[str, Cell | None]) -> Item:
    """Read a cell, and add it to ``cells``."""
    if path.suffix != ".json":
        return _stray(path)
    identity = id_of(path)
    if cells.get(identity):
        twice = StoreError(f"It holds the cell {identity} a second time.")
        return Item(path, "cell", "", partial(_fail, twice))
    cell, check = _attempt(lambda: read_cell(path))
    cells[identity] = cell
    return Item(path, "cell", cell.fit.id if cell else identity, check)


def _arrays(
    store: Store, present: list[Path], cells: dict[str, Cell | None], *, is_busy: bool
) -> Iterator[Item]:
    expected = {store.arrays_path(cell): cell for cell in cells.values() if cell and cell.arrays}
    for path in sorted({*present, *expected}):
        if path in expected:
            cell = expected[path]
            yield Item(path, "arrays", cell.fit.id, partial(store.check_arrays, cell))
        elif path.suffix != ".npz":
            yield _stray(path)
        else:
            owner = id_of(path) if is_busy or id_of(path) in cells else ""
            yield _stray(path, "arrays", "no cell that can be read was written with it", owner)


def _list(folder: Path) -> list[Path]:
    return [path for path in listed(folder) if path.suffix != ".png"]


def _attempt(read: Callable[[], T]) -> tuple[T | None, Callable[[], T]]:
    """Read a file, and return its content and a check.

    The content is None if the file cannot be read.
    """
    try:
        content = read()
    except UNREADABLE as error:
        return None, partial(_fail, error)
    return content, lambda: content


# --- checks ---------------------------------------------------------------------------------------


class _Stray(StoreError):
    """The reason why nothing in the store needs a file."""


def _stray(
    path: Path,
    kind: Kind = "stray",
    reason: str = "no such file is written there",
    owner: str = "",
) -> Item:
    return Item(path, kind, owner, partial(_fail, _Stray(reason)))


def _fail(error: Exception) -> NoReturn:
    raise error


def _check_file(path: Path, written: str | None = None, *, placed: bool = False) -> None:
    """Check a training file by its recorded digest."""
    if path.name == fits.INTERVENTIONS:
        records.read(path)
    if path.suffix == ".safetensors":
        present = tensors.check(path, placed=placed).digest
    else:
        present = digest(path)
    if written not in (None, present):
        raise StoreError(f"{path} is not the file that the training left.")


# --- verification ---------------------------------------------------------------------------------


Status = Literal["ok", "damaged", "stray", "copied", "kept", "busy"]
"""``stray``: nothing in the store needs the file. Only merges use the last three."""


class FileFinding(NamedTuple):
    """A file, and its state in the store or in a merge."""

    file: str  #: relative to the store
    status: Status
    reason: str = ""


def verify(store: Store) -> list[FileFinding]:
    """Check every file of a store.

    Files that nothing in the store needs are ``stray``.

    Returns:
        A finding for each file, in the order of their names.

    Raises:
        SpecError: if there is no such folder.
        StoreError: if the store, or one of its folders, cannot be listed.
    """
    findings = []
    for item in walk(store):
        name = str(item.path.relative_to(store.root))
        try:
            item.check()
            findings.append(FileFinding(name, "ok"))
        except _Stray as reason:
            findings.append(FileFinding(name, "stray", str(reason)))
        except UNREADABLE as error:
            findings.append(FileFinding(name, "damaged", str(error)))
    return sorted(findings)
