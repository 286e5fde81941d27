"""Which of several results with the same names is shown: the one that was asked for last.

A name can change its meaning: code is edited, a default changes. The former results stay in the store and count again
once the former code is back. What each command asks for is a line of ``asked.jsonl`` in the store. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jembench.errors import Fallback, StoreError
from jembench.files import append_line
from jembench.store.outcome import Cell
from jembench.store.records import Record
from jembench.store.store import Store

DATASET = "dataset_id"
"""The key in a cell's provenance of the hash of its dataset's identity. It does not depend on where the files lie."""

LOG = "asked.jsonl"
"""The file of a store that says what was asked for."""


class Asked(NamedTuple):
    """What a command asked for: the metrics of some fits, whatever their seeds."""

    time: str  # ISO 8601, UTC
    families: frozenset[str]  # FitKey.family
    metrics: frozenset[str]  # Resolved.id


def newest(cells: Sequence[Cell], log: Iterable[Asked] = ()) -> list[Cell]:
    """The cells that count, in their order.

    Of the fits of one name only the family that was asked for or measured last counts, so that results of two versions
    of some code never stand in one row.

    Args:
        cells: of one store.
        log: what was asked for, the oldest first.
    """
    cells = _of_one_name(cells)
    by_family: defaultdict[str, list[Asked]] = defaultdict(list)
    for asked in {asked[1:]: asked for asked in log}.values():
        for family in asked.families:
            by_family[family].append(asked)

    def fit_rank(cell: Cell) -> _Rank:
        return _rank(cell, by_family[cell.fit.family])

    def rank(cell: Cell) -> _Rank:
        metric = cell.provenance.get("metric_id")
        return _rank(cell, [one for one in by_family[cell.fit.family] if metric in one.metrics])

    families = {cell.fit.names: cell.fit.family for cell in sorted(cells, key=fit_rank)}  # the last of each name counts
    results = {_result(cell): cell.id for cell in sorted(cells, key=rank)}
    return [cell for cell in cells if results[_result(cell)] == cell.id and families[cell.fit.names] == cell.fit.family]


_Rank = tuple[str, str]
"""When a result was asked for or measured, the later of the two; and when it was measured."""


def _rank(cell: Cell, log: Iterable[Asked]) -> _Rank:
    measured = _time(cell)
    return max([measured, *(asked.time for asked in log)]), measured


def _time(cell: Cell) -> str:
    return str(cell.provenance.get("time", ""))


def _result(cell: Cell) -> tuple[object, ...]:
    return *cell.fit.names, cell.fit.family, cell.fit.seed, cell.metric, cell.provenance.get("limit")


def _of_one_name(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of one fit and of one dataset under the names that they were last measured by.

    Files may have been moved, or lie in several places.
    """
    backwards = cells[::-1]  # of equal times the first counts
    by_time = sorted(backwards, key=_time)
    fits = {cell.fit.id: cell.fit for cell in by_time}
    datasets = {_dataset(cell): cell.fit.dataset for cell in by_time if _dataset(cell)}

    def named(cell: Cell) -> Cell:
        fit = fits[cell.fit.id]
        if (known := datasets.get(_dataset(cell))) and known != fit.dataset:
            fit = dataclasses.replace(fit, dataset=known)
        return cell if cell.fit == fit else dataclasses.replace(cell, fit=fit)

    return list(map(named, cells))


def _dataset(cell: Cell) -> str:
    return str(cell.provenance.get(DATASET, ""))


# --- the log ----------------------------------------------------------------------------------------------------------


def asked(store: Store) -> list[Asked]:
    """Return what was asked for in a store, the oldest first. Lines that are torn or in another form are ignored."""
    return sorted((found for line in _lines(store) if (found := _parsed(line))), key=lambda found: found.time)


def copy_log(source: Store, target: Store) -> None:
    """Append the lines that the log of ``target`` lacks. Their times decide, not their order.

    Raises:
        StoreError: if it cannot be written.
    """
    known = set(_lines(target))
    for line in _lines(source):
        if line not in known and _parsed(line):
            append_line(_log(target), line.decode())


def mark_latest(store: Store, families: Collection[str], metrics: Collection[str]) -> None:
    """Let these results count from now on, where others of their names did.

    A store that cannot be written is left as it is, with a warning.

    Args:
        store: that has them.
        families: of the fits.
        metrics: their ids.
    """
    if not store.root.is_dir():
        return
    time = datetime.datetime.now(datetime.UTC).isoformat()
    wanted = Asked(time, frozenset(families), frozenset(metrics))
    known = asked(store)
    if known and known[-1][1:] == wanted[1:] and not _measured_since(store):
        return
    line = {"time": wanted.time, "families": sorted(families), "metrics": sorted(metrics)}
    try:
        append_line(_log(store), json.dumps({**line, "digest": _digest(line)}))
    except StoreError as error:
        warnings.warn(f"{error} `jembench report` shows what was asked for before.", Fallback, stacklevel=2)


def _log(store: Store) -> Path:
    return store.root / LOG


def _lines(store: Store) -> list[bytes]:
    path = _log(store)
    return path.read_bytes().splitlines() if path.is_file() else []


def _measured_since(store: Store) -> bool:
    """Return whether outcomes were written after the last line, perhaps by a command that had been asked before."""
    cells = store.root / "cells"
    return cells.exists() and cells.stat().st_mtime_ns > _log(store).stat().st_mtime_ns


def _parsed(line: bytes) -> Asked | None:
    with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError, StoreError):
        written = json.loads(line)
        if written.pop("digest") == _digest(written):
            datetime.datetime.fromisoformat(written["time"])
            return Record(written, LOG).read(Asked)
    return None


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line).encode()).hexdigest()[:16]
