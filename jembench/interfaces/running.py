"""Executors and trackers: where work runs, and who receives the events of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

__all__ = ["Event", "Tracker"]

WorkKind = Literal["fit", "attack-part"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A unit of work, as an executor sees it. The worker that carries it out reads all else from ``text``."""

    id: str
    name: str  #: for people: "fit jem on digits, recipe digits, seed 0"
    kind: WorkKind
    order: int  #: of those that wait, an executor with a queue of its own takes the one with the least first
    gpus: int  #: that it wants, on one machine: N processes train a model together, where there is no GPU as well
    text: str  #: the unit as JSON, a few kB: the file that a worker finds in a shared store


Ending = Literal["done", "stopped", "busy", "refused", "failed", "lost"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The ending of a unit of work.

    =========== ========================================================================================================
    how         meaning
    =========== ========================================================================================================
    ``done``    its results are in the store; ``text`` says why a training has failed, which is the outcome of its cells
    ``stopped`` it was asked to end, or its time was up: it goes on from there when it is submitted again
    ``busy``    another process works on the same fit: submit it again later
    ``refused`` it cannot be carried out there: other code, missing data; ``text`` says what differs and the remedy
    ``failed``  a bug, or a store that cannot be written
    ``lost``    the worker died, and so did the retries
    =========== ========================================================================================================
    """

    id: str
    how: Ending
    text: str = ""
    host: str = ""
    log: str = ""  #: the file with what the worker printed, if there is one


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The run that an executor works for.

    A worker is the :meth:`command` of some units, with ``environment`` added to the variables that it finds where it
    runs. It carries out the units one after the other and prints one line of JSON on stdout for each that has ended,
    the fields of :class:`Ended`. At SIGTERM it stops cleanly.
    """

    store: Path  #: absolute
    options: Sequence[str]  #: of the command of a worker, after the ids of units
    environment: Mapping[str, str]
    carry_out: Callable[[Job], Ended]  #: in this process
    #: Report why a unit that was submitted has not started, by its id. An executor may call it within ``ended``.
    waits: Callable[[str, str], None] = lambda unit, reason: None

    def command(self, jobs: Sequence[Job]) -> list[str]:
        """Return the command of a worker for units that want the same number of GPUs.

        Its first word is the interpreter of this process: on another machine the path of the interpreter there takes
        its place. Units that want several GPUs are started by torchrun.
        """
        gpus = jobs[0].gpus
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus), "-m"] if gpus > 1 else []
        return [sys.executable, "-P", "-m", *torchrun, "jembench", "work", *(job.id for job in jobs), *self.options]


@runtime_checkable
class Executor(Protocol):
    """Runs units of work here or elsewhere: it maps them to places, tries again what died, and cancels.

    ``slots`` is the number of units that run at the same time, as far as it is known. ``here``: whether all run on this
    machine; then missing data is an error before anything starts.
    """

    @property
    def slots(self) -> int: ...
    @property
    def here(self) -> bool: ...
    def open(self, driver: Driver) -> None:
        """Get ready. Called once, before everything else.

        Raises:
            Unavailable: with the remedy, if the engine cannot be reached.
        """
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue units, all of which may start at once. A unit may be submitted again after it has ended."""
        ...

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Return the units that have ended since the last call; wait for the first one up to ``seconds``."""
        ...

    def cancel(self) -> None:
        """Drop what is queued and ask what runs to stop cleanly. :meth:`ended` goes on to give their endings."""
        ...

    def close(self) -> None:
        """Free everything. No worker is left afterwards."""
        ...


EventKind = Literal["queued", "progress", "window", "diverged", "measured", "warning", "ended", "finished"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing that happened while a plan was carried out, as data.

    ============= ==================================================================================================
    kind          meaning, and the fields that it fills in beside ``fit``
    ============= ==================================================================================================
    ``queued``    the unit of work waits: ``text`` is the reason, if there is one
    ``progress``  once a second while a worker is at the unit: ``text`` says what is being done, ``done`` and ``total``
                  how far it is, and ``values`` has ``unit``, what is counted. Trackers do not get it
    ``window``    ``log_every`` iterations have ended: ``done`` and ``total`` iterations, and in ``values`` the columns
                  of ``history.csv``. A window in which training diverged is included. Training that resumes sends the
                  windows of former runs again
    ``diverged``  the guard found divergence: ``values`` has ``iteration`` and ``reason``, and ``returned_to`` and
                  ``remedy`` if training was rolled back
    ``measured``  the outcome of ``metric`` is in the store: ``values`` has ``status``, ``seconds``, and by label each
                  value with the ends of its interval (``fid``, ``fid/low``, ``fid/high``); ``text`` is the reason if
                  there are none; ``done`` the iterations of the training
    ``warning``   something failed that no outcome records, or a plugin left a setting of PyTorch changed: ``text``
    ``ended``     the unit has ended: ``values`` has ``how`` (see :class:`Ended`; or "dropped": what it needs could not
                  be done), ``text`` says more
    ``finished``  nothing follows from this process; it has no ``fit``
    ============= ==================================================================================================
    """

    kind: EventKind
    fit: Mapping[str, Any] = field(default_factory=dict)  #: model, dataset, recipe, seed and id
    metric: str = ""  #: spec
    done: int = 0
    total: int = 0
    values: Mapping[str, float | str] = field(default_factory=dict)
    text: str = ""
    work: str = ""  #: the id of the unit of work
    worker: str = ""  #: the host and the process: "node7:4711"
    time: float = 0.0  #: UTC, seconds since 1970


@runtime_checkable
class Tracker(Protocol):
    """Receives the events of fits, in the process that trains or measures them, in a thread of its own.

    An event counts as received when ``event`` returns. A tracker that raises, or stops taking events, is left out.
    """

    def event(self, event: Event) -> None: ...
