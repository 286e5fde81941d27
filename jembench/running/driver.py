"""The driver of a run: it submits units of work to an executor once they can start, and follows them to their end.

Imports no torch by itself: on a cluster the driver needs little memory.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from jembench import progress, stopping
from jembench.catalog import plugin_files, trust
from jembench.errors import Fallback, JembenchError, OutOfTime, SpecError, WorkFailed
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.works import Work, code_of, works
from jembench.interfaces import Event
from jembench.interfaces.running import Driver, Ended, Executor, Job
from jembench.running import provenance
from jembench.running.events import VARIABLE, Events, fields_of
from jembench.running.local import LocalExecutor
from jembench.stopping import Stopped
from jembench.store.store import Store
from jembench.store.works import LOGS, Status

if TYPE_CHECKING:
    import torch

    from jembench.running.outlook import Ready
    from jembench.running.worker import Worker

POLL = 0.5
"""Seconds between two looks at what happens."""

PAUSE = 1.0
"""Seconds between two looks at whether units that are held can be submitted again."""

SHARE = 0.05
"""The most of the driver's time that is spent on reading statuses."""

BUSY = "another process works on it"
"""The reason why a unit waits whose leases are held."""


class Options(NamedTuple):
    """The options of all workers of a run."""

    device: str = "auto"  # workers elsewhere find out what its name means there
    deadline: float | None = None  # when training and attacks stop, UTC in seconds since 1970
    skip_missing: bool = False  # start although something is missing for some metrics
    trackers: Sequence[str] = ()  # specs of those that workers elsewhere open


_DEFAULT = Options()


def carry_out(
    plan: Plan,
    store: Store,
    executor: Executor,
    events: Events,
    options: Options = _DEFAULT,
) -> None:
    """Do what is pending. One cell's or fit's failure is recorded and stops no other.

    Args:
        plan: fits and cells.
        store: where they are kept.
        executor: where the units of work run.
        events: get what happens.
        options: of workers.

    Raises:
        OutOfTime: if the deadline came while a model was trained or attacked.
        WorkFailed: if units were not carried out; all others were.
        ProcessLost: if a process of the group failed or has gone.
        StoreError: if the store cannot be written.
        Unavailable: if something is missing; with ``skip_missing``, if it is a dataset.
        SpecError: as :func:`~jembench.running.outlook.look_ahead`.
    """
    needed = Plan(plan.suite, [cell for cell in plan.cells if not store.is_settled(cell)])
    if not needed.cells:
        return
    ready = _look_ahead(needed, skip_missing=options.skip_missing) if executor.here else {}
    store.check_writable()
    command = provenance.this_command()
    units = works(needed, store.is_trained, slots=executor.slots, deadline=options.deadline, command=command)
    in_process = isinstance(executor, LocalExecutor)
    driver = Driver(
        store=store.root.absolute(),
        options=() if in_process else _options(needed, store, options),
        environment=_environment(units, options.trackers),
        carry_out=_in_process(units, needed, lambda: _worker(store, options.device, events, ready)),
        waits=functools.partial(_note_wait, store),
    )
    try:
        with progress.phase("starting workers"):
            executor.open(driver)
        Dispatch(units, store, executor, events).run()
    finally:
        with progress.phase("ending workers"):
            executor.close()
    sweep(store)


def serve_fits(fits: Sequence[FitPlan], device: torch.device) -> None:
    """Take part in each training of rank 0, until rank 0 has ended all. Nothing is read or written.

    Raises:
        ProcessLost: if a process of the group failed or has gone.
    """
    from jembench.models import devices
    from jembench.running.fits import make_trainer
    from jembench.training.processes import group

    known = {fit.key.id: fit for fit in fits}
    with stopping.deferred():  # torchrun sends a signal to all processes, and rank 0 ends the work of all
        while fit_id := group().broadcast(""):
            dataset = known[fit_id].dataset.make()
            trainer = make_trainer(known[fit_id], dataset, device)
            with devices.threads_for(dataset.spec, device):
                group().follow(trainer)


class Dispatch:
    """The units of a run, and where each of them stands.

    Args:
        units: all of them; those that others wait for come first.
        store: where results go.
        executor: is open.
        events: get what happens.
    """

    def __init__(self, units: Sequence[Work], store: Store, executor: Executor, events: Events) -> None:
        self._units = {work.id: work for work in units}
        self._order = {work.id: order for order, work in enumerate(units)}
        self._store = store
        self._executor = executor
        self._events = events
        self._in_process = isinstance(executor, LocalExecutor)  # events come by themselves, and so do interrupts
        self._open = dict.fromkeys(self._units)  # in order
        self._sorter = TopologicalSorter({work.id: self._units.keys() & work.after for work in units})
        self._sorter.prepare()
        self._running: dict[str, Status] = {}  # those that were submitted, with what was last seen of them
        self._held: list[str] = []  # those to be submitted later
        self._failures: list[Ended] = []
        self._stopped = self._cancelled = False
        self._next_try = self._next_look = 0.0

    def run(self) -> None:
        """Carry out all units.

        Raises:
            WorkFailed: if some were not carried out.
            OutOfTime: if their deadline came.
        """
        try:
            for unit in self._units:
                self._send(unit, Event(kind="queued"))
            while self._open:
                self._submit([*self._sorter.get_ready(), *self._due()])
                for ended in self._executor.ended(POLL):
                    self._take(ended)
                if not self._cancelled and any(self._units[unit].is_late for unit in self._running):
                    self._cancelled = True  # no unit starts after its deadline, and those that run stop cleanly
                    self._executor.cancel()
                self._follow()
        except (KeyboardInterrupt, Stopped):
            self._cancel()
            raise
        if self._failures:
            raise self._failed()
        if self._stopped:
            raise OutOfTime("The time is up. The same command goes on from there.")

    def _send(self, unit: str, event: Event) -> None:
        fit = fields_of(self._units[unit].fit)
        self._events.send(dataclasses.replace(event, fit=fit, work=unit, time=event.time or time.time()))

    # --- submitting ---------------------------------------------------------------------------------------------------

    def _submit(self, units: Sequence[str]) -> None:
        """Submit units, but for those that another process works on, or has done by now."""
        jobs = []
        in_work = self._store.in_work() if units else set()
        for unit in units:
            work = self._units[unit]
            if is_done(work, self._store):
                self._finish(unit)
                self._send(unit, Event(kind="ended", values={"how": "done"}))
            elif work.is_late:
                self._give_up(Ended(id=unit, how="stopped"))
            elif in_work & {unit, work.fit.id, *(cell.id for cell in work.cells)}:
                self._hold(unit, BUSY)
            else:
                job = work.job(self._order[unit])
                self._running[unit] = Status(state="queued")
                self._store.works.write(unit, job.text)
                self._store.works.set_status(unit, self._running[unit])
                jobs.append(job)
        if jobs:
            self._executor.submit(jobs)

    def _hold(self, unit: str, reason: str) -> None:
        """Submit a unit later."""
        self._held.append(unit)
        self._send(unit, Event(kind="queued", text=reason))

    def _due(self) -> list[str]:
        """Return the units that were held for long enough."""
        if time.monotonic() < self._next_try:
            return []
        self._next_try = time.monotonic() + PAUSE
        due, self._held = self._held, []
        return due

    # --- endings ------------------------------------------------------------------------------------------------------

    def _take(self, ended: Ended) -> None:
        """Take in how a unit ended. The results count: another run may have done it, and removed it."""
        if self._running.pop(ended.id, None) is None:
            return
        work = self._units[ended.id]
        if ended.how != "done" and is_done(work, self._store):
            ended = Ended(id=ended.id, how="done", host=ended.host)
        values = {"how": ended.how} | ({"log": ended.log} if ended.log else {})
        self._send(ended.id, Event(kind="ended", values=values, text=ended.text, worker=ended.host))
        if ended.how == "done":
            self._finish(ended.id, failed=bool(ended.text))
        elif ended.how in ("busy", "stopped") and not work.is_late:
            self._hold(ended.id, BUSY if ended.how == "busy" else "")
        else:
            self._store.works.end(ended.id, ended.how, ended.text, ended.log)
            self._give_up(ended)

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
            self._send(follower, Event(kind="ended", values={"how": "dropped"}))
            self._drop(follower)

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
                if self._running.pop(ended.id, None) and ended.how == "done":
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

    def _follow(self) -> None:
        """Send what is new in the statuses of units. Reading them takes a small share of the time."""
        start = time.monotonic()
        if self._in_process or start < self._next_look:
            return
        for unit, before in list(self._running.items()):
            status = self._running[unit] = self._store.works.status(unit)
            if status.time == before.time:
                continue
            if status.state == "queued" and status.text:
                self._send(unit, Event(kind="queued", text=status.text))
            elif status.state == "running":
                at = Event(kind="progress", worker=status.worker, time=status.since, text=status.text)
                counted = {"unit": status.counted}
                self._send(unit, dataclasses.replace(at, done=status.done, total=status.total, values=counted))
                for note in status.notes[len(before.notes) :]:
                    self._send(unit, dataclasses.replace(at, kind="warning", text=note))
        now = time.monotonic()
        self._next_look = now + max(POLL, (now - start) / SHARE)


def is_done(work: Work, store: Store) -> bool:
    """Return whether the results of a unit are in the store. Any process may have done it."""
    return all(map(store.is_settled, work.cells)) and (bool(work.cells) or store.is_trained(work.fit))


def sweep(store: Store) -> None:
    """Remove what killed runs left of units that are done, and once none is left, the logs of workers."""
    for unit in store.works.ids():
        with suppress(JembenchError):
            if is_done(store.works.read(unit).read(Work), store):
                store.works.remove(unit)
    if not store.works.ids():
        for log in store.works.folder.glob(LOGS):
            log.unlink(missing_ok=True)


# --- what an executor is given ----------------------------------------------------------------------------------------


def _look_ahead(plan: Plan, *, skip_missing: bool) -> dict[str, Ready]:
    from jembench.running.outlook import look_ahead

    outlook = look_ahead(plan)
    outlook.check(skip_missing=skip_missing)
    return outlook.fits


def _worker(store: Store, device: str, events: Events, ready: dict[str, Ready]) -> Worker:
    from jembench.models import devices
    from jembench.running.worker import Worker

    return Worker(store, devices.resolve(device), events, ready=ready)


def _in_process(units: Sequence[Work], plan: Plan, make_worker: Callable[[], Worker]) -> Callable[[Job], Ended]:
    """Return the function that carries out a unit in this process, for executors that ask for it; errors are raised."""
    known, cells = {work.id: work for work in units}, {cell.id: cell for cell in plan.cells}
    worker = functools.cache(make_worker)

    def carry_out(job: Job) -> Ended:
        work = known[job.id]
        return worker().carry_out(work, Plan(plan.suite, [cells[cell.id] for cell in work.all_cells]))

    return carry_out


def _options(plan: Plan, store: Store, options: Options) -> list[str]:
    """Return the options of a worker's command.

    Raises:
        SpecError: for an object of this program, which no other process has.
    """
    for part in (part for fit in plan.fits for part in (fit.model, fit.dataset)):
        if part.component.distribution == "live":
            raise SpecError(
                f"{part.component.name} is an object of this program, which no other process has. Leave executor= out, "
                "or name the factory of the object as a spec: mypackage.zoo:build."
            )
    skip = ["--skip-missing"] if options.skip_missing else []
    plugins = [word for path in plugin_files.loaded for word in ("--plugin", str(path.absolute()))]
    return ["--store", str(store.root.absolute()), "--device", options.device, *skip, *plugins]


def _environment(units: Iterable[Work], trackers: Sequence[str]) -> Mapping[str, str]:
    """Return the variables of workers: the code that they may load is what the user of this command has named."""
    trusted = {*code_of(list(units)), *filter(None, os.environ.get(trust.VARIABLE, "").split(","))}
    return {
        trust.VARIABLE: ",".join(sorted(trusted)),
        VARIABLE: ",".join(trackers),
        plugin_files.VARIABLE: "",
        "PYTHONSAFEPATH": "1",
    }


def _note_wait(store: Store, unit: str, reason: str) -> None:
    """Note why a unit has not started."""
    if store.works.status(unit).state == "queued":
        store.works.set_status(unit, Status(state="queued", text=reason))
