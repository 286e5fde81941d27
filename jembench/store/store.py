"""The store: a folder of small files, each written whole, that any number of processes may share.

    fits/<slug>-<hash>/     fit.json, model.safetensors, sampler.safetensors, checkpoint-*.safetensors, history.csv
    cells/<slug>-<hash>.json one outcome
    arrays/<slug>-<hash>.npz its per-example values
    readings/               predictions of trained models, which are computed once
    features/               feature networks made by us
    works/                  units of work that are not done, and their statuses
    leases/                 fits, cells and others that a process works on

Unfinished files are never there, so running the same command again goes on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jembench import files, limits
from jembench.errors import DamagedError, Fallback, SpecError, StoreError
from jembench.files import write_bytes
from jembench.store import fits, lease, outcome, records
from jembench.store.fits import FitRecord
from jembench.store.layout import PARTS, AnyCell, Layout, id_of, listed
from jembench.store.lease import Held
from jembench.store.outcome import Cell, FitKey
from jembench.store.works import WorkFiles

if TYPE_CHECKING:
    import numpy as np

Read = TypeVar("Read")

LEASES = "leases"
"""The folder of leases."""


class Contents(NamedTuple):
    """All cells of a store, and the files that could not be read."""

    cells: list[Cell]
    problems: list[str]  # one sentence a file


class Store(Layout):
    """Access to one store.

    Raises:
        StoreError: if the folder is a file, or cannot be written when something is written.
    """

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise StoreError(f"The store {root} is a file, not a folder. Choose another place with --store.")
        super().__init__(root)
        self.works = WorkFiles(root / "works")
        self._leases = root / LEASES
        self._held: dict[str, Held] = {}

    def check_exists(self) -> None:
        """Check that the store exists.

        Raises:
            SpecError: if there is no such folder.
        """
        if not self.root.is_dir():
            raise SpecError(f"There is no store {self.root}. Give its folder with --store.")

    def check_writable(self) -> None:
        """Check that files can be written here, before hours of training.

        Raises:
            StoreError: if nothing can be written here.
        """
        probe = self.root / ".writable"
        write_bytes(probe, b"")
        probe.unlink(missing_ok=True)  # another process may have looked at the same time

    def sweep(self) -> None:
        """Remove temporary files and leases of processes that were killed. Those of living processes stay."""
        files.sweep(self.root, below=False)  # its other folders may be of other programs
        for folder in (*PARTS, "works"):
            files.sweep(self.root / folder)
        lease.sweep(self._leases)

    # --- fits ---------------------------------------------------------------------------------------------------------

    def read_fit(self, key: FitKey) -> FitRecord | None:
        """Read the record of a fit; return None if it has not been finished.

        A record that is torn gives a warning and None: the fit goes on from its last checkpoint and writes it again.

        Raises:
            StoreError: if the record was written by a newer version.
        """
        return _or_none(lambda: fits.read(self.fit_folder(key)))

    def history(self, key: FitKey) -> Path:
        """Return the place of the losses and energies of a fit's training, which may have none.

        Raises:
            DamagedError: if the file is not the one that training left.
        """
        path, record = self.fit_folder(key) / fits.HISTORY, self.read_fit(key)
        try:
            found = files.digest(path)
        except FileNotFoundError:
            found = ""
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror or error}.") from error
        if record and record.files.get(fits.HISTORY, found) != found:
            raise DamagedError(f"{path} is not the file that the training left: it was cut short, edited or removed.")
        return path

    def trained(self) -> list[FitRecord]:
        """Return the fits that have been trained, without those whose record cannot be read.

        Raises:
            StoreError: if the store cannot be listed.
        """
        found = []
        for folder in listed(self.root / "fits"):
            with suppress(OSError, StoreError):
                record = fits.read(folder)
                if record.status != "failed":
                    found.append(record)
        return found

    def is_trained(self, key: FitKey) -> bool:
        """Return whether nothing of a fit is left to be trained.

        Raises:
            StoreError: if something other than a file lies where its record would be written.
        """
        files.check_place(self.fit_folder(key) / fits.RECORD)
        record = self.read_fit(key)
        return record is not None and record.status != "failed" and fits.has_weights(self.fit_folder(key))

    def write_fit(self, record: FitRecord) -> None:
        """Write a fit's record: from now on the fit is finished.

        Raises:
            StoreError: if it cannot be written, or the lease of the fit was lost.
        """
        self.check_lease(record.key.id)
        records.write(self.fit_folder(record.key) / fits.RECORD, outcome.encode(record._asdict()))

    # --- cells --------------------------------------------------------------------------------------------------------

    def read_cell(self, cell: AnyCell) -> Cell | None:
        """Read a cell; None if there is none. One that is damaged, or whose arrays are, gives a warning and None.

        Raises:
            StoreError: if it was written by a newer version.
        """

        def read() -> Cell:
            found = read_cell(self.cell_path(cell))
            self.check_arrays(found)
            return found

        return _or_none(read)

    def read_cells(self, wanted: Iterable[AnyCell]) -> list[Cell]:
        """Read the given cells, without those that do not exist.

        Raises:
            StoreError: as :meth:`read_cell`.
        """
        return [found for cell in wanted if (found := self.read_cell(cell))]

    def is_settled(self, cell: AnyCell) -> bool:
        """Return whether a cell need not be computed again."""
        found = self.read_cell(cell)
        return found is not None and found.outcome.is_settled

    def write_cell(self, cell: Cell, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write a cell, its arrays first: a cell that can be read is complete.

        Raises:
            StoreError: if it cannot be written, or the lease of its fit was lost.
        """
        self.check_lease(cell.id)
        self.check_lease(cell.fit.id)
        if arrays:
            content = _encode(arrays)
            cell = dataclasses.replace(cell, arrays=hashlib.sha256(content).hexdigest())
            write_bytes(self.arrays_path(cell, listed=True), content)
        records.write(self.cell_path(cell, listed=True), outcome.encode(cell))

    def read_arrays(self, cell: Cell) -> dict[str, np.ndarray[Any, Any]]:
        """Read the per-example values of a cell; none, if it was written without.

        Raises:
            DamagedError: if the file is not the one that was written with the cell, holds other than plain arrays, or
            unpacks to more than the limits allow.
        """
        import numpy as np

        if not cell.arrays:
            return {}
        path = self.arrays_path(cell)
        with _explained(path, cell):
            content = files.read_bytes(path)
            _compare(cell, hashlib.sha256(content).hexdigest())
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                limits.check_archive(path, archive)
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)

    def check_arrays(self, cell: Cell) -> None:
        """Check that the file of a cell's arrays is the one that was written with it. Imports no NumPy.

        Raises:
            DamagedError: if not.
        """
        if cell.arrays:
            path = self.arrays_path(cell)
            with _explained(path, cell):
                _compare(cell, files.digest(path))

    def contents(self) -> Contents:
        """Read every cell in the store. A file that is not a cell is reported and passed over."""
        found: dict[str, Cell] = {}
        problems: list[str] = []
        for path in listed(self.root / "cells"):
            try:
                if path.suffix != ".json":
                    raise StoreError(f"{path} is not a cell, and is passed over.")
                cell = read_cell(path)
                if cell.id in found:
                    raise StoreError(f"{path} holds the cell {cell.id} a second time, and is passed over.")
                found[cell.id] = cell
            except FileNotFoundError:
                problems.append(f"{path} is gone, or a link to nothing.")
            except StoreError as error:
                problems.append(str(error))
        return Contents(list(found.values()), problems)

    # --- leases -------------------------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, name: str) -> Iterator[Held | None]:
        """Hold the right to train a fit or to compute a cell; gives None while another process holds it.

        Args:
            name: the id of the fit or of the cell, or the name of another thing that one process at a time makes.

        Raises:
            StoreError: if the lease cannot be written.
        """
        with lease.lease(self._leases / f"{name}.json") as held:
            if held is None:
                yield None
                return
            self._held[name] = held
            try:
                yield held
            finally:
                del self._held[name]

    def check_lease(self, name: str) -> None:
        """Check that a lease that this object gave out has not been lost.

        Raises:
            StoreError: if it has.
        """
        if held := self._held.get(name):
            held.check()

    def in_work(self) -> set[str]:
        """Return the names of the leases that living processes hold."""
        return lease.in_work(self._leases)


def read_cell(path: Path) -> Cell:
    """Read the cell in a file, which is named after it.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or of another name.
        StoreError: if it was written by a newer version.
    """
    cell = outcome.from_json(records.read(path))
    if cell.id != id_of(path):
        raise DamagedError(f"{path} holds the cell {cell.id}, which is not the one of its name. {records.REMEDY}")
    return cell


def _encode(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Encode arrays as ``np.savez_compressed`` does, for labels of any name, without a pickle or the time of day.

    They are sorted by label: an attack that is resumed reads its former parts in the order of a file.
    """
    from numpy.lib import format as npy

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for label, array in sorted(arrays.items()):
            entry = zipfile.ZipInfo(f"{label}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
    return stream.getvalue()


def _compare(cell: Cell, found: str) -> None:
    if cell.arrays != found:
        raise ValueError("its content does not match the digest in the cell")


@contextmanager
def _explained(path: Path, cell: Cell) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # numpy checks little: damaged bytes make it raise anything
        raise DamagedError(
            f"{path} cannot be read ({error}): it was cut short, edited or exchanged. `jembench run` computes the cell "
            f"{cell.id} again."
        ) from error


def _or_none(read: Callable[[], Read]) -> Read | None:
    """Return the content of a file; None if there is no such file, and with a warning if it is damaged."""
    try:
        return read()
    except FileNotFoundError:
        return None
    except DamagedError as error:
        warnings.warn(str(error), Fallback, stacklevel=3)
        return None
