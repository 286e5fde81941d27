"""The entry points of commands and scripts: carry a plan out, or train one model. Imports no torch by itself.

Finished work is kept in the store and found again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from jembench import progress
from jembench.catalog import registry
from jembench.errors import OutOfTime, SpecError, WorkFailed
from jembench.experiment.imports import check_imports
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.recipe import check_shares
from jembench.interfaces import Event
from jembench.running import driver
from jembench.running.events import Events, beating, chosen_trackers
from jembench.running.local import LocalExecutor
from jembench.stopping import Stopped
from jembench.store.outcome import Cell
from jembench.store.store import Store
from jembench.training.processes import launched

if TYPE_CHECKING:
    from jembench.interfaces import Evaluation, Tracker
    from jembench.interfaces.running import Executor

MOST_JOBS = 4
"""Processes that a run starts on the CPU without being asked: each takes the memory of PyTorch."""

LATEST = 90.0
"""Seconds within which all machines see a file. NFS keeps for up to 60 s that there was none (``acdirmax``)."""

Display = Callable[[], "AbstractContextManager[Tracker | None]"]
"""Makes the tracker that shows the progress; with :class:`~contextlib.nullcontext` it is not shown."""


class RunOptions(NamedTuple):
    """The devices, the executor and the limits with which a plan is carried out."""

    device: str = "auto"
    max_hours: float | None = None
    executor: str = "auto"  # auto: this process, or several for several GPUs or trainings on the CPU
    skip_missing: bool = False
    trackers: Sequence[str] | None = None  # specs; None: those of the environment

    @property
    def deadline(self) -> float | None:
        """The time at which the hours are over, UTC in seconds since 1970; None: never."""
        return None if self.max_hours is None else time.time() + 3600 * self.max_hours

    @property
    def tracked_by(self) -> Sequence[str]:
        """The trackers that were chosen."""
        return chosen_trackers() if self.trackers is None else self.trackers


class Finished(NamedTuple):
    """The outcomes of a plan after the work."""

    cells: list[Cell]
    stopped: OutOfTime | Stopped | WorkFailed | None  # why the work ended early; None: it did not


def outcomes(plan: Plan, store: Store) -> list[Cell]:
    """Return the outcomes that the store has of a plan, under the plan's names: a dataset may have been moved."""
    planned = {cell.id: cell for cell in plan.cells}
    return [
        dataclasses.replace(found, fit=planned[found.id].fit.key, metric=str(planned[found.id].metric))
        for found in store.read_cells(plan.cells)
    ]


def check(fits: Iterable[FitPlan], how: RunOptions) -> None:
    """Check that options fit together, and the fits them.

    Raises:
        SpecError: if the fits cannot be trained by that number of processes or by that executor, if there is no
            executor or tracker of that name, or under torchrun.
    """
    if launched().size > 1:
        raise SpecError(
            "torchrun starts no runs, only workers of them (jembench work). Start this command without it, and set how "
            "many processes train a model together: --set processes=N."
        )
    for fit in fits:
        if not fit.is_pretrained:
            check_shares(fit.recipe, fit.recipe.processes)
    if how.executor != "auto":
        executor = registry.resolve("executors", how.executor)
        executor.make()  # which checks its options
        if executor.component.name != "local" and ":" in how.device:
            raise SpecError(
                f"--device is {how.device}, and the executor {how.executor} gives each worker a GPU of its own. Write "
                "--device cuda, cpu or auto."
            )
    for tracker in how.tracked_by:
        registry.resolve("trackers", tracker)


def carry_out(plan: Plan, store: Store, how: RunOptions, display: Display) -> Finished:
    """Train and measure what the store does not have of a plan.

    Args:
        plan: the fits and cells.
        store: where they are kept.
        how: on which devices, and for how long.
        display: shows the progress.

    Returns:
        the outcomes.

    Raises:
        JembenchError: if something is missing, or the store cannot be written. What goes wrong in one cell is its
            outcome.
    """
    check(plan.fits, how)
    check_imports(plan.fits, store)
    store.sweep()
    cells = outcomes(plan, store)
    settled = {cell.id for cell in cells if cell.outcome.is_settled}
    pending = Plan(plan.suite, [cell for cell in plan.cells if cell.id not in settled])
    if not pending.cells:
        return Finished(cells, None)
    cells.clear()  # there may be tens of thousands, and training takes long
    stopped: OutOfTime | Stopped | WorkFailed | None = None
    with showing(display) as shown:
        with progress.phase("loading PyTorch"):
            executor = _executor(pending, store, how)
        trackers = how.tracked_by
        with Events(shown, store, trackers if isinstance(executor, LocalExecutor) else ()) as events:
            try:
                driver.carry_out(
                    pending,
                    store,
                    executor,
                    events,
                    device=how.device,
                    deadline=how.deadline,
                    skip_missing=how.skip_missing,
                    trackers=trackers,
                )
            except (OutOfTime, Stopped, WorkFailed) as error:
                stopped = error
    until = time.monotonic() + LATEST
    while len(cells := outcomes(plan, store)) < len(plan.cells) and not stopped:  # not visible from this machine yet
        if time.monotonic() > until:
            stopped = WorkFailed(
                f"All work has ended, and {len(plan.cells) - len(cells)} of {len(plan.cells)} results are not in the "
                f"store {store.root}, {LATEST:g} s later. Check that all workers write into this folder. The same "
                "command computes what is missing."
            )
        else:
            time.sleep(1.0)
    return Finished(cells, stopped)


@contextmanager
def showing(display: Display) -> Iterator[Tracker | None]:
    """Open the display, which gets what this process is doing."""
    with display() as shown, beating(shown.event) if shown else nullcontext():
        yield shown


def _executor(pending: Plan, store: Store, how: RunOptions) -> Executor:
    """Return the executor that was chosen; for ``auto`` the one that keeps the machine busy."""
    name = _fastest(pending, store, how) if how.executor == "auto" else how.executor
    found: Executor = registry.resolve("executors", name).make()
    return found


def _fastest(pending: Plan, store: Store, how: RunOptions) -> str:
    """Return the executor with a process for each of several GPUs, or without any for each of several trainings.

    What other processes may not find, as objects of this program and code on this one's path, is trained in this one.
    """
    import torch

    fits = [fit for fit in pending.fits if not fit.is_pretrained and not store.is_trained(fit.key)]
    parts = [part for fit in pending.fits for part in fit.components(sampled=True)]
    own = {part.distribution for part in (*parts, *(use for cell in pending.cells for use in cell.metric.uses))}
    gpus = torch.cuda.device_count() if how.device in ("auto", "cuda") else 0
    together = any(fit.recipe.processes > 1 for fit in fits)
    if gpus or together or how.device not in ("auto", "cpu"):
        return "processes" if (gpus > 1 or together) and "live" not in own else "local"
    jobs = min(len(fits), torch.get_num_threads(), MOST_JOBS)
    return "local" if jobs < 2 or own & {"", "live"} else f"processes:jobs={jobs}"


def train(fit: FitPlan, store: Store, how: RunOptions, display: Display) -> None:
    """Train a model in this process unless the store has it; arguments as for :func:`carry_out`."""
    check([fit], how)
    if not store.is_trained(fit.key):
        with open_fit(fit, store, how, display):
            pass


@contextmanager
def open_fit(fit: FitPlan, store: Store, how: RunOptions, display: Display = nullcontext) -> Iterator[Evaluation]:
    """Open a model, trained first if the store does not have it; arguments as for :func:`carry_out`.

    Within the context the display is shown, and the number of threads is that of the dataset's images.
    """
    from jembench.models import devices
    from jembench.running.caches import FeatureBank, when_free
    from jembench.running.fits import FitWork

    with showing(display) as shown:
        device, dataset = devices.resolve(how.device), fit.dataset.make()
        check_imports([fit], store)
        if not store.is_trained(fit.key):
            for split in ("train", "test"):  # missing or damaged images are an error before anything is trained
                dataset.split(split)
        store.sweep()
        store.check_writable()
        with devices.threads_for(dataset.spec, device):
            with Events(shown, store, how.tracked_by) as events:
                report, bank = events.of(fit.key), FeatureBank(dataset, store, device)
                report(Event(kind="progress"))
                work = FitWork(fit=fit, bank=bank, store=store, report=report, deadline=how.deadline)
                with beating(report), when_free(store, fit.key.id):
                    evaluation = work.load_or_train().evaluation()
            yield evaluation
