"""The submission of a run's units to an executor, and their states.

Units are followed until all have ended. Imports no torch.
"""

from __future__ import annotations

import math
import shlex
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from jembench import errors, stopping
from jembench.errors import Fallback, JembenchError, OutOfTime, Remark, SpecError, WorkFailed
from jembench.experiment.works import Work
from jembench.files import write_atomically
from jembench.interfaces import Event
from jembench.interfaces.running import Ended, Executor
from jembench.running.events import Events
from jembench.stopping import Stopped
from jembench.store.lease import in_work
from jembench.store.store import Store
from jembench.store.works import LOGS, WorkStatus

POLL = 0.5
"""Seconds between two reads of endings and statuses."""

PAUSE = 1.0
"""Seconds until a unit that was held back is submitted again."""

SHARE = 0.05
"""The largest share of the driver's time for reading statuses."""

BUSY = "another process works on it"
"""The reason why a unit waits while another process holds one of its leases."""


@dataclass
class Dispatch:
    """The submission of the units of a run, and their states.

    Args:
        units: all units by their ids, each after the units that it depends on.
        store: receives the results.
        executor: is opened before :meth:`run`.
        events: receives the events.
    """

    units: Mapping[str, Work]
    store: Store
    executor: Executor
    events: Events
    # units that are not done -> the time of the next attempt
    _open: dict[str, float] = field(default_factory=dict, init=False)
    # submitted units -> the last known status
    _running: dict[str, WorkStatus] = field(default_factory=dict, init=False)
    _failures: list[Ended] = field(default_factory=list, init=False)
    _next_read: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Carry out all units.

        Raises:
            WorkFailed: if some units were not carried out.
            OutOfTime: if the deadline passed before all were done.
        """
        try:
            for unit in self.units:
                self._queue(unit)
            self._submit_and_follow()
            if self._open and not self._failures:
                raise OutOfTime("The time is up. The same command goes on from there.")
        except (KeyboardInterrupt, Stopped, OutOfTime) as error:
            if self._running and not self.executor.in_process:  # its own unit has stopped
                self._cancel()
            is_interrupt = isinstance(error, KeyboardInterrupt)
            self._mark_unstarted("Received SIGINT" if is_interrupt else stopping.reason())
            raise
        if self._failures:
            raise self._failed()

    def _submit_and_follow(self) -> None:
        """Submit and follow units, until all have ended or time is up."""
        deadlines = [work.deadline for work in self.units.values() if work.deadline]
        deadline = min(deadlines, default=math.inf)
        late = False
        while self._running or (self._open and not late):
            if not late and time.time() >= deadline:
                late = True  # no unit starts after its deadline, and running ones stop cleanly
                self.executor.cancel()
            if not late:
                self._submit()
            for ended in self.executor.ended(POLL):
                self._record(ended)
            if not self.executor.in_process:  # units in this process send events themselves
                self._follow()

    def note_wait(self, unit: str, reason: str) -> None:
        """Note why a submitted unit has not started."""
        if self.store.works.status(unit).state == "queued":
            self.store.works.set_status(unit, WorkStatus(state="queued", text=reason))

    def _submit(self) -> None:
        """Submit the units that can start, unless other processes have their leases."""
        orders = {unit: order for order, unit in enumerate(self.units) if self._can_start(unit)}
        if not orders:
            return
        jobs, busy = [], in_work(self.store.leases)
        for unit, order in orders.items():
            work = self.units[unit]
            leases = {unit, work.fit.id, *(cell.id for cell in work.cells)}
            if is_done(work, self.store):
                self._finish(unit)
                self._send_ending(unit, "done")
            elif busy & leases:
                self._queue(unit, BUSY, pause=PAUSE)
            else:
                job = work.job(order)
                self._running[unit] = WorkStatus(state="queued")
                write_atomically(self.store.works.path(unit), job.text.encode(), durable=False)
                self.store.works.set_status(unit, self._running[unit])
                jobs.append(job)
        if jobs:
            self.executor.submit(jobs)

    def _send(self, unit: str, event: Event) -> None:
        self.events.send(event, self.units[unit].fit, unit)

    def _send_ending(self, unit: str, how: str, text: str = "", worker: str = "") -> None:
        self._send(unit, Event(kind="ended", values={"how": how}, text=text, worker=worker))

    def _can_start(self, unit: str) -> bool:
        """Return whether to submit a unit now.

        It is not submitted yet, its pause is over, and all units before it have ended.
        """
        waits = unit in self._running or not self._open.keys().isdisjoint(self.units[unit].after)
        return not waits and time.monotonic() >= self._open.get(unit, math.inf)

    def _queue(self, unit: str, reason: str = "", pause: float = 0.0) -> None:
        """Note that a unit is to be submitted after ``pause`` seconds."""
        self._open[unit] = time.monotonic() + pause
        if self.units[unit].kind != "check":
            self._send(unit, Event(kind="queued", text=reason))

    def _record(self, ended: Ended) -> None:
        """Record the ending of a unit.

        A unit with results in the store is done: another run may have computed them.
        """
        unit = ended.id
        if self._running.pop(unit, None) is None:
            return
        if ended.how != "done" and is_done(self.units[unit], self.store):
            ended = Ended(id=unit, how="done", host=ended.host)
        if self.units[unit].kind == "check" and ended.how in ("done", "refused"):
            self._record_check(ended)
            return
        self._send_ending(unit, ended.how, ended.text, ended.host)
        if ended.how in ("refused", "failed", "lost") or (ended.how == "stopped" and ended.text):
            self.store.works.end(unit, ended.how, ended.text, ended.log)
        if ended.how == "done":
            self._finish(unit, failed=bool(ended.text))
        elif ended.how == "busy":
            self._queue(unit, BUSY, pause=PAUSE)
        elif ended.how == "stopped":
            self._queue(unit, pause=PAUSE)
        else:
            self._failures.append(ended)
            self._drop(unit)

    def _record_check(self, ended: Ended) -> None:
        """Record a check's ending: its remarks, or an error of the run."""
        self._send_ending(ended.id, "checked")
        if ended.how == "done":
            for remark in ended.text.splitlines():
                warnings.warn(remark, Remark, stacklevel=2)
            self._finish(ended.id)
        else:
            self.store.works.remove(ended.id)
            self._failures.append(ended)
            self._drop(ended.id)

    def _finish(self, unit: str, *, failed: bool = False) -> None:
        """Mark a unit as done, so that its dependent units can start.

        ``failed`` is True if training failed, as the ending says: on a network file system the
        store may show it later. Further units of the fit are dropped, since their outcomes are
        stored. Units of fits that start from this fit are run, and a worker stores their outcomes.
        """
        self.store.works.remove(unit)
        if failed:
            self._drop(unit, self.units[unit].fit.id)
        else:
            del self._open[unit]

    def _drop(self, unit: str, fit: str = "") -> None:
        """Leave out a unit and its followers.

        ``fit`` is the id of the fit whose followers are left out; "": all followers are.
        """
        del self._open[unit]
        followers = [queued for queued in self._open if unit in self.units[queued].after]
        for follower in followers:
            if follower in self._open and fit in ("", self.units[follower].fit.id):
                self._send_ending(follower, "dropped")
                self._drop(follower, fit)

    def _cancel(self) -> None:
        """Ask running units to stop, and wait for their endings."""
        warnings.warn(
            f"Stopping {len(self._running)} units of work; each keeps what it has done. A second "
            "Ctrl-C ends them at once.",
            Fallback,
            stacklevel=3,
        )
        self.executor.cancel()
        while self._running:
            for ended in self.executor.ended(POLL):
                self._record(ended)

    def _mark_unstarted(self, reason: str) -> None:
        """Record submitted units that this run will not start; remove checks."""
        for unit in self._open.keys() & self.store.works.ids():
            if self.units[unit].kind == "check":
                self.store.works.remove(unit)
            elif self.store.works.status(unit).state == "queued":
                self.store.works.end(unit, "stopped", f"{reason} before it started")

    def _failed(self) -> JembenchError:
        checks = [failure for failure in self._failures if self.units[failure.id].kind == "check"]
        if {check.how for check in checks} == {"refused"}:
            texts = dict.fromkeys(check.text for check in checks)
            wrong: JembenchError = getattr(errors, checks[0].error, SpecError)(" ".join(texts))
            sweep(self.store)
            return wrong

        # where and why the first unit ended, and how to run it by hand
        first = self._failures[0]
        text = first.text.removesuffix(".")
        where = f" on {first.host}" if first.host else ""
        why = f": {text}" if text else ""
        log = f" Its log: {first.log}." if first.log else ""
        count = sum(work.kind != "check" for work in self.units.values())
        command = shlex.join(["jembench", "work", first.id, "--store", str(self.store.root)])
        error = WorkFailed(
            f"{len(self._failures)} of {count} units of work were not carried out. The first one, "
            f"{self.units[first.id].name}, ended{where} as {first.how}{why}.{log} To run it by "
            f"hand: `{command}`. `jembench status` shows all."
        )
        if {failure.how for failure in self._failures} == {"refused"}:
            error.exit_code = 2
        return error

    def _follow(self) -> None:
        """Send changes of units' statuses, read in ``SHARE`` of the time."""
        start = time.monotonic()
        if start < self._next_read:
            return
        for unit, before in list(self._running.items()):
            status = self.store.works.status(unit)
            self._running[unit] = status
            if status.time != before.time:
                self._send_status(unit, status, before)
        now = time.monotonic()
        self._next_read = now + max(POLL, (now - start) / SHARE)

    def _send_status(self, unit: str, status: WorkStatus, before: WorkStatus) -> None:
        if status.state == "queued" and status.text:
            self._send(unit, Event(kind="queued", text=status.text))
        elif status.state == "running":
            at = Event(kind="progress", worker=status.worker, time=status.since, text=status.text)
            values = {"unit": status.counted}
            self._send(unit, replace(at, done=status.done, total=status.total, values=values))
            for note in status.notes[len(before.notes) :]:
                self._send(unit, replace(at, kind="warning", text=note))


def is_done(work: Work, store: Store) -> bool:
    """Return whether a unit's results are in the store, from any process."""
    if not work.cells:
        return store.is_trained(work.fit)
    return all(map(store.is_settled, work.cells))


def sweep(store: Store) -> None:
    """Remove the files that killed runs left.

    These are files of done units and, if no unit is left, the logs of workers.
    """
    for unit in store.works.ids():
        with suppress(JembenchError):
            if is_done(store.works.read(unit).read(Work), store):
                store.works.remove(unit)
    if not store.works.ids():
        for log in store.works.folder.glob(LOGS):
            log.unlink(missing_ok=True)
