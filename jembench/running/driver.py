"""The driver of a run: options, units of work and workers' commands.

Imports no torch if other processes work, since they check the plan too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from jembench import progress
from jembench.catalog import discovery, plugin_files, trust
from jembench.errors import SpecError
from jembench.experiment.plan import Plan
from jembench.experiment.works import Work, code_of, works
from jembench.interfaces.running import Driver, Ended, Executor, Job
from jembench.running import provenance
from jembench.running.dispatch import Dispatch
from jembench.running.events import VARIABLE, Events, chosen_trackers
from jembench.stopping import contained
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.running.worker import Worker


class RunOptions(NamedTuple):
    """The device, the executor and the limits of a plan's execution."""

    device: str = "auto"
    max_hours: float | None = None
    # auto: processes for several GPUs or several trainings on the CPU, otherwise this process
    executor: str = "auto"
    skip_missing: bool = False
    trackers: Sequence[str] | None = None  # specs; None: those of the environment

    @property
    def deadline(self) -> float | None:
        """The time in ``max_hours``, UTC in seconds since 1970; None: no limit."""
        if self.max_hours is None:
            return None
        return time.time() + 3600 * self.max_hours


_DEFAULT = RunOptions()


def run_units(
    plan: Plan, store: Store, executor: Executor, events: Events, how: RunOptions = _DEFAULT
) -> None:
    """Carry out the units of a plan's pending part.

    A failure of a cell or fit is recorded; the other cells and fits are still computed.

    Args:
        plan: the cells that the store does not have.
        store: receives the results.
        executor: runs the units of work.
        events: receives the events.
        how: the device, the limits and the trackers. Workers on other machines resolve the device's
            name there.

    Raises:
        OutOfTime: if the deadline passed before all was done.
        WorkFailed: if some units were not carried out.
        ProcessLost: if a process of the group failed or has ended.
        StoreError: if the store cannot be written.
        Unavailable: if something is missing; with ``skip_missing``, only if a dataset is.
        SpecError: as for :func:`~jembench.running.check.look_ahead`.
    """
    # the plan is checked here if this process does the work, otherwise by units of its own
    worker: Worker | None = None
    if executor.in_process:
        from jembench.models import devices
        from jembench.running.check import look_ahead
        from jembench.running.worker import Worker

        device = devices.resolve(how.device)
        outlook = look_ahead(plan, device=device)
        outlook.refuse_missing(skip_missing=how.skip_missing)
        worker = Worker(store, device, events, checked=outlook.fits)
    planned = works(
        plan,
        store.is_trained,
        slots=executor.slots,
        deadline=how.deadline,
        command=provenance.COMMAND,
        check=executor.here and not executor.in_process,
    )
    units = {work.id: work for work in planned}
    cells = {cell.id: cell for cell in plan.cells}

    def carry_out(job: Job) -> Ended:
        assert worker is not None
        work = units[job.id]
        return worker.carry_out(work, Plan(plan.suite, [cells[cell.id] for cell in work.all_cells]))

    # the executor, and the submission of units to it
    dispatch = Dispatch(units, store, executor, events)
    driver = Driver(
        store=store.root.absolute(),
        options=[],
        environment={},
        carry_out=carry_out,
        waits=dispatch.note_wait,
    )
    if not executor.in_process:
        options, environment = _call_of_workers(plan, planned, store, how)
        driver = replace(driver, options=options, environment=environment)
    with contained(f"The executor {how.executor}"):
        try:
            with progress.phase("starting workers"):
                executor.open(driver)
            dispatch.run()
        finally:
            with progress.phase("ending workers"):
                executor.close()


def _call_of_workers(
    plan: Plan, units: Sequence[Work], store: Store, how: RunOptions
) -> tuple[list[str], dict[str, str]]:
    """Return the options of a worker's command, and its environment variables.

    Raises:
        SpecError: if a model or dataset is an object of this program, which no other process has.
    """
    for fit in plan.fits:
        for part in (fit.model, fit.dataset):
            if part.component.distribution == discovery.LIVE:
                raise SpecError(
                    f"{part.component.name} is an object of this program, which no other process "
                    "has. Leave executor= out, or name the factory of the object as a spec: "
                    "mypackage.zoo:build."
                )
    # workers may only load code that the user of this command has named
    trusted = {*code_of(units), *os.environ.get(trust.VARIABLE, "").split(",")} - {""}
    environment = {
        trust.VARIABLE: ",".join(sorted(trusted)),
        VARIABLE: ",".join(chosen_trackers(how.trackers)),
        plugin_files.VARIABLE: "",
        "PYTHONSAFEPATH": "1",
    }
    options = ["--store", str(store.root.absolute()), "--device", how.device]
    if how.skip_missing:
        options.append("--skip-missing")
    for path in plugin_files.loaded:
        options += ["--plugin", str(path.absolute())]
    return options, environment
