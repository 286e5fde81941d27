"""The driver's loop: units of work are submitted to an executor as soon as they can start, and followed to their end.

Imports no torch: on a cluster the driver needs little memory.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from graphlib import TopologicalSorter

from jembench.errors import Fallback, OutOfTime, StoreError, WorkFailed
from jembench.experiment.works import Work
from jembench.interfaces import Event
from jembench.interfaces.running import Ended, Executor
from jembench.running.events import Events, fields_of
from jembench.stopping import Stopped
from jembench.store.store import Store
from jembench.store.works import RunRecord

POLL = 0.5
"""Seconds between two looks at what happens."""

PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a unit is submitted again that another process was busy with, or that was stopped.

Each submission to another machine is a job in a queue there: the pause doubles every time.
"""

SHARE = 0.05
"""The most of the driver's time that is spent on reading events, and on writing how far the run is."""


class Dispatch:
    """The units of a run, and where each of them stands.

    Args:
        units: all of them; those that others wait for come first.
        store: where results go.
        executor: is open.
        events: get what happens.
        run: the record of the run.
        in_process: whether units run in this process: their events come by themselves, and so do interrupts.
    """

    def __init__(
        self,
        units: Sequence[Work],
        store: Store,
        executor: Executor,
        events: Events,
        run: RunRecord,
        *,
        in_process: bool,
    ) -> None:
        self._units = {work.id: work for work in units}
        self._order = {work.id: order for order, work in enumerate(units)}
        self._store = store
        self._executor = executor
        self._events = events
        self._run = run
        self._in_process = in_process
        self._open = dict.fromkeys(self._units)  # in order
        self._sorter = TopologicalSorter({work.id: self._units.keys() & work.after for work in units})
        self._sorter.prepare()
        self._running: dict[str, int] = {}  # those that were submitted -> how far their events were read
        self._workers: dict[str, str] = {}  # those that a worker carries out -> its host and process
        self._held: dict[str, float] = {}  # those to be submitted later -> when, by time.monotonic()
        self._pauses: dict[str, float] = {}  # the seconds of the next pause, of those that were held
        self._failures: list[Ended] = []
        self._stopped = self._cancelled = False
        self._next_look = self._next_note = 0.0

    def run(self) -> None:
        """Carry out all units.

        Raises:
            WorkFailed: if some were not carried out.
            OutOfTime: if their deadline came.
        """
        try:
            for work in self._units.values():
                self._events.send(self._event(work, Event(kind="queued", total=self._executor.slots)))
            while self._open:
                self._submit(self._sorter.get_ready())
                self._take(self._executor.ended(POLL))
                if not self._cancelled and any(self._units[unit].is_late for unit in self._running):
                    self._cancelled = True  # no unit starts after its deadline, and those that run stop cleanly
                    self._executor.cancel()
                self._follow(self._running)
                self._submit_held()
                self._note()
        except (KeyboardInterrupt, Stopped):
            self._cancel()
            raise
        if self._failures:
            raise self._failed()
        if self._stopped:
            raise OutOfTime("The time is up. The same command goes on from there.")

    def _event(self, work: Work, event: Event) -> Event:
        return dataclasses.replace(event, fit=fields_of(work.fit), work=work.id, unit=work.kind, time=time.time())

    # --- submitting ---------------------------------------------------------------------------------------------------

    def _submit(self, units: Iterable[str]) -> None:
        """Submit units, unless another living run has: those are looked at again later."""
        mine = []
        for unit in units:
            if self._units[unit].is_late:
                self._give_up(Ended(id=unit, how="stopped"))
                continue
            if not self._executor.here and self._store.is_claimed(unit, but_by=self._run.id):
                self._held[unit] = time.monotonic() + PAUSE
                continue
            work = self._units[unit]
            job = work.job(self._order[unit])
            self._store.works.write(unit, job.text)
            self._store.works.append(self._event(work, Event(kind="queued", text=self._run.id)))
            _, self._running[unit] = self._store.works.events(unit)
            mine.append(job)
        if mine:
            self._executor.submit(mine)

    def _hold(self, unit: str) -> None:
        """Submit a unit later."""
        pause = self._pauses.get(unit, PAUSE)
        self._held[unit] = time.monotonic() + pause
        self._pauses[unit] = pause if self._executor.here else min(2 * pause, LONGEST_PAUSE)

    def _submit_held(self) -> None:
        now = time.monotonic()
        due = [unit for unit, when in self._held.items() if when <= now]
        for unit in due:
            del self._held[unit]
            if is_done(self._units[unit], self._store):
                self._finish(unit)
                self._send_end(unit, "done")
        self._submit(unit for unit in due if unit in self._open)

    # --- endings ------------------------------------------------------------------------------------------------------

    def _take(self, endings: Sequence[Ended]) -> None:
        """Take in how units ended."""
        for ended in endings:
            if ended.id not in self._running:
                continue
            self._follow({ended.id: self._running[ended.id]}, last=True)
            del self._running[ended.id]
            self._workers.pop(ended.id, None)
            work = self._units[ended.id]
            values = {"how": ended.how} | ({"log": ended.log} if ended.log else {})
            if ended.how == "done":
                self._finish(ended.id, failed=bool(ended.text))
            elif (ended.how in ("busy", "stopped") and not work.is_late) or self._is_gone(ended):
                self._hold(ended.id)
            else:
                self._give_up(ended)
            event = self._event(work, Event(kind="ended", values=values, text=ended.text, worker=ended.host))
            if ended.id not in self._open and ended.how != "done":
                self._store.works.append(event)
            self._events.send(event)

    def _is_gone(self, ended: Ended) -> bool:
        """Return whether another run, which had submitted a refused unit too, has done it and removed it."""
        return ended.how == "refused" and not self._store.works.path(ended.id).exists()

    def _finish(self, unit: str, *, failed: bool = False) -> None:
        """Note that a unit is done: those that waited for it alone can start now.

        The ending says whether a training has failed. The store does not: on a network file system this machine may see
        the model later.
        """
        self._open.pop(unit, None)
        self._store.works.remove(unit)
        if failed:
            self._drop(unit)  # its cells have their outcomes
        else:
            self._sorter.done(unit)

    def _give_up(self, ended: Ended) -> None:
        if ended.how in ("busy", "stopped"):
            self._stopped = True
        else:
            self._failures.append(ended)
        self._open.pop(ended.id, None)
        self._drop(ended.id)

    def _drop(self, unit: str) -> None:
        """Leave out what waits for a unit."""
        for follower in [other for other in self._open if unit in self._units[other].after]:
            del self._open[follower]
            self._send_end(follower, "dropped")
            self._drop(follower)

    def _send_end(self, unit: str, how: str, text: str = "") -> None:
        """Send that a unit has ended which this run has not carried out."""
        self._events.send(self._event(self._units[unit], Event(kind="ended", values={"how": how}, text=text)))

    def _cancel(self) -> None:
        """Ask what runs to stop, and wait for it."""
        if self._in_process or not self._running:
            return
        warnings.warn(
            f"Stopping {len(self._running)} units of work; each keeps what it has done. A second Ctrl-C ends them at "
            "once.",
            Fallback,
            stacklevel=2,
        )
        self._executor.cancel()
        while self._running:
            for ended in self._executor.ended(POLL):
                if self._running.pop(ended.id, None) is not None and ended.how == "done":
                    self._finish(ended.id)

    def _failed(self) -> WorkFailed:
        first = self._failures[0]
        log = f" Its log: {first.log}." if first.log else ""
        command = shlex.join(["jembench", "work", first.id, "--store", str(self._store.root)])
        error = WorkFailed(
            f"{len(self._failures)} of {len(self._units)} units of work were not carried out. The first one, "
            f"{self._units[first.id].name}, ended{f' on {first.host}' if first.host else ''} as {first.how}: "
            f"{first.text}{log} To run it by hand: `{command}`. `jembench status` shows all."
        )
        if all(failure.how == "refused" for failure in self._failures):
            error.exit_code = 2
        return error

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, units: dict[str, int], *, last: bool = False) -> None:
        """Send on what the events of units say that is new. Reading takes a small share of the time."""
        start = time.monotonic()
        if self._in_process or (start < self._next_look and not last):
            return
        for unit, offset in list(units.items()):
            events, self._running[unit] = self._store.works.events(unit, offset)
            for event in events:
                if event.kind not in ("queued", "ended"):  # those are this run's own
                    self._events.send(event)
                if event.kind == "started":
                    self._workers[unit] = event.worker
        if not last:
            now = time.monotonic()
            self._next_look = now + max(POLL, (now - start) / SHARE)

    def _note(self) -> None:
        """Write how far the run is, for `jembench status`, and send which workers have died by their leases."""
        start = time.monotonic()
        if start < self._next_note:
            return
        alive = self._store.workers() if self._workers else {}
        for unit in [unit for unit, worker in self._workers.items() if not alive.get(worker, True)]:
            self._send_end(unit, "gone", f"its worker {self._workers.pop(unit)} has died or lost its machine")
        failed = len(self._failures)
        done = len(self._units) - len(self._open) - failed
        with suppress(StoreError):  # of a full disk: a worker will say so
            self._store.works.write_run(dataclasses.replace(self._run, done=done, failed=failed))
        now = time.monotonic()
        self._next_note = now + max(5.0, (now - start) / SHARE)


def is_done(work: Work, store: Store) -> bool:
    """Return whether the results of a unit are in the store. Any process may have done it."""
    if work.kind == "train":
        return store.is_trained(work.fit)
    return all(store.is_settled(cell) for cell in work.cells)
