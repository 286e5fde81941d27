"""The store: a folder of small files that processes share.

Each file is written whole.

    fits/<slug>-<hash>/     fit.json, history.csv, and model, sampler and checkpoint-* .safetensors
    cells/<slug>-<hash>.json one outcome
    arrays/<slug>-<hash>.npz its per-example values
    readings/               predictions of trained models, which are computed once
    features/               feature networks trained here, and features of images
    works/                  units of work that are not done, and their statuses
    leases/                 names of fits, cells and other things that a process works on

The store never has unfinished files, so that the same command, run again, goes on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jembench import files
from jembench.catalog.spec import slug
from jembench.errors import DamagedError, Fallback, SpecError, StoreError
from jembench.files import write_atomically
from jembench.store import arrays as array_files
from jembench.store import fits, lease, outcome, records
from jembench.store.fits import FitRecord
from jembench.store.layout import PARTS, AnyCell, check_links, id_of, listed
from jembench.store.lease import Held
from jembench.store.outcome import Cell, FitKey
from jembench.store.works import WorkFiles

if TYPE_CHECKING:
    from jembench.store.arrays import Arrays

OF_IMAGES = "of-images"
"""The folder of images' features, beside the folders of feature networks."""

LEASES = "leases"
"""The folder of leases."""


class _Listing(NamedTuple):
    """The content of a folder when it was last listed."""

    changed: int  # the folder's time of change then, in ns
    names: Mapping[str, str]  # by what follows the last hyphen: id and suffix


class Store:
    """Access to one store.

    Raises:
        StoreError: if ``root`` is a file or no path, or has links that lead out of it. Methods that
            write raise it if they cannot.
    """

    def __init__(self, root: Path) -> None:
        try:
            is_file = root.exists() and not root.is_dir()
        except (OSError, ValueError) as error:  # the name is too long, or has a null byte
            reason = getattr(error, "strerror", error)
            raise StoreError(f"{str(root)[:80]!r} is no path of a store: {reason}.") from error
        if is_file:
            raise StoreError(
                f"The store {root} is a file, not a folder. Choose another place with --store."
            )
        check_links(root)
        self.root = root
        self.features = root / "features"  # networks trained here, and features of images
        self.leases = root / LEASES
        self.works = WorkFiles(root / "works")
        self._held: dict[str, Held] = {}
        self._listed: dict[str, _Listing] = {}  # by the name of the folder

    def check_exists(self) -> None:
        """Check that the store exists.

        Raises:
            SpecError: if there is no such folder.
        """
        if not self.root.is_dir():
            raise SpecError(f"There is no store {self.root}. Name the folder of a store.")

    def sweep(self) -> None:
        """Remove temporary files and leases of processes that were killed.

        Files and leases of living processes stay.
        """
        files.sweep(self.root, below=False)  # other programs may have folders here
        for folder in (*PARTS, "works"):
            files.sweep(self.root / folder)
        lease.sweep(self.leases)

    # --- places -----------------------------------------------------------------------------------

    def fit_folder(self, key: FitKey) -> Path:
        """Return the folder of a fit."""
        name = slug(f"{key.model}-{key.dataset}-{key.recipe}-s{key.seed}")
        return self.place("fits", f"{name}-{key.id}")

    def cell_path(self, cell: AnyCell, *, listed: bool = False) -> Path:
        """Return the file of a cell's outcome; ``listed`` as for :meth:`place`."""
        return self.place("cells", f"{slug(cell.name)}-{cell.id}.json", listed=listed)

    def arrays_path(self, cell: AnyCell, *, listed: bool = False) -> Path:
        """Return the file of a cell's per-example values.

        The file may be missing.
        """
        return self.place("arrays", f"{slug(cell.name)}-{cell.id}.npz", listed=listed)

    def readings_of(self, fit_id: str, weights: str) -> Path:
        """Return the folder of a model's predictions.

        ``weights`` is the digest of the model's file.
        """
        name = hashlib.sha256(f"{fit_id} {weights}".encode()).hexdigest()[:16]
        return self.root / "readings" / name

    def place(self, part: str, name: str, *, listed: bool = False) -> Path:
        """Return the path of a file by the id in its name.

        In its folder, the text before the id may be another one.

        With ``listed``, an earlier listing of the folder is enough: otherwise each write, which
        changes the folder, would cause a new listing.
        """
        folder = self.root / part
        if (folder / name).exists():
            return folder / name
        listing = self._listed.get(part)
        try:
            if listing is None or not (listed or listing.changed == folder.stat().st_mtime_ns):
                # the time before the listing, so that files that arrive meanwhile cause another one
                changed = folder.stat().st_mtime_ns
                entries = os.listdir(folder)  # noqa: PTH208
                names = {entry.rpartition("-")[2]: entry for entry in entries}
                listing = _Listing(changed, names)
                self._listed[part] = listing
        except OSError:
            return folder / name
        return folder / listing.names.get(name.rpartition("-")[2], name)

    # --- fits -------------------------------------------------------------------------------------

    def read_fit(self, key: FitKey) -> FitRecord | None:
        """Read a fit's record; None if it is unfinished.

        A damaged record gives a warning and None: the training goes on from its last checkpoint,
        and writes the record again.

        Raises:
            StoreError: if the record was written by a newer version.
        """
        try:
            return fits.read(self.fit_folder(key))
        except FileNotFoundError:
            return None
        except DamagedError as error:
            warnings.warn(str(error), Fallback, stacklevel=2)
            return None

    def history(self, key: FitKey) -> Path:
        """Return the path of a training's history, if any.

        Raises:
            DamagedError: if the file is not the one that training left.
        """
        path, record = self.fit_folder(key) / fits.HISTORY, self.read_fit(key)
        written = record.files.get(fits.HISTORY) if record else None
        present = "none"
        with suppress(OSError):
            present = files.digest(path)
        if written not in (None, present):
            raise DamagedError(
                f"{path} is not the file that the training left: it was cut short, edited or "
                "removed."
            )
        return path

    def trained(self) -> list[FitRecord]:
        """Return the records of trained fits that can be read.

        Raises:
            StoreError: if the store cannot be listed.
        """
        finished = []
        for folder in listed(self.root / "fits"):
            with suppress(OSError, StoreError):
                record = fits.read(folder)
                if record.status != "failed":
                    finished.append(record)
        return finished

    def is_trained(self, key: FitKey) -> bool:
        """Return whether a fit's training is complete.

        Raises:
            StoreError: if something other than a file lies where its record would be written.
        """
        folder = self.fit_folder(key)
        files.check_place(folder / fits.RECORD)
        record = self.read_fit(key)
        has_weights = all((folder / name).exists() for name in fits.WEIGHTS)
        return record is not None and record.status != "failed" and has_weights

    def write_fit(self, record: FitRecord) -> None:
        """Write a fit's record: from now on the fit is finished.

        Raises:
            StoreError: if the record cannot be written, or the lease of the fit was lost.
        """
        self.check_lease(record.key.id)
        records.write(self.fit_folder(record.key) / fits.RECORD, outcome.encode(record._asdict()))

    # --- cells ------------------------------------------------------------------------------------

    def read_cell(self, cell: AnyCell) -> Cell | None:
        """Read a cell; None if there is none.

        A cell that is damaged, or has damaged arrays, gives a warning and None.

        Raises:
            StoreError: if the cell was written by a newer version.
        """
        try:
            record = read_cell(self.cell_path(cell))
            self.check_arrays(record)
            return record
        except FileNotFoundError:
            return None
        except DamagedError as error:
            warnings.warn(str(error), Fallback, stacklevel=2)
            return None

    def is_settled(self, cell: AnyCell) -> bool:
        """Return whether a cell need not be computed again."""
        record = self.read_cell(cell)
        return record is not None and record.outcome.is_settled

    def write_cell(self, cell: Cell, arrays: Arrays) -> None:
        """Write a cell, its arrays first.

        A cell that can be read is therefore complete.

        Raises:
            StoreError: if a file cannot be written, or the lease of the cell or its fit was lost.
        """
        self.check_lease(cell.id)
        self.check_lease(cell.fit.id)
        if arrays:
            content = array_files.encode(arrays)
            cell = dataclasses.replace(cell, arrays=hashlib.sha256(content).hexdigest())
            write_atomically(self.arrays_path(cell, listed=True), content)
        records.write(self.cell_path(cell, listed=True), outcome.encode(cell))

    def read_arrays(self, cell: Cell) -> Arrays:
        """Read a cell's per-example values; none without a file.

        Raises:
            DamagedError: if the file is not the one that was written with the cell, has objects
                other than plain arrays, or unpacks to more than the limits allow.
        """
        if not cell.arrays:
            return {}
        path = self.arrays_path(cell)
        with _explained(path, cell):
            content = files.read_bytes(path)
            _compare(cell, hashlib.sha256(content).hexdigest())
            return array_files.decode(path, content)

    def check_arrays(self, cell: Cell) -> None:
        """Check that a cell's arrays were written with it.

        Imports no NumPy.

        Raises:
            DamagedError: if they were not.
        """
        if cell.arrays:
            path = self.arrays_path(cell)
            with _explained(path, cell):
                _compare(cell, files.digest(path))

    def cells(self, left_out: Callable[[str], object] = lambda problem: None) -> list[Cell]:
        """Read every cell in the store.

        A file that is not a cell is passed over.

        Args:
            left_out: called with a sentence for each such file.
        """
        by_id: dict[str, Cell] = {}
        for path in listed(self.root / "cells"):
            try:
                if path.suffix != ".json":
                    raise StoreError(f"{path} is not a cell, and is passed over.")
                cell = read_cell(path)
                if cell.id in by_id:
                    raise StoreError(
                        f"{path} holds the cell {cell.id} a second time, and is passed over."
                    )
                by_id[cell.id] = cell
            except FileNotFoundError:
                left_out(f"{path} is gone, or a link to nothing.")
            except StoreError as error:
                left_out(str(error))
        return list(by_id.values())

    # --- leases -----------------------------------------------------------------------------------

    @contextmanager
    def lease(self, name: str) -> Iterator[Held | None]:
        """Hold the right to train a fit or to compute a cell.

        The context gives None if another process holds the right.

        Args:
            name: the id of the fit or of the cell, or the name of another thing that one process at
                a time makes.

        Raises:
            StoreError: if the lease cannot be written.
        """
        with lease.lease(self.leases / f"{name}.json") as held:
            if held is None:
                yield None
                return
            self._held[name] = held
            try:
                yield held
            finally:
                del self._held[name]

    def check_lease(self, name: str) -> None:
        """Check that a lease of this object was not lost.

        Raises:
            StoreError: if it was lost.
        """
        if held := self._held.get(name):
            held.check()


def read_cell(path: Path) -> Cell:
    """Read the cell in a file, which is named after it.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedError: if the cell is damaged, or is not the cell of the file's name.
        StoreError: if the cell was written by a newer version.
    """
    cell = outcome.from_json(records.read(path))
    if cell.id != id_of(path):
        raise DamagedError(
            f"{path} holds the cell {cell.id}, which is not the one of its name. {records.REMEDY}"
        )
    return cell


def _compare(cell: Cell, present: str) -> None:
    if cell.arrays != present:
        raise ValueError("its content does not match the digest in the cell")


@contextmanager
def _explained(path: Path, cell: Cell) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # NumPy raises errors of any type for damaged bytes
        raise DamagedError(
            f"{path} cannot be read ({error}): it was cut short, edited or exchanged. `jembench "
            f"run` computes the cell {cell.id} again."
        ) from error
