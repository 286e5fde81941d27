"""The status of the units of work of a store that are not done. Imports no torch."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jembench.errors import DamagedError, SpecError
from jembench.store.lease import in_work
from jembench.store.outcome import FitKey
from jembench.store.store import Store


class UnitStatus(NamedTuple):
    """A unit of work that is not done."""

    id: str
    kind: str
    model: str
    dataset: str
    recipe: str
    seed: int
    fit: str  #: the id of the fit
    state: str  #: queued, running, stopped, refused, failed or lost
    worker: str  #: host:pid; "": no worker has started it
    since: float | None  #: start of the worker, UTC in seconds since 1970
    done: int  #: progress, in units of ``counted``
    total: int  #: 0: unknown
    counted: str  #: "iterations", "images"
    text: str  #: the present phase, or the reason why it has ended or not started
    log: str  #: path of the worker's output; "": unknown
    command: str  #: to carry it out by hand


def status(store: str | os.PathLike[str] = "runs") -> list[UnitStatus]:
    """Return the status of all units that are not done, on any machine with access to the store.

    A unit is ``lost`` when its worker has died, which leaves the unit's lease free.

    Args:
        store: the folder.

    Raises:
        SpecError: if there is no such folder.

    Example:
        >>> status(store.store.root)
        []
    """
    place = Store(Path(store))
    place.check_exists()
    statuses = {unit: place.works.status(unit) for unit in place.works.ids()}
    busy = in_work(place.leases)  # read after the statuses, since a worker ends its status before its lease
    units = []
    for unit, at in statuses.items():
        with suppress(SpecError, DamagedError):  # it was done meanwhile, or cannot be read
            record = place.works.read(unit)
            fit = record.read(FitKey, "fit")
            kind, command = str(record.data.get("kind", "")), f"jembench work {unit} --store {place.root}"
            state = "lost" if at.state == "running" and unit not in busy else at.state
            same = {name: getattr(at, name) for name in ("worker", "done", "total", "counted", "text", "log")}
            of_fit = (fit.model, fit.dataset, fit.recipe, fit.seed, fit.id)
            units.append(UnitStatus(unit, kind, *of_fit, state, since=at.since or None, command=command, **same))
    return units
