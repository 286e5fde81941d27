"""Entry points of commands and scripts: run a plan, open one model.

Imports no torch by itself. Finished work is kept in the store and not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from jembench.catalog import discovery, registry
from jembench.errors import OutOfTime, SpecError, WorkFailed
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.stored import check_stored
from jembench.running import dispatch, driver
from jembench.running.driver import RunOptions
from jembench.running.events import Events, chosen_trackers
from jembench.running.processes import gpu_count, threads
from jembench.stopping import Stopped
from jembench.store.outcome import Cell
from jembench.store.store import Store
from jembench.training.processes import launched

if TYPE_CHECKING:
    from jembench.interfaces import Evaluation, Event, Tracker
    from jembench.interfaces.running import Executor

MOST_JOBS = 4
"""The largest number of processes that a run starts on the CPU by default, since each takes the
memory of PyTorch.
"""

LATEST = 90.0
"""Seconds within which all machines see a new file. NFS caches a file's absence for up to 60 s
(``acdirmax``).
"""

MakeDisplay = Callable[[], "AbstractContextManager[Tracker | None]"]
"""The function that makes the tracker of the display; with :class:`~contextlib.nullcontext` nothing
is shown.
"""


class Finished(NamedTuple):
    """The outcomes of a plan after the work."""

    cells: list[Cell]
    # the reason why the work ended early, if it did
    stopped: OutOfTime | Stopped | WorkFailed | None


def check_options(how: RunOptions) -> Executor | None:
    """Check that the options are consistent.

    Returns:
        the executor that the options name; None: the default executor.

    Raises:
        SpecError: if the executor takes no such device, if there is no such executor or tracker, or
            under torchrun.
    """
    if launched().size > 1:
        raise SpecError(
            "torchrun starts no runs, only workers of them (jembench work). Start this command "
            "without it, and set how many processes train a model together: --set processes=N."
        )
    executor: Executor | None = None
    if how.executor != "auto":
        executor = registry.resolve("executors", how.executor).make()  # checks its options
        if not executor.in_process and ":" in how.device:
            raise SpecError(
                f"--device is {how.device}, and the executor {how.executor} assigns a GPU to each "
                "worker. Write --device cuda, cpu or auto."
            )
    for tracker in chosen_trackers(how.trackers):
        registry.resolve("trackers", tracker)
    return executor


def run_plan(plan: Plan, store: Store, how: RunOptions, display: MakeDisplay) -> Finished:
    """Train and measure the part of a plan that the store lacks.

    Args:
        plan: the fits and cells.
        store: receives the results.
        how: the device, the executor and the limits.
        display: shows the progress.

    Returns:
        the outcomes under the plan's names: in the store, a moved dataset may have an older name.

    Raises:
        JembenchError: if something is missing, or the store cannot be written. The failure of a
            cell is its outcome.
    """
    executor = check_options(how)
    check_stored(plan.fits, store)
    store = Store(store.root.absolute())  # a model may change the current folder
    store.sweep()
    cells = _stored(plan, store)
    settled = {cell.id for cell in cells if cell.outcome.is_settled}
    pending = replace(plan, cells=[cell for cell in plan.cells if cell.id not in settled])
    stopped: OutOfTime | Stopped | WorkFailed | None = None
    if pending.cells:
        cells.clear()  # frees memory for the training: there may be tens of thousands of cells
        with display() as shown:
            executor = executor or _default_executor(pending, store, how)
            trackers = chosen_trackers(how.trackers) if executor.in_process else ()
            with Events(shown, store, trackers) as events:
                try:
                    driver.run_units(pending, store, executor, events, how)
                except (OutOfTime, Stopped, WorkFailed) as error:
                    stopped = error

        # wait for results that are not visible from this machine yet
        cells, until = _stored(plan, store), time.monotonic() + LATEST
        while len(cells) < len(plan.cells) and not stopped:
            if time.monotonic() > until:
                stopped = WorkFailed(
                    f"All work has ended, and {len(plan.cells) - len(cells)} of {len(plan.cells)} "
                    f"results are not in the store {store.root}, {LATEST:g} s later. Check that "
                    "all workers write into this folder. The same command computes what is "
                    "missing."
                )
            else:
                time.sleep(1.0)
                cells = _stored(plan, store)
    dispatch.sweep(store)  # an earlier command may have been killed after its last result
    return Finished(cells, stopped)


def _stored(plan: Plan, store: Store) -> list[Cell]:
    """Return a plan's stored cells, under the names of the plan."""
    cells = []
    for planned in plan.cells:
        cell = store.read_cell(planned)
        if cell:
            cells.append(replace(cell, fit=planned.fit.key, metric=planned.metric.spec))
    return cells


def _default_executor(pending: Plan, store: Store, how: RunOptions) -> Executor:
    """Return the executor of ``auto``.

    Several GPUs get a process each, and so do up to ``MOST_JOBS`` trainings on the CPU; otherwise
    this process works. It always trains objects of this program and, on the CPU, code on its path,
    which other processes may not find.
    """
    fits = [fit for fit in pending.fits if not fit.is_pretrained and not store.is_trained(fit.key)]
    own: set[str] = set()
    for fit in pending.fits:
        own |= {part.distribution for part in fit.components}
    for cell in pending.cells:
        own |= {part.distribution for part in cell.metric.uses}
    gpus = gpu_count() if how.device in ("auto", "cuda") else 0
    together = any(fit.recipe.processes > 1 for fit in fits)
    jobs = min(len(fits), threads(), MOST_JOBS)
    name = "local"
    if gpus or together or how.device not in ("auto", "cpu"):
        if (gpus > 1 or together) and discovery.LIVE not in own:
            name = "processes"
    elif jobs > 1 and own.isdisjoint({"", discovery.LIVE}):
        name = f"processes:jobs={jobs}"
    executor: Executor = registry.resolve("executors", name).make()
    return executor


@contextmanager
def open_fit(
    fit: FitPlan,
    store: Store,
    how: RunOptions,
    display: MakeDisplay = nullcontext,
    on_window: Callable[[Event], object] = lambda window: None,
) -> Iterator[Evaluation]:
    """Open a model, after its training if the store lacks it.

    Further arguments are those of :func:`run_plan`. ``on_window`` is called after each window of
    the training; an error that it raises ends the training.

    Within the context the display is shown, and the number of threads suits the size of the
    dataset's images.
    """
    from jembench.models import devices
    from jembench.running.caches import FeatureBank, when_free
    from jembench.running.fits import FitWork

    check_options(how)
    store = Store(store.root.absolute())
    with display() as shown:
        device, dataset = devices.resolve(how.device), fit.dataset.make()
        is_trained = store.is_trained(fit.key)
        if not is_trained:
            # missing or damaged images are an error before anything is trained
            for split in ("train", "test"):
                dataset.split(split)
        store.sweep()
        with devices.threads_for(dataset.spec, device):
            trackers = () if is_trained else chosen_trackers(how.trackers)
            with Events(shown, store, trackers) as events, events.reporting(fit.key) as report:
                bank = FeatureBank(dataset, store, device)

                def watched(event: Event) -> None:
                    report(event)
                    if event.kind == "window":
                        on_window(event)

                work = FitWork(
                    fit=fit, bank=bank, store=store, report=watched, deadline=how.deadline
                )
                with when_free(store, fit.key.id):
                    evaluation = work.load_or_train().evaluation()
            yield evaluation
