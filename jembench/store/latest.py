"""Which of the results that go by the same names count: those that were asked for last.

A name can come to mean another thing: code is edited, a default changes. The former results stay in the store, and come
back with what gave them. What each command asks for is a line of ``asked.jsonl`` in the store. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jembench.errors import Fallback, StoreError
from jembench.files import append_line
from jembench.store.outcome import Cell
from jembench.store.store import Store

DATASET = "dataset_id"
"""The key in a cell's provenance of the hash of its dataset's identity, in which the place of its files is no part."""

LOG = "asked.jsonl"
"""The file of a store that says what was asked for."""


class Asked(NamedTuple):
    """What a command asked for: the metrics of some fits, whatever their seeds."""

    time: str  # ISO 8601, UTC
    families: frozenset[str]  # FitKey.family
    metrics: frozenset[str]  # Resolved.id


def newest(cells: Sequence[Cell], log: Iterable[Asked] = ()) -> list[Cell]:
    """Those that count, in their order.

    Never of two codes in one row: of the fits of one name, those of another family than the last are all out of date.

    Args:
        cells: of one store.
        log: what was asked for, the oldest first.
    """
    cells = _of_one_name(cells)
    latest = {(asked.families, asked.metrics): asked for asked in log}
    by_family: dict[str, list[Asked]] = {}
    for asked in latest.values():
        for family in asked.families:
            by_family.setdefault(family, []).append(asked)
    families: dict[tuple[object, ...], _Rank] = {}
    results: dict[tuple[object, ...], _Rank] = {}
    for cell in cells:
        fit, log_of_fit = cell.fit, by_family.get(cell.fit.family, [])
        names = (fit.model, fit.dataset, fit.recipe)
        _rank(families, names, fit.family, cell, log_of_fit)
        of_cell = [asked for asked in log_of_fit if _is_for(asked, cell)]
        _rank(
            results, (*names, fit.family, fit.seed, cell.metric, cell.provenance.get("limit")), cell.id, cell, of_cell
        )
    kept = {rank.what for rank in results.values()}
    return [
        cell
        for cell in cells
        if cell.id in kept and families[cell.fit.model, cell.fit.dataset, cell.fit.recipe].what == cell.fit.family
    ]


def _of_one_name(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of one fit and of one dataset under the names that they were last measured by.

    Files may have been moved, or lie in several places.
    """
    fits = _last(cells, lambda cell: cell.fit.id)
    datasets = _last((cell for cell in cells if cell.provenance.get(DATASET)), _dataset)

    def named(cell: Cell) -> Cell:
        fit = fits[cell.fit.id].fit
        if (known := datasets.get(_dataset(cell))) and known.fit.dataset != fit.dataset:
            fit = dataclasses.replace(fit, dataset=known.fit.dataset)
        return cell if cell.fit == fit else dataclasses.replace(cell, fit=fit)

    return list(map(named, cells))


def _dataset(cell: Cell) -> str:
    return str(cell.provenance.get(DATASET, ""))


def _last(cells: Iterable[Cell], key: Callable[[Cell], str]) -> Mapping[str, Cell]:
    """For each key, the cell that was measured last; of those without a time, the first."""
    found: dict[str, Cell] = {}
    for cell in cells:
        known = found.setdefault(key(cell), cell)
        if cell.fit != known.fit and str(cell.provenance.get("time", "")) > str(known.provenance.get("time", "")):
            found[key(cell)] = cell
    return found


class _Rank(NamedTuple):
    asked: str  # when it was asked for or measured, the later of the two
    measured: str
    what: str


def _rank(
    found: dict[tuple[object, ...], _Rank], names: tuple[object, ...], what: str, cell: Cell, log: list[Asked]
) -> None:
    """Keep ``what`` under its names if nothing there is later."""
    measured = str(cell.provenance.get("asked_for") or cell.provenance.get("time", ""))  # asked_for: of version 0.1
    rank = _Rank(max([measured, *(asked.time for asked in log)]), measured, what)
    if names not in found or rank[:2] >= found[names][:2]:
        found[names] = rank


def _is_for(asked: Asked, cell: Cell) -> bool:
    """Whether a command asked for this cell's metric; a cell of version 0.1 does not say which code of it gave it."""
    metric = cell.provenance.get("metric_id")
    return metric is None or str(metric) in asked.metrics


# --- the log ----------------------------------------------------------------------------------------------------------


def asked(store: Store) -> list[Asked]:
    """What was asked for in a store, the oldest first. Lines that are torn or in another form are ignored."""
    path = _log(store)
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [found for line in lines if (found := _parsed(line))]


def mark_latest(store: Store, families: Collection[str], metrics: Collection[str]) -> None:
    """From now on these results count, where others of their names did.

    A store that cannot be written is left as it is, with a warning.
    """
    if not store.root.is_dir():
        return
    wanted = Asked(datetime.datetime.now(datetime.UTC).isoformat(), frozenset(families), frozenset(metrics))
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


def _measured_since(store: Store) -> bool:
    """Whether outcomes were written after the last line, perhaps by a command that had been asked before."""
    cells = store.root / "cells"
    return cells.exists() and cells.stat().st_mtime_ns > _log(store).stat().st_mtime_ns


def _parsed(line: bytes) -> Asked | None:
    try:
        found = json.loads(line)
        if found.pop("digest") != _digest(found):
            return None
        datetime.datetime.fromisoformat(found["time"])
        return Asked(found["time"], _texts(found["families"]), _texts(found["metrics"]))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line).encode()).hexdigest()[:16]


def _texts(found: list[str]) -> frozenset[str]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise TypeError
    return frozenset(found)
