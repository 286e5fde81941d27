"""Carrying out a plan: train or load each fit, evaluate its cells, write the results. Finished work is kept."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jembench import stopping
from jembench.catalog.discovery import Component
from jembench.errors import OutOfTime, ProcessLost, StoreError
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.interfaces import Evaluation, Event, Executor, Tracker
from jembench.models import devices
from jembench.models.execution import tf32
from jembench.running import provenance
from jembench.running.caches import FeatureBank
from jembench.running.events import Events
from jembench.running.fit_samples import write_samples
from jembench.running.fits import FitWork, make_trainer
from jembench.running.measure import SETTLED, Measured, failed, measure
from jembench.running.outlook import Ready, look_ahead
from jembench.store.latest import DATASET
from jembench.store.outcome import Cell, Outcome
from jembench.store.store import Store
from jembench.training.processes import SINGLE, ProcessGroup, serve

SAMPLES = "samples.png"
"""The picture of a fit's own images, in its folder."""


def carry_out(
    plan: Plan,
    store: Store,
    executor: Executor,
    device: torch.device,
    display: Tracker | None = None,
    until: float | None = None,
    group: ProcessGroup = SINGLE,
    *,
    skip_missing: bool = False,
) -> None:
    """Do what is pending. One cell's or fit's failure is recorded and stops no other.

    In a group, this is what the process of rank 0 does; the others :func:`serve_fits`.

    Raises:
        OutOfTime: if ``until``, a value of ``time.monotonic()``, came while a model was trained or attacked.
        ProcessLost: if a process of the group failed or has gone.
        StoreError: if the store cannot be written.
        Unavailable: if something is missing; with ``skip_missing``, if it is a dataset.
        SpecError: as :func:`look_ahead`.
    """
    cells = [cell for cell in plan.cells if not store.is_settled(cell.id, cell.name)]
    if not cells:
        return
    events = Events(display)
    needed = Plan(plan.suite, cells)
    outlook = look_ahead(needed, group)
    outlook.check(needed, skip_missing=skip_missing)
    store.check_writable()
    banks: dict[str, FeatureBank] = {}
    jobs = []
    for ready in outlook.fits.values():
        bank = banks.setdefault(ready.fit.key.dataset, FeatureBank(ready.dataset, store, device))
        jobs.append(
            _Job(
                fit=ready.fit,
                bank=bank,
                store=store,
                report=events.of(ready.fit.key),
                until=until,
                group=group,
                ready=ready,
                cells=needed.cells_of(ready.fit),
            )
        )
    executor.run(jobs)


def serve_fits(fits: Sequence[FitPlan], device: torch.device, group: ProcessGroup) -> None:
    """Train with rank 0 whichever of the fits it trains, until it needs no more help. Nothing is read or written.

    Raises:
        ProcessLost: if a process of the group failed or has gone.
    """
    known = {fit.key.id: fit for fit in fits}
    with stopping.deferred():  # rank 0 learns of a signal after some iterations, and ends the work of all
        while fit_id := group.broadcast(""):
            dataset = known[fit_id].dataset.make()
            trainer = make_trainer(known[fit_id], dataset, device, group)
            with devices.threads_for(dataset.spec, device):
                serve(trainer, group)


@dataclass(frozen=True, kw_only=True)
class _Job(FitWork):
    """The work on one fit and its pending cells."""

    ready: Ready
    cells: Sequence[CellPlan]

    def __call__(self) -> bool:
        with self.store.lease(self.fit.key.id) as mine:
            if not mine:
                self.report(Event(kind="waiting"))
                return False
            possible = []
            for cell in self.cells:
                if self.store.is_settled(cell.id, cell.name):
                    continue
                if reason := self.ready.impossible.get(str(cell.metric)):
                    self._write(cell, Measured(Outcome(status="na", reason=reason, details=SETTLED), {}))
                elif reason := self.ready.missing.get(str(cell.metric)):
                    self._write(cell, Measured(Outcome(status="na", reason=reason), {}))
                else:
                    possible.append(cell)
            with devices.threads_for(self.ready.dataset.spec, self.bank.device):
                self._measure(possible)
        self.report(Event(kind="finished"))
        return True

    def _measure(self, cells: Sequence[CellPlan]) -> None:
        if not cells:
            return
        try:
            metrics = [cell.metric.make() for cell in cells]
            wanted = frozenset().union(*(getattr(metric, "reads", frozenset()) for metric in metrics))
            trained = dataclasses.replace(self.load_or_train(cells[0].limit), wanted=wanted)
        except (StoreError, OutOfTime, ProcessLost):
            raise
        except Exception as error:
            stopping.check()
            for cell in cells:
                self._write(cell, Measured(failed(error), {}))
            return
        self._draw_picture(trained.evaluation())
        unfinished = []
        for cell, metric in zip(cells, metrics, strict=True):
            self.report(Event(kind="measuring", metric=str(cell.metric)))
            used: set[Component] = set()
            progress = functools.partial(self._measuring, str(cell.metric))
            measured = measure(metric, trained.evaluation(used, cell.metric.code, progress))
            self._write(cell, measured, used)
            if "partial" in measured.outcome.details:
                unfinished.append(f"{cell.metric} has {measured.outcome.details['partial']}")
            if stopping.received():
                break
        if unfinished:
            raise OutOfTime(
                f"{stopping.reason()}: of {self.fit.key.model}, {'; '.join(unfinished)}. The same command goes "
                "on from there."
            )
        stopping.check()

    def _measuring(self, metric: str, done: int, total: int) -> None:
        self.report(Event(kind="measuring", metric=metric, done=done, total=total))

    def _draw_picture(self, evaluation: Evaluation) -> None:
        if "samples" not in self.ready.has:
            return
        self.report(Event(kind="sampling"))
        try:
            write_samples(evaluation, evaluation.samples(), self.folder / SAMPLES)
        except StoreError:
            raise
        except Exception as error:
            self.report(Event(kind="warning", text=f"no picture of the samples: {type(error).__name__}: {error}"))

    def _write(self, cell: CellPlan, measured: Measured, used: Iterable[Component] = ()) -> None:
        made_by = [*self.fit.components(sampled=self.ready.sampled), cell.metric.component, *used]
        record = Cell(
            id=cell.id,
            fit=self.fit.key,
            metric=str(cell.metric),
            outcome=measured.outcome,
            provenance=provenance.collect(str(self.bank.device), made_by) | self._circumstances(cell),
        )
        self.store.write_cell(record, cell.name, measured.arrays)

    def _circumstances(self, cell: CellPlan) -> dict[str, Any]:
        """What a reader of the number must know of how it came about."""
        fit = self.store.read_fit(self.fit.key)
        return {
            "limit": cell.limit,
            "metric_id": cell.metric.id,
            DATASET: self.fit.dataset.id,
            "interventions": list(fit.interventions) if fit else [],
            "stability": fit.stability._asdict() if fit and fit.stability else None,
            "execution": {
                "training": fit.provenance.get("execution") if fit else None,
                "evaluation": {"precision": "float32", "tf32": tf32(self.bank.device)},
            },
        }
