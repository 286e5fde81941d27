"""Executors, which carry out the work of a run, and trackers, which receive its events."""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

__all__ = ["Event", "Tracker"]

WorkKind = Literal["check", "fit", "attack-part"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A unit of work for an executor. Its worker reads all else from ``text``."""

    id: str
    name: str  #: for display: "fit jem on digits, recipe digits, seed 0"
    kind: WorkKind
    order: int  #: an executor with its own queue starts the unit with the lowest order first
    #: number of GPUs on one machine: as many processes train the model together, on CPUs if there
    # is no GPU
    gpus: int
    text: str  #: the unit as JSON, a few kB: the file that a worker finds in a shared store


Ending = Literal["done", "stopped", "busy", "refused", "failed", "lost"]


def exit_reason(code: int) -> str:
    """Describe how a process ended, by its code in ``subprocess``.

    Examples are ``exit code 1`` and ``SIGKILL``, a signal.
    """
    names = {-sent: sent.name for sent in signal.Signals}
    return names.get(code, f"exit code {code}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The ending of a unit of work. ``how`` is one of

    - ``done``: its results are in the store. ``text`` is the reason if its training failed, which
      the cells tell too; a check's ``text`` has one remark per line
    - ``stopped``: a signal or the time limit ended it; the driver submits it again
    - ``busy``: another process works on the same fit; the driver submits it again after a while
    - ``refused``: it cannot be carried out there: other code, missing data; ``text`` has the
      difference and the remedy
    - ``failed``: a bug, or a store that cannot be written
    - ``lost``: the worker died, and so did the retries
    """

    id: str
    how: Ending
    text: str = ""
    host: str = ""
    log: str = ""  #: path of the worker's output, if there is one
    error: str = ""  #: the class, in :mod:`jembench.errors`, of the error in ``text``


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The run that an executor works for.

    A worker is a process that runs the :meth:`command` of some units, with ``environment`` added to
    the variables of its machine. It carries out the units one after the other and prints one line
    of JSON on stdout for each ending, the fields of :class:`Ended`. At SIGTERM it stops cleanly.
    """

    store: Path  #: absolute
    options: Sequence[str]  #: of a worker's command, after the ids of units
    environment: Mapping[str, str]
    carry_out: Callable[[Job], Ended]  #: in this process, for executors with ``in_process``
    #: Report why a unit that was submitted has not started, by its id. An executor may call it
    # within ``ended``.
    waits: Callable[[str, str], None] = lambda unit, reason: None

    def command(self, jobs: Sequence[Job], *, more: bool = False) -> list[str]:
        """Return the command of a worker for units with the same number of GPUs.

        With ``more`` the worker then carries out the units whose ids it reads from stdin, until
        stdin ends: one batch per line, the ids separated by spaces.

        The first word is this process's interpreter; on another machine, replace it by the
        interpreter there. torchrun starts units with several GPUs.
        """
        gpus = jobs[0].gpus
        torchrun = (
            ["torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus), "-m"]
            if gpus > 1
            else []
        )
        units = [job.id for job in jobs] + (["-"] if more else [])
        return [sys.executable, "-P", "-m", *torchrun, "jembench", "work", *units, *self.options]


@runtime_checkable
class Executor(Protocol):
    """A way to carry out units of work.

    It assigns units to machines, retries units whose workers died, and cancels.

    ``slots`` is the number of units that run at the same time, as far as it is known. ``here`` is
    True if all units run on this machine; missing data is then an error before anything starts.
    ``in_process`` is True if ``ended`` calls :attr:`Driver.carry_out`: events then reach trackers
    from this process.
    """

    @property
    def slots(self) -> int: ...
    @property
    def here(self) -> bool: ...
    @property
    def in_process(self) -> bool: ...
    def open(self, driver: Driver) -> None:
        """Prepare for work. Called once, before the other methods.

        Raises:
            Unavailable: with the remedy, if the engine cannot be reached.
        """

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue units, all of which may start at once.

        A unit may be submitted again after it has ended.
        """

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Return the endings since the last call.

        It waits up to ``seconds`` for the first ending.
        """

    def cancel(self) -> None:
        """Drop queued units and ask running ones to stop cleanly.

        :meth:`ended` returns their endings as before.
        """

    def close(self) -> None:
        """Release all resources and end all workers."""


EventKind = Literal[
    "queued", "progress", "window", "diverged", "measured", "warning", "ended", "finished"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An event of a run.

    Its kinds, and the fields that each fills in beside ``fit``:

    - ``queued``: the unit of work waits: ``text`` is the reason, if there is one
    - ``progress``: once a second during the work on a unit: ``text`` is the name of the phase,
      ``done`` and ``total`` its progress, and ``values`` has ``unit``, the unit of both. Trackers
      do not receive it
    - ``window``: ``log_every`` iterations have ended: ``done`` and ``total`` iterations, and in
      ``values`` the columns of ``history.csv``. A window in which training diverged is included. A
      training that is resumed sends the windows of earlier runs again
    - ``diverged``: the guard found divergence: ``values`` has ``iteration`` and ``reason``, and
      ``returned_to`` and ``remedy`` if training was rolled back; ``text`` describes it
    - ``measured``: the outcome of ``metric`` is in the store: ``values`` has ``status``,
      ``seconds``, and by label each value with the ends of its interval (``fid``, ``fid/low``,
      ``fid/high``); ``text`` is the reason if there is no value; ``done`` is the number of
      iterations of the training
    - ``warning``: something failed that no outcome records, a plugin left a setting of PyTorch
      changed, training starts from the weights of another fit, or outputs are random or depend on
      the batch: ``text``
    - ``ended``: the unit has ended: ``values`` has ``how`` (see :class:`Ended`; or "dropped": a
      unit that it needs failed), ``text`` the message
    - ``finished``: the last event of this process; it has no ``fit``
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
    """A receiver of the events of fits.

    It is called in a thread of its own, in the process that trains or measures the fits.

    An event counts as received when ``event`` returns. A tracker that raises an error or blocks
    gets no further events.
    """

    def event(self, event: Event) -> None: ...
