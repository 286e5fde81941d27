"""Merges of stores: the target keeps its own results.

A file is copied under a temporary name after a check of its digest, and after the files whose
digests it has: a cell after its arrays, the record of a fit after its weights. The next merge
completes a merge that was interrupted.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from jembench.errors import CheckpointError
from jembench.files import copy
from jembench.store import fits, tensors
from jembench.store.fits import UNREADABLE, FitRecord
from jembench.store.layout import id_of
from jembench.store.lease import in_work
from jembench.store.outcome import Cell, encode
from jembench.store.store import Store, read_cell
from jembench.store.walk import FileFinding, Item, Status, walk

_OTHER = "the target has another result"

_Unit = list[Item]
"""The files of a fit or of a cell, which are copied together in this order."""


def merge(
    source: Store, target: Store, wanted: Callable[[Item], bool] | None = None
) -> list[FileFinding]:
    """Copy the fits and the cells, with their arrays, that ``target`` lacks.

    A fit on which a process works in either store is left alone. Where both stores have different
    versions of a fit or a cell, the version in ``target`` is kept, unless it would be computed
    again and the version in ``source`` would not.

    Args:
        source: store to copy from.
        target: store to copy into.
        wanted: selects files of fits and cells in ``source``; by default all. Predictions and
            features are not copied: they are computed again where a metric needs them.

    Returns:
        A finding for each fit and cell that was ``copied``, ``kept`` as it is in ``target``,
        ``damaged`` in ``source``, or ``busy``. The merge is complete if all were copied.

    Raises:
        SpecError: if there is no such source.
        StoreError: if a file cannot be written.
    """
    source.check_exists()
    work = _Merge(source, target)
    units: defaultdict[str, _Unit] = defaultdict(list)
    for item in walk(source):
        if not item.owner or item.kind in ("readings", "features"):
            continue
        if wanted is None or wanted(item):
            is_cell = item.kind in ("cell", "arrays")
            units[id_of(item.path if is_cell else item.path.parent)].append(item)
    by_owner: defaultdict[str, list[_Unit]] = defaultdict(list)
    for unit in units.values():
        unit.sort(key=_order)
        if unit[-1].kind != "arrays":  # a process is about to write the cell of such arrays
            by_owner[unit[-1].owner].append(unit)
    for owner, owned in by_owner.items():
        work.merge_owned(owner, sorted(owned, key=_is_fit, reverse=True))  # the fit first
    return work.findings


def _is_fit(unit: _Unit) -> bool:
    return unit[-1].kind != "cell"


class _Merge:
    """A merge with the findings that it has made so far."""

    def __init__(self, source: Store, target: Store) -> None:
        self.source, self.target = source, target
        self.findings: list[FileFinding] = []
        self.busy = in_work(source.leases)
        self.places = Store(target.root)  # another object lists each folder once a merge
        self.other_weights: set[str] = set()  # ids of fits with other weights in the target

    def note(self, unit: _Unit, status: Status, reason: object = "") -> None:
        path = unit[-1].path.parent if _is_fit(unit) else unit[-1].path
        file = str(path.relative_to(self.source.root))
        self.findings.append(FileFinding(file, status, str(reason)))

    def place(self, path: Path) -> Path:
        """Return the path of a file in the target.

        The name of a fit or a cell may differ there.
        """
        part, name, *rest = path.relative_to(self.source.root).parts
        return self.places.place(part, name, listed=True).joinpath(*rest)

    def merge_owned(self, fit: str, units: Sequence[_Unit]) -> None:
        """Copy the parts of a fit that the target lacks."""
        lacking = [unit for unit in units if self.lacks(unit)]
        if not lacking:
            return
        with self.target.lease(fit) as held_fit:
            for unit in lacking:
                if not held_fit:
                    self.note(unit, "busy", "another process works on this fit in the target")
                elif _is_fit(unit):
                    self.merge_unit(unit)
                elif fit in self.other_weights:
                    self.note(
                        unit, "kept", "it was measured on other weights than those of the target"
                    )
                else:
                    with self.target.lease(id_of(unit[-1].path)) as held:
                        if held:
                            self.merge_unit(unit)
                        else:
                            self.note(unit, "busy", "another process computes it in the target")

    def merge_unit(self, unit: _Unit) -> None:
        if self.lacks(unit):  # another process may have written it meanwhile
            self.copy(unit)

    def lacks(self, unit: _Unit) -> bool:
        """Return whether to copy a unit, and note why not."""
        try:
            if _is_fit(unit):
                return self._lacks_fit(unit)
            return self._lacks_cell(unit)
        except UNREADABLE as error:
            self.note(unit, "damaged", error)
        return False

    def _lacks_fit(self, unit: _Unit) -> bool:
        folder = unit[-1].path.parent
        there = self.place(folder)
        record: FitRecord | None = None
        for item in unit:
            if item.kind == "record":
                record = item.check()
        has_ended = record is not None and record.status != "failed"
        with suppress(*UNREADABLE):  # a record that is missing or damaged is replaced
            theirs = fits.read(there)
            if theirs.status != "failed" and (weights := _weights(there)):
                if has_ended and weights != _weights(folder):
                    self.other_weights.add(id_of(folder))
                    self.note(unit, "kept", _OTHER)
                return False
            if not has_ended:
                return False
        if record is None and id_of(folder) in self.busy:
            self.note(unit, "busy", "another process trains it")
            return False
        return record is not None or fits.age(folder) > fits.age(there)

    def _lacks_cell(self, unit: _Unit) -> bool:
        cell: Cell = unit[-1].check()
        with suppress(*UNREADABLE):  # a cell that is missing or damaged is replaced
            theirs = read_cell(self.place(unit[-1].path))
            is_better = cell.outcome.is_settled or cell.time > theirs.time
            # an unsettled cell of the target would be computed again: a better cell replaces it
            if theirs.outcome.is_settled or not is_better:
                if not _is_same(cell, theirs):
                    self.note(unit, "kept", _OTHER)
                return False
        return True

    def copy(self, unit: _Unit) -> None:
        """Copy all files of a unit, or none if one is damaged."""
        try:
            for item in unit:
                item.check()
        except UNREADABLE as error:
            self.note(unit, "damaged", error)
            return
        for item in unit:
            copy(item.path, self.place(item.path))
        self.note(unit, "copied")


# --- contents of files ----------------------------------------------------------------------------


def _order(item: Item) -> tuple[str, int]:
    """Return the sort key of a file in a unit.

    Arrays and files of training come first, then checkpoints by age, then cells and records.
    """
    if item.kind == "checkpoint":
        return "b", tensors.age_of(item.path)
    return ("c" if item.kind in ("record", "cell") else "a"), 0


def _weights(folder: Path) -> str:
    """Return the digest of a fit's weights; "" without weights."""
    with suppress(CheckpointError):
        return fits.weights_digest(folder)
    return ""


def _is_same(cell: Cell, theirs: Cell) -> bool:
    """Return whether two cells have the same outcome and arrays.

    Their provenance may differ.
    """
    a, b = cell.outcome, theirs.outcome
    same = (a.status, a.protocol, cell.arrays) == (b.status, b.protocol, theirs.arrays)
    return same and encode(a.values) == encode(b.values)
