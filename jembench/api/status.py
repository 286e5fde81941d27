"""What runs where: the units of work of a store that are not done, and the runs behind them. Imports no torch."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jembench.errors import DamagedError, SpecError
from jembench.interfaces import Event
from jembench.store.outcome import FitKey
from jembench.store.store import Store
from jembench.store.works import Latest

SILENCE = 300.0
"""Seconds without an event after which a worker that holds no lease is taken for dead."""


class UnitStatus(NamedTuple):
    """A unit of work that is not done."""

    id: str
    kind: str
    model: str
    dataset: str
    recipe: str
    seed: int
    fit: str  #: the id of the fit
    state: Literal["queued", "running", "stopped", "refused", "failed", "lost"]
    worker: str  #: host:pid; "": no worker has begun with it
    since: float | None  #: when the worker began, UTC in seconds since 1970
    done: int  #: of what is counted
    total: int  #: 0: nothing is
    counted: str  #: "iterations", "images"
    doing: str  #: what is being done just now, in words: the metric, or the last loss
    reason: str  #: why it ended, or why it has not started
    log: str  #: the file with what the worker printed; "": not known
    command: str  #: that carries it out by hand

    @property
    def progress(self) -> str:
        """Return how far it is, in words."""
        counted = f"{self.done:,} of {self.total:,} {self.counted}" if self.total else ""
        return ", ".join(filter(None, [counted, self.doing]))


class RunStatus(NamedTuple):
    """A run that submitted units of work."""

    id: str
    command: str
    host: str
    pid: int
    since: float  #: UTC, seconds since 1970
    alive: bool
    units: int
    done: int
    failed: int


class Status(NamedTuple):
    """The work of a store that is not done."""

    units: list[UnitStatus]
    runs: list[RunStatus]


def status(store: str | os.PathLike[str] = "runs") -> Status:
    """Return what runs where, seen from any machine that sees the store.

    A unit is ``lost`` when its worker has died: its leases are free, or it holds none and nothing was heard of it for
    five minutes.

    Args:
        store: the folder.

    Raises:
        SpecError: if there is no such folder.

    Example:
        >>> status(store.store.root).units
        []
    """
    place = Store(Path(store))
    place.check_exists()
    alive, leases = place.workers(), place.in_work()
    units = [_unit(place, unit, place.works.latest(unit), alive) for unit in place.works.ids()]
    runs = [
        RunStatus(run.id, run.command, run.host, run.pid, run.time, run.id in leases, run.units, run.done, run.failed)
        for run in place.works.runs()
    ]
    return Status([unit for unit in units if unit], runs)


_NOTHING = Event(kind="queued")
"""In place of an event that has not come."""


def _unit(store: Store, unit: str, latest: Latest, alive: Mapping[str, bool]) -> UnitStatus | None:
    """Return a unit; None if it is done."""
    started, _, progress, last, doing = (event or _NOTHING for event in latest)
    about = _about(store, unit, latest)
    how = str(last.values.get("how", "")) if last.kind == "ended" else ""
    if about is None or how == "done":
        return None
    training = progress if progress.kind == "window" else _NOTHING
    counts = doing if doing.total else training
    loss = f"loss {training.values['loss']:.3f}" if "loss" in training.values else ""
    return UnitStatus(
        id=unit,
        **about,
        state=_state(last, how, started.worker, alive),
        worker=started.worker,
        since=started.time if started.worker else None,
        done=counts.done,
        total=counts.total,
        counted=str(counts.values.get("unit", "iterations")),
        doing=", ".join(filter(None, [progress.metric or doing.metric, loss, doing.text])),
        reason=last.text if how else str(last.values.get("reason", "")) * (last.kind == "queued"),
        log=str(last.values.get("log", "")) if how else "",
        command=f"jembench work {unit} --store {store.root}",
    )


def _about(store: Store, unit: str, latest: Latest) -> dict[str, Any] | None:
    """Return the kind of a unit and its fit; None if it is done by now, or cannot be read."""
    names = {"model": "model", "dataset": "dataset", "recipe": "recipe", "seed": "seed", "fit": "id"}
    if latest.last and all(name in latest.last.fit for name in names.values()):
        return {"kind": latest.last.unit} | {field: latest.last.fit[name] for field, name in names.items()}
    try:
        record = store.works.read(unit)
        fit = record.read(FitKey, "fit")
    except (SpecError, DamagedError):
        return None
    return {"kind": str(record.data.get("kind", ""))} | {field: getattr(fit, name) for field, name in names.items()}


def _state(last: Event, how: str, worker: str, alive: Mapping[str, bool]) -> Any:
    if how:
        return "queued" if how == "busy" else how
    if last.kind == "queued":
        return "queued"
    return "running" if alive.get(worker, time.time() - last.time <= SILENCE) else "lost"
