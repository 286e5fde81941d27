"""Bring the results of one store into another, which keeps what it has.

A file is copied after its digest was checked, under a temporary name, and after the files that it vouches for: a cell
after its arrays, the record of a fit after its weights. A merge that was interrupted is completed by the next one.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from jembench.errors import CheckpointError, SpecError
from jembench.files import copy
from jembench.store import fits, tensors
from jembench.store.fits import UNREADABLE, FitRecord
from jembench.store.layout import Layout, id_of, listed
from jembench.store.outcome import Cell, encode
from jembench.store.store import Store, read_cell
from jembench.store.walk import Finding, Item, Status, walk_fit

_OTHER = "the target has another result"


def merge(source: Store, target: Store) -> list[Finding]:
    """Copy into ``target`` what it lacks of ``source``: fits and cells with their arrays.

    Predictions and features are not copied: they are computed again where a metric needs them. A fit that is being
    worked on in either store is left alone, unless ``target`` itself holds its lease. Of a fit or a cell that is in
    both and differs, the one of ``target`` is kept, unless it is to be computed again and that of ``source`` is not.

    Returns:
        A finding for each fit and file that was ``copied``, ``kept`` as it is in ``target``, ``damaged`` in ``source``,
        or ``busy``. The merge is complete if all were copied.

    Raises:
        SpecError: if there is no such source.
        StoreError: if a file cannot be written.
    """
    if not source.root.is_dir():
        raise SpecError(f"There is no store {source.root}. Name the folder of a store.")
    target.check_writable()
    work = _Merge(source, target)
    cells = work.lacking_cells()
    folders = {id_of(folder): folder for folder in listed(source.root / "fits") if folder.is_dir()}
    for fit_id in {**folders, **cells}:
        work.merge_fit(fit_id, folders.get(fit_id), cells.get(fit_id, []))
    return work.findings


def merge_stores(source: Path, target: Path) -> list[Finding]:
    """Copy the results of a unit of work, which had a store of its own; return those that could not be copied.

    Predictions, shards of attacks and feature networks are copied too: some units have no other result, and units
    without a GPU read them.

    Raises:
        StoreError: if a file cannot be written.
    """
    found = [one for one in merge(Store(source), Store(target)) if one.status in ("busy", "damaged")]
    for path in sorted(one for part in ("readings", "features") for one in source.glob(f"{part}/*/*.safetensors")):
        name = path.relative_to(source)
        if (target / name).exists():
            continue
        try:
            tensors.check(path)
        except UNREADABLE as error:
            found.append(Finding(str(name), "damaged", str(error)))
        else:
            copy(path, target / name)
    return found


class _Merge:
    """A merge with the findings that it has made so far."""

    def __init__(self, source: Store, target: Store) -> None:
        self.source, self.target = source, target
        self.findings: list[Finding] = []
        self.busy = source.in_work()
        self.there = Layout(target.root)  # of its own: each folder is listed once a merge
        self.other_weights: set[str] = set()  # ids of the fits that differ

    def note(self, path: Path, status: Status, reason: object = "") -> None:
        self.findings.append(Finding(str(path.relative_to(self.source.root)), status, str(reason)))

    def place(self, path: Path) -> Path:
        """Return where a fit or a cell of the source belongs in the target, where it may have another name."""
        return self.there.place(path.parent.name, path.name, listed=True)

    def alone(self, name: str) -> AbstractContextManager[object]:
        """Take the lease of a fit or a cell of the target, unless ``target`` holds it; None if a process does."""
        return nullcontext(True) if self.target.holds(name) else self.target.lease(name)

    # --- fits ---------------------------------------------------------------------------------------------------------

    def merge_fit(self, fit_id: str, folder: Path | None, results: list[Path]) -> None:
        """Copy a fit and its cells, which the target seemed to lack."""
        lacking = folder is not None and self.lacks_fit(folder)
        if not lacking and not results:
            return
        with self.alone(fit_id) as mine:
            if not mine:
                for path in [folder] * lacking + results:
                    assert path is not None
                    self.note(path, "busy", "another process works on this fit in the target")
                return
            if folder and lacking:
                self.copy_fit(folder)
            for path in results:
                if fit_id in self.other_weights:
                    self.note(path, "kept", "it was measured on other weights than those of the target")
                    continue
                with self.alone(id_of(path)) as mine:
                    if mine:
                        self.copy_cell(path)
                    else:
                        self.note(path, "busy", "another process computes it in the target")

    def lacks_fit(self, folder: Path) -> bool:
        """Return whether a fit is to be copied; note why it cannot be."""
        fit_id, there = id_of(folder), self.place(folder)
        try:
            mine = _record(folder)
        except UNREADABLE as error:
            self.note(folder, "damaged", error)
            return False
        with suppress(*UNREADABLE):  # a damaged record is replaced
            theirs = _record(there)
            if theirs and theirs.status != "failed" and (weights := _weights(there)):
                if mine and mine.status != "failed" and weights != _weights(folder):
                    self.other_weights.add(fit_id)
                    self.note(folder, "kept", _OTHER)
                return False
            if theirs and (mine is None or mine.status == "failed"):
                return False
        if mine is None and fit_id in self.busy:
            self.note(folder, "busy", "another process trains it")
            return False
        return mine is not None or fits.age(folder) > fits.age(there)

    def copy_fit(self, folder: Path) -> None:
        """Copy a fit, all files or none; its record, or its newest checkpoint, comes last."""
        there = self.place(folder)
        if not self.lacks_fit(folder):  # it came meanwhile
            return
        try:
            items = [item for item in walk_fit(folder) if item.kind != "stray"]
            for item in items:
                item.check()
        except UNREADABLE as error:
            self.note(folder, "damaged", error)
            return
        for item in sorted(items, key=_order):
            copy(item.path, there / item.path.name)
        self.note(folder, "copied")

    # --- cells --------------------------------------------------------------------------------------------------------

    def lacking_cells(self) -> dict[str, list[Path]]:
        """Return the cells that the target lacks, by the ids of their fits; note those that differ."""
        found: defaultdict[str, list[Path]] = defaultdict(list)
        for path in listed(self.source.root / "cells"):
            if path.suffix != ".json":
                continue
            try:
                cell = read_cell(path)
            except UNREADABLE as error:
                self.note(path, "damaged", error)
                continue
            theirs = self.their_cell(path)
            if theirs is None or _replaces(cell, theirs):
                found[cell.fit.id].append(path)
            elif not _is_same(cell, theirs):
                self.note(path, "kept", _OTHER)
        return found

    def their_cell(self, path: Path) -> Cell | None:
        """Read the cell of that id in the target; return None if it has none that can be read."""
        with suppress(*UNREADABLE):
            return read_cell(self.place(path))
        return None

    def copy_cell(self, path: Path) -> None:
        """Copy a cell after its arrays."""
        try:
            cell, theirs = read_cell(path), self.their_cell(path)
            if theirs and not _replaces(cell, theirs):  # it came meanwhile
                return
            self.source.check_arrays(cell)
        except UNREADABLE as error:
            self.note(path, "damaged", error)
            return
        arrays = self.source.arrays_path(cell)
        if cell.arrays:
            copy(arrays, self.place(arrays))
        copy(path, self.place(path))
        self.note(path, "copied")


# --- what a file says -------------------------------------------------------------------------------------------------


def _record(folder: Path) -> FitRecord | None:
    """Read the record of a fit; return None if it has not been finished."""
    try:
        return fits.read(folder)
    except FileNotFoundError:
        return None


def _order(item: Item) -> tuple[str, int]:
    """Sort the files of a fit: those of the training, checkpoints from the oldest on, and the record."""
    kinds = {"checkpoint": "b", "record": "c"}
    return kinds.get(item.kind, "a"), tensors.age_of(item.path) if item.kind == "checkpoint" else 0


def _weights(folder: Path) -> str:
    """Return what tells the weights of two trainings apart; "" if there are none."""
    with suppress(CheckpointError):
        return fits.weights_digest(folder)
    return ""


def _replaces(cell: Cell, theirs: Cell) -> bool:
    """Return whether the target would compute its own cell again, and this one is better or newer."""
    return not theirs.outcome.is_settled and (cell.outcome.is_settled or _time(cell) > _time(theirs))


def _is_same(cell: Cell, theirs: Cell) -> bool:
    """Return whether two cells say the same, whenever and wherever they were measured."""
    one, other = cell.outcome, theirs.outcome
    same = (one.status, one.protocol, cell.arrays) == (other.status, other.protocol, theirs.arrays)
    return same and encode(one.values) == encode(other.values)


def _time(of: Cell) -> str:
    return str(of.provenance.get("time", ""))
