"""Carrying out a plan: what is to be done before and around the units of work, which :mod:`dispatch` submits."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jembench import progress, stopping
from jembench.catalog import plugin_files, trust
from jembench.errors import JembenchError, SpecError, StoreError
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.works import Work, code_of, works
from jembench.interfaces import Event
from jembench.interfaces.running import Driver, Ended, Executor, Job
from jembench.running import provenance
from jembench.running.dispatch import Dispatch, is_done
from jembench.running.events import VARIABLE, Events
from jembench.running.executor import LocalExecutor
from jembench.store.store import Store
from jembench.store.works import RUN, RunRecord

if TYPE_CHECKING:
    import torch

    from jembench.running.outlook import Ready
    from jembench.running.worker import Worker


def carry_out(
    plan: Plan,
    store: Store,
    executor: Executor,
    device: torch.device | str,
    events: Events,
    deadline: float | None = None,
    *,
    skip_missing: bool = False,
) -> None:
    """Do what is pending. One cell's or fit's failure is recorded and stops no other.

    Under torchrun, this is what the process of rank 0 does; the others :func:`serve_fits`.

    Args:
        plan: fits and cells.
        store: where they are kept.
        executor: where the units of work run.
        device: of this process; workers elsewhere find out what its name means there.
        events: get what happens.
        deadline: when training and attacks stop, UTC in seconds since 1970.
        skip_missing: whether to start although something is missing for some metrics.

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
    ready = _look_ahead(needed, skip_missing=skip_missing) if executor.here else {}
    store.check_writable()
    units = works(
        needed,
        store.is_trained,
        slots=executor.slots,
        gpus=executor.gpus,
        deadline=deadline,
        command=provenance.this_command(),
    )
    driver = Driver(
        store=store.root.absolute(),
        arguments=_arguments(needed, store, str(device), skip_missing=skip_missing),
        environment={trust.VARIABLE: ",".join(_trusted(units)), VARIABLE: "", plugin_files.VARIABLE: ""},
        carry_out=_in_process(units, needed, lambda: _worker(store, str(device), events, ready), events),
        waits=functools.partial(_note_wait, store, events),
    )
    with _registered(store, len(units)) as run:
        try:
            with progress.phase("starting workers"):
                executor.open(driver)
            Dispatch(units, store, executor, events, run, in_process=isinstance(executor, LocalExecutor)).run()
        finally:
            with progress.phase("ending workers"):
                executor.close()
        sweep(store, run.id)


def _note_wait(store: Store, events: Events, unit: str, reason: str) -> None:
    """Queue a unit again in its events, with the reason why it has not started."""
    if queued := store.works.latest(unit).queued:
        event = dataclasses.replace(queued, time=time.time(), values={"reason": reason})
        store.works.append(event)
        events.send(event)


def serve_fits(fits: Sequence[FitPlan], device: torch.device) -> None:
    """Train with rank 0 whichever of the fits it trains, until it needs no more help. Nothing is read or written.

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


def _look_ahead(plan: Plan, *, skip_missing: bool) -> dict[str, Ready]:
    from jembench.running.outlook import look_ahead

    outlook = look_ahead(plan)
    outlook.check(skip_missing=skip_missing)
    return outlook.fits


def _in_process(
    units: Sequence[Work], plan: Plan, make_worker: Callable[[], Worker], events: Events
) -> Callable[[Job], Ended]:
    """Return what carries out a unit in this process, for executors that ask for it; errors are raised."""
    works, cells = {work.id: work for work in units}, {cell.id: cell for cell in plan.cells}
    worker = functools.cache(make_worker)

    def carry_out(job: Job) -> Ended:
        work = works[job.id]
        try:
            return worker().carry_out(work, Plan(plan.suite, [cells[cell.id] for cell in work.cells]))
        except BaseException as error:
            how = "failed" if isinstance(error, StoreError) else "stopped"
            with suppress(StoreError):  # of a full disk: the error that is raised says so
                events.of(work.fit, work)(Event(kind="ended", values={"how": how}, text=str(error)))
            raise

    return carry_out


def _worker(store: Store, device: str, events: Events, ready: dict[str, Ready]) -> Worker:
    from jembench.models import devices
    from jembench.running.worker import Worker

    return Worker(store, devices.resolve(device), events, ready=ready)


def _arguments(plan: Plan, store: Store, device: str, *, skip_missing: bool) -> Callable[[Sequence[str]], list[str]]:
    """Return what follows ``jembench`` in the command line of a worker, from the ids of units."""
    plugins = [word for path in plugin_files.loaded for word in ("--plugin", str(path.absolute()))]

    def arguments(ids: Sequence[str]) -> list[str]:
        live = (part.component for cell in plan.cells for part in (cell.fit.model, cell.fit.dataset))
        for component in live:
            if component.distribution == "live":
                raise SpecError(
                    f"{component.name} is an object of this program, which no other process has. Leave executor= out, "
                    "or name the factory of the object as a spec: mypackage.zoo:build."
                )
        skip = ["--skip-missing"] if skip_missing else []
        return ["work", *ids, "--store", str(store.root.absolute()), "--device", device, *skip, *plugins]

    return arguments


def _trusted(units: Sequence[Work]) -> list[str]:
    """Return the code that workers may load: what the user of this command has named, in whatever way."""
    return sorted({*code_of(units), *filter(None, os.environ.get(trust.VARIABLE, "").split(","))})


@contextmanager
def _registered(store: Store, units: int) -> Iterator[RunRecord]:
    """Make the run known to others, while it lives."""
    run = RunRecord(
        id=f"{RUN}{time.time_ns():x}-{os.getpid()}",
        command=provenance.this_command(),
        host=platform.node(),
        pid=os.getpid(),
        time=time.time(),
        units=units,
    )
    with store.lease(run.id):
        store.works.write_run(run)
        try:
            yield run
        finally:
            store.works.remove(run.id)


def _is_ours(path: Path) -> bool:
    """Return whether a run makes a file of that name in ``works/``, or in its folder of jobs there."""
    first, second = (*path.parts, "", "")[:2]
    return second.startswith("jembench-") if second else bool(_OURS.fullmatch(first))


_OURS = re.compile(r"(worker-\d+-\d+|[0-9a-f]{16})\.(json|events|log)|run-[\w-]+\.json")  # logs of runs stay


def sweep(store: Store, run: str) -> None:
    """Remove what killed runs left of units that are done, and when none is left, what their executors left.

    Nothing is removed while another run lives.
    """
    files = store.works
    if any(other.id != run and store.in_work(other.id) for other in files.runs()):
        return
    for unit in files.ids():
        with suppress(JembenchError):
            if is_done(files.read(unit).read(Work), store):
                files.remove(unit)
    if not files.ids():
        for path in sorted(files.folder.rglob("*"), reverse=True):  # folders after what is in them
            if path != files.path(run) and (path.is_dir() or _is_ours(path.relative_to(files.folder))):
                with suppress(OSError):
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
