"""The status of a store's unfinished units of work. Imports no torch."""

import dataclasses
import os
import time
from contextlib import suppress
from typing import NamedTuple

from jembench.api.stored import opened
from jembench.errors import DamagedError, SpecError
from jembench.experiment.works import Work
from jembench.running.dispatch import is_done
from jembench.store.lease import in_work
from jembench.store.works import OLD, WorkStatus


class UnitStatus(NamedTuple):
    """A unit of work that is not done."""

    id: str
    kind: str
    model: str
    name: str  #: the display name of the model
    dataset: str
    recipe: str
    seed: int
    fit: str  #: the id of the fit
    state: str  #: queued, running, stopped, refused, failed or lost
    worker: str  #: host:pid; "": no worker has started it
    #: start of the worker, or end of a unit that has ended, UTC in seconds since 1970
    since: float | None
    done: int  #: progress, in units of ``counted``
    total: int  #: 0: unknown
    counted: str  #: "iterations", "images"
    text: str  #: the present phase, or the reason why the unit ended or has not started
    log: str  #: path of the worker's output; "": unknown
    command: str  #: of the run, as the user typed it; "": unknown

    @property
    def is_old(self) -> bool:
        """True if the unit ended more than a day ago."""
        return self.state not in ("queued", "running") and time.time() - (self.since or 0) > OLD


def status(store: str | os.PathLike[str] = "runs") -> list[UnitStatus]:
    """Return the status of all units of work that are not done.

    Units may run on any machine with access to the store. A unit is ``lost`` when its worker has
    died, which leaves the unit's lease free.

    Args:
        store: the folder.

    Raises:
        SpecError: if there is no such folder.

    Example:
        >>> status(store.store.root)
        []
    """
    place = opened(store).store
    place.check_exists()
    statuses = {unit: place.works.status(unit) for unit in place.works.ids()}
    # after the statuses, since a worker writes its last status before it frees its lease
    busy = in_work(place.leases)
    units = []
    for unit, latest in statuses.items():
        with suppress(SpecError, DamagedError):  # the unit was done meanwhile, or cannot be read
            work = place.works.read(unit).read(Work)
            if latest.state == "running" and unit not in busy:
                latest = _lost(latest)
            if latest.state in ("queued", "running") or not is_done(work, place):
                units.append(_unit_status(unit, work, latest))
    return units


def _lost(latest: WorkStatus) -> WorkStatus:
    """Return the status of a unit whose worker has died."""
    text = (
        "The process ended without a report, as after SIGKILL or for lack of memory. "
        f"Last: {latest.text}"
    )
    return dataclasses.replace(latest, state="lost", text=text)


def _unit_status(unit: str, work: Work, latest: WorkStatus) -> UnitStatus:
    """Return a unit's work and latest status for users."""
    since = latest.since if latest.state == "running" else latest.time
    return UnitStatus(
        id=unit,
        kind=work.kind,
        model=work.fit.model,
        name=work.display or work.fit.model,
        dataset=work.fit.dataset,
        recipe=work.fit.recipe,
        seed=work.fit.seed,
        fit=work.fit.id,
        state=latest.state,
        worker=latest.worker,
        since=since or None,
        done=latest.done,
        total=latest.total,
        counted=latest.counted,
        text=latest.text,
        log=latest.log,
        command=work.command,
    )
