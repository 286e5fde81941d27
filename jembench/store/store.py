"""The store: a folder of small files, each written whole, that any number of processes may share.

    fits/<slug>-<hash>/     fit.json, model.safetensors, sampler.safetensors, checkpoint-*.safetensors, history.csv
    cells/<slug>-<hash>.json one outcome
    arrays/<slug>-<hash>.npz its per-example values
    readings/               predictions of trained models, which are computed once
    features/               feature networks made by us
    works/                  units of work that are not done, and how far they are
    leases/                 which process works on what

What a process did not finish is simply not there, so running the same command again goes on.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from jembench import files
from jembench.catalog.spec import slug
from jembench.catalog.validation import Range
from jembench.errors import DamagedError, Fallback, StoreError
from jembench.files import digest, read_bytes, write_bytes
from jembench.interfaces import Stability
from jembench.store import lease, outcome, records
from jembench.store.lease import Held, Holder
from jembench.store.outcome import Cell, FitKey
from jembench.store.records import Record
from jembench.store.works import WorkFiles

if TYPE_CHECKING:
    import numpy as np


PARTS = ("fits", "cells", "arrays", "readings", "features", "figures", "experiments")
"""The folders of a store that hold results."""

WEIGHTS = ("model.safetensors", "sampler.safetensors")
"""The files of a fit's folder with the chosen model and its chains."""

HISTORY = "history.csv"
"""The file of a fit's folder with the losses and energies of its training."""


class FitRecord(NamedTuple):
    """What ``fit.json`` says of a trained model."""

    key: FitKey
    status: Literal["done", "failed"]
    reason: str  # why it failed
    recipe: Mapping[str, Any]  # every field
    iteration: Annotated[int, Range(least=0)]  # that the kept weights are from
    validation_accuracy: float | None
    seconds: float  # spent in training iterations
    iteration_seconds: Sequence[float]  # mean of each logged window but the first
    interventions: Sequence[str]  # what the guard against divergence did, in sentences
    provenance: Mapping[str, Any]
    identity: Mapping[str, Any] = MappingProxyType({})  # what its family is the hash of; {}: of an earlier version
    stability: Stability | None = None  # None: the guard was off, nothing was trained, or an earlier version wrote it
    files: Mapping[str, str] = MappingProxyType({})  # SHA-256 of each file that training left; of version 0.1: unknown


class Contents(NamedTuple):
    """All cells of a store, and what could not be read."""

    cells: list[Cell]
    problems: list[str]  # one sentence a file


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Reading tens of thousands of objects that all stay takes twice as long while Python looks for garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Store:
    """Access to one store.

    Raises:
        StoreError: if the folder is a file, or cannot be written when something is written.
    """

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise StoreError(f"The store {root} is a file, not a folder. Choose another place with --store.")
        self.root = root
        self._listed: dict[str, _Listing] = {}
        self._held: dict[str, Held] = {}

    def check_writable(self) -> None:
        """Fail now rather than after an hour of training.

        Raises:
            StoreError: if nothing can be written here.
        """
        probe = self.root / ".writable"
        write_bytes(probe, b"")
        probe.unlink(missing_ok=True)  # another process may have looked at the same time

    def sweep(self) -> None:
        """Remove temporary files and leases of processes that were killed. Those of living processes stay."""
        # not in the root, which may hold files of other programs
        for folder in (*PARTS, "works"):
            files.sweep(self.root / folder)
        lease.sweep(self._leases)
        for run in self.works.runs():
            if not any(self.leases(run.id)):
                self.works.remove(run.id)

    # --- fits ---------------------------------------------------------------------------------------------------------

    def fit_folder(self, key: FitKey) -> Path:
        """Where a fit lives."""
        return self._place("fits", _fit_name(key), key.id, "")

    def read_fit(self, key: FitKey) -> FitRecord | None:
        """What is known of a fit; None if it has not been finished.

        A record that is torn gives a warning and None: the fit goes on from its last checkpoint and writes it again.

        Raises:
            StoreError: if the record was written by a newer version.
        """
        return _or_none(lambda: read_fit_record(self.fit_folder(key) / "fit.json", key.id))

    def history(self, key: FitKey) -> Path:
        """Where the losses and energies of a fit's training lie, if it has any.

        Raises:
            DamagedError: if the file is not the one that training left.
        """
        path = self.fit_folder(key) / HISTORY
        record = self.read_fit(key)
        try:
            damaged = record and record.files.get(HISTORY, digest(path)) != digest(path)
        except FileNotFoundError:
            damaged = bool(record and HISTORY in record.files)
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror or error}.") from error
        if damaged:
            raise DamagedError(f"{path} is not the file that the training left: it was cut short, edited or removed.")
        return path

    def namesakes(self, keys: Collection[FitKey]) -> dict[FitKey, list[FitRecord]]:
        """For each fit, the finished ones of the same model, dataset, recipe and seed by name, whatever their ids."""
        names = {file_name(_fit_name(key), "") for key in keys}
        by_names = {_names(key): key for key in keys}
        found: dict[FitKey, list[FitRecord]] = {key: [] for key in keys}
        with suppress(StoreError):  # where there cannot be a store, writing raises the error
            for record in self._trained(lambda folder: folder.rpartition("-")[0] + "-" in names):
                if key := by_names.get(_names(record.key)):
                    found[key].append(record)
        return found

    def trained(self) -> list[FitKey]:
        """The fits that have been trained, without those whose record cannot be read."""
        return [record.key for record in self._trained(lambda folder: True)]

    def _trained(self, wanted: Callable[[str], bool]) -> Iterator[FitRecord]:
        for folder in listed(self.root / "fits"):
            if wanted(folder.name):
                with suppress(OSError, StoreError):
                    record = _fit_record(records.read(folder / "fit.json"))
                    if record.status == "done":
                        yield record

    def is_trained(self, key: FitKey) -> bool:
        """Whether nothing of a fit is left to be trained.

        Raises:
            StoreError: if something other than a file lies where its record would be written.
        """
        files.check_place(self.fit_folder(key) / "fit.json")
        record = self.read_fit(key)
        return record is not None and record.status == "done" and self.has_weights(key)

    def has_weights(self, key: FitKey) -> bool:
        """Whether a model, and its chains, have been chosen and written."""
        return all((self.fit_folder(key) / name).exists() for name in WEIGHTS)

    def write_fit(self, record: FitRecord) -> None:
        """Write a fit's record: from now on the fit is finished.

        Raises:
            StoreError: if it cannot be written, or the lease of the fit was lost.
        """
        self.check_lease(record.key.id)
        records.write(self.fit_folder(record.key) / "fit.json", outcome.encode(record._asdict()))

    # --- cells --------------------------------------------------------------------------------------------------------

    def cell_path(self, cell_id: str, name: str) -> Path:
        """Where a cell's outcome lies; ``name`` is for human eyes."""
        return self._place("cells", name, cell_id, ".json")

    def read_cell(self, cell_id: str, name: str) -> Cell | None:
        """A cell's outcome, or None. One that is damaged, or whose arrays are, gives a warning and None.

        Raises:
            StoreError: if it was written by a newer version.
        """

        def read() -> Cell:
            cell = read_cell_file(self.cell_path(cell_id, name), cell_id)
            self.check_arrays(cell)
            return cell

        return _or_none(read)

    @_without_garbage_collection()
    def read_cells(self, wanted: Iterable[tuple[str, str]]) -> list[Cell]:
        """The outcomes that there are of some cells, given by their ids and names; each file is read once.

        Raises:
            StoreError: as :meth:`read_cell`.
        """
        return [cell for cell_id, name in wanted if (cell := self.read_cell(cell_id, name))]

    def is_settled(self, cell_id: str, name: str) -> bool:
        """Whether a cell need not be computed again."""
        cell = self.read_cell(cell_id, name)
        return cell is not None and cell.outcome.is_settled

    def write_cell(self, cell: Cell, name: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Write a cell, its arrays first: a cell that can be read is complete.

        Raises:
            StoreError: if it cannot be written, or the lease of its fit was lost.
        """
        self.check_lease(cell.id)
        self.check_lease(cell.fit.id)
        if arrays:
            content = _encode_arrays(arrays)
            cell = dataclasses.replace(cell, arrays=hashlib.sha256(content).hexdigest())
            write_bytes(self._place("arrays", name, cell.id, ".npz", listed=True), content)
        records.write(self._place("cells", name, cell.id, ".json", listed=True), outcome.encode(cell))

    def arrays_path(self, cell_id: str, name: str) -> Path:
        """Where a cell's per-example values lie, if it has any."""
        return self._place("arrays", name, cell_id, ".npz")

    def read_arrays(self, cell: Cell) -> dict[str, np.ndarray[Any, Any]]:
        """A cell's per-example values; none, if it was written without.

        Raises:
            DamagedError: if the file is not the one that was written with the cell, or holds other than plain arrays.
        """
        import numpy as np

        path = self.arrays_path(cell.id, cell.name)
        if not cell.arrays and (cell.arrays == "" or not path.exists()):
            return {}
        try:
            content = read_bytes(path)
            _check_arrays(cell, hashlib.sha256(content).hexdigest())
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # numpy checks little: damaged bytes make it raise anything
            raise _damaged_arrays(cell, path, error) from error

    def check_arrays(self, cell: Cell) -> None:
        """Whether the file of a cell's arrays is the one that was written with it; needs no numpy.

        Raises:
            DamagedError: if not.
        """
        path = self.arrays_path(cell.id, cell.name)
        try:
            if cell.arrays:
                _check_arrays(cell, digest(path))
        except (OSError, ValueError) as error:
            raise _damaged_arrays(cell, path, error) from error

    @_without_garbage_collection()
    def contents(self) -> Contents:
        """Every cell in the store. A file that is not a cell is reported and passed over."""
        cells: dict[str, Cell] = {}
        problems: list[str] = []
        for path in listed(self.root / "cells"):
            try:
                if path.suffix != ".json":
                    raise StoreError(f"{path} is not a cell, and is passed over.")
                cell = read_cell_file(path)
                if cell.id in cells:
                    raise StoreError(f"{path} holds the cell {cell.id} a second time, and is passed over.")
                cells[cell.id] = cell
            except FileNotFoundError:
                problems.append(f"{path} is gone, or a link to nothing.")
            except StoreError as error:
                problems.append(str(error))
        return Contents(list(cells.values()), problems)

    def _place(self, folder: str, name: str, identity: str, ending: str, *, listed: bool = False) -> Path:
        """Where something lies: the identity alone decides, for the same thing may have gone by another name.

        ``listed``: a former listing of the folder is enough, because each write changes the folder.
        """
        path = self.root / folder / f"{file_name(name, identity)}{ending}"
        if path.exists():
            return path
        return path.with_name(self._names(path.parent, listed).get(f"{identity}{ending}", path.name))

    def _names(self, folder: Path, listed: bool) -> Mapping[str, str]:
        """The names in a folder by the identities at their ends; listed again when the folder has changed."""
        known = self._listed.get(folder.name)
        try:
            if known is None or not (listed or known.changed == folder.stat().st_mtime_ns):
                changed = folder.stat().st_mtime_ns  # before it is listed: what comes in meanwhile is listed next time
                known = _Listing(changed, {entry.name.rpartition("-")[2]: entry.name for entry in os.scandir(folder)})
                self._listed[folder.name] = known
        except OSError:
            return {}
        return known.names

    # --- the rest -----------------------------------------------------------------------------------------------------

    @property
    def features(self) -> Path:
        """Where feature networks are kept."""
        return self.root / "features"

    def readings_of(self, fit_id: str, weights: str) -> Path:
        """Where it is kept what a trained model said of images; ``weights`` is the digest of its file."""
        return self.root / "readings" / hashlib.sha256(f"{fit_id} {weights}".encode()).hexdigest()[:16]

    @property
    def works(self) -> WorkFiles:
        """The units of work that are not done."""
        return WorkFiles(self.root / "works")

    @contextmanager
    def lease(self, name: str, facts: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Held | None]:
        """Hold the right to train a fit or to compute a cell; gives None while another process holds it.

        Args:
            name: the id of the fit or of the cell, or the name of another thing that one process at a time makes.
            facts: JSON that :meth:`leases` shows.

        Raises:
            StoreError: if the lease cannot be written.
        """
        with lease.lease(self._leases / f"{name}.json", facts) as held:
            if held is None:
                yield None
                return
            self._held[name] = held
            try:
                yield held
            finally:
                del self._held[name]

    def holds(self, name: str) -> bool:
        """Whether this object holds a lease."""
        return name in self._held

    def leases(self, name: str = "*") -> Iterator[Holder]:
        """Who works on what, or on one thing. None is taken; one whose holder is not alive is free."""
        return lease.holders(self._leases, name=name)

    def is_claimed(self, work: str, but_by: str = "") -> bool:
        """Whether a living run, other than that of the id ``but_by``, waits for a unit of work."""
        run = self.works.claimed_by(work)
        return run not in ("", but_by) and any(holder.alive for holder in self.leases(run))

    def check_lease(self, name: str) -> None:
        """Check that a lease that this object gave out has not been lost.

        Raises:
            StoreError: if it has.
        """
        if held := self._held.get(name):
            held.check()

    @property
    def _leases(self) -> Path:
        return self.root / "leases"


Read = TypeVar("Read")


def _or_none(read: Callable[[], Read]) -> Read | None:
    """What is read; None if there is no such file, and with a warning if it is damaged."""
    try:
        return read()
    except FileNotFoundError:
        return None
    except DamagedError as error:
        warnings.warn(str(error), Fallback, stacklevel=3)
        return None


class _Listing(NamedTuple):
    """What a folder held when it was last listed."""

    changed: int  # the folder's own time then, in ns
    names: Mapping[str, str]


def _names(key: FitKey) -> FitKey:
    return dataclasses.replace(key, id="", family="")


def _fit_name(key: FitKey) -> str:
    return f"{key.model}-{key.dataset}-{key.recipe}-s{key.seed}"


def file_name(name: str, identity: str) -> str:
    """A name that a person reads and a program can rely on."""
    return f"{slug(name)}-{identity}"


def listed(folder: Path) -> list[Path]:
    """What a folder of a store holds, by name and without hidden files; nothing if there is no such folder.

    Raises:
        StoreError: if it cannot be listed.
    """
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"Cannot read {folder}: {error.strerror}. Choose another --store.") from error


def id_of(path: Path) -> str:
    """The id at the end of the name of a fit's folder, or of a cell's file or arrays."""
    return path.name.rpartition("-")[2].partition(".")[0]


def read_cell_file(path: Path, cell_id: str = "") -> Cell:
    """The cell in a file, which is named after it; ``cell_id``: the one that it must be.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or of another name.
        StoreError: if it was written by a newer version.
    """
    cell = outcome.from_json(records.read(path))
    if not path.stem.endswith(cell_id or cell.id) or cell.id != (cell_id or cell.id):
        raise DamagedError(f"{path} holds the cell {cell.id}, which is not the one of its name. {records.REMEDY}")
    return cell


def read_fit_record(path: Path, fit_id: str) -> FitRecord:
    """The record of a fit in a file.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or of another fit.
        StoreError: if it was written by a newer version.
    """
    record = _fit_record(records.read(path))
    if record.key.id != fit_id:
        raise DamagedError(f"{path} is the record of the fit {record.key.id}, in the folder of {fit_id}.")
    return record


def _fit_record(record: Record) -> FitRecord:
    read = record.read(FitRecord)
    return read._replace(files={name: digest for name, digest in read.files.items() if Path(name).name == name})


def _check_arrays(cell: Cell, found: str) -> None:
    if cell.arrays not in (None, found):
        raise ValueError("its content does not match the digest in the cell")


def _damaged_arrays(cell: Cell, path: Path, error: BaseException) -> DamagedError:
    return DamagedError(
        f"{path} cannot be read ({error}): it was cut short, edited or exchanged. `jembench run` computes the cell "
        f"{cell.id} again."
    )


def _encode_arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """What ``np.savez_compressed`` writes, for labels of any name, never as a pickle, and without the time of day."""
    from numpy.lib import format as npy

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for label, array in arrays.items():
            entry = zipfile.ZipInfo(f"{label}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
    return stream.getvalue()
