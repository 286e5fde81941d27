"""Carrying out a plan: train or load each fit, measure its cells, write what comes of it. Finished work is kept."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from jembench import devices, provenance
from jembench.capabilities import capabilities, not_applicable
from jembench.errors import OutOfTime, ProcessLost, StoreError
from jembench.evaluate import FitEvaluation
from jembench.execution import tf32
from jembench.features import FeatureBank
from jembench.fit_samples import write_samples
from jembench.fits import is_sampled, make_model, make_trainer, trained
from jembench.interfaces import Capability, Costly, Dataset, Executor, Metric
from jembench.measure import SETTLED, Measured, failed, measure
from jembench.monitor import Monitor
from jembench.outcome import Cell, Outcome
from jembench.plan import CellPlan, FitPlan, Plan
from jembench.registry import Component
from jembench.store import Store
from jembench.training.team import ALONE, Team, follow

SAMPLES = "samples.png"
"""The picture of a fit's own images, in its folder."""


class Ready(NamedTuple):
    """A fit that was looked at before any second of compute."""

    fit: FitPlan
    dataset: Dataset
    has: frozenset[Capability]
    sampled: bool  # whether its chains are those of the recipe's sampler
    impossible: dict[str, str]  # cell id -> why it is not applicable
    iterations: int
    passes: int  # forward-backward passes of a batch that training takes
    costs: dict[str, int]  # cell id -> passes of an image that a metric takes, where that is worth telling


def look_ahead(plan: Plan, team: Team = ALONE) -> list[Ready]:
    """Load every dataset and build every model once: whatever cannot work is known before anything is trained.

    Raises:
        Unavailable: if a dataset is missing.
        SpecError: if a model cannot be made for a dataset, or its training not be shared out in the team.
    """
    datasets: dict[str, Dataset] = {}
    ready = []
    for fit in plan.fits:
        if fit.key.dataset not in datasets:
            datasets[fit.key.dataset] = fit.dataset.make()
        dataset = datasets[fit.key.dataset]
        looked_at = _look_at(fit, dataset, team)
        has = capabilities(looked_at.model)
        metrics = {cell.id: cell.metric.make() for cell in plan.cells_of(fit)}
        reasons = {cell: not_applicable(metric, has, fit.key.model) for cell, metric in metrics.items()}
        impossible = {cell: reason for cell, reason in reasons.items() if reason}
        costs = _costs({cell: metric for cell, metric in metrics.items() if not reasons[cell]}, dataset, plan)
        sampled = is_sampled(looked_at.model)
        ready.append(Ready(fit, dataset, has, sampled, impossible, looked_at.iterations, looked_at.passes, costs))
    return ready


class _LookedAt(NamedTuple):
    """A model before training, and what that will take."""

    model: nn.Module
    iterations: int
    passes: int


def _look_at(fit: FitPlan, dataset: Dataset, team: Team) -> _LookedAt:
    if fit.model.pretrained:
        return _LookedAt(make_model(fit, dataset), 0, 0)
    trainer = make_trainer(fit, dataset, torch.device("cpu"), team)
    return _LookedAt(trainer.model, trainer.iterations, round(trainer.iterations * trainer.passes))


def _costs(metrics: Mapping[str, Metric], dataset: Dataset, plan: Plan) -> dict[str, int]:
    costly = {cell: metric for cell, metric in metrics.items() if isinstance(metric, Costly)}
    if not costly:
        return {}
    images, limits = len(dataset.split("test").images), {cell.id: cell.limit for cell in plan.cells}
    return {cell: metric.passes(min(images, limits[cell] or images)) for cell, metric in costly.items()}


def carry_out(
    plan: Plan,
    store: Store,
    executor: Executor,
    device: torch.device,
    monitor: Monitor,
    until: float | None = None,
    team: Team = ALONE,
) -> None:
    """Do what is pending. One cell's or fit's failure is recorded and stops no other.

    In a team, this is what the process of rank 0 does; the others :func:`assist`.

    Raises:
        OutOfTime: if ``until``, a value of ``time.monotonic()``, came while a model was trained or attacked.
        ProcessLost: if a process of the team failed or has gone.
        StoreError: if the store cannot be written.
        Unavailable, SpecError: as :func:`look_ahead`.
    """
    cells = [cell for cell in plan.cells if not store.is_settled(cell.id, cell.name)]
    if not cells:
        return
    needed = Plan(plan.suite, cells)
    everything = look_ahead(needed, team)
    store.check_writable()
    banks: dict[str, FeatureBank] = {}
    jobs = []
    for ready in everything:
        bank = banks.setdefault(ready.fit.key.dataset, FeatureBank(ready.dataset, store.features, device))
        jobs.append(_Job(ready, needed, store, bank, monitor, until, team))
    executor.run(jobs)


def assist(fits: Sequence[FitPlan], device: torch.device, team: Team) -> None:
    """Train with rank 0 whichever of the fits it trains, until it needs nobody any more. Nothing is read or written.

    Raises:
        ProcessLost: if a process of the team failed or has gone.
    """
    known = {fit.key.id: fit for fit in fits}
    while fit_id := team.broadcast(""):
        dataset = known[fit_id].dataset.make()
        trainer = make_trainer(known[fit_id], dataset, device, team)
        with devices.threads_for(dataset.spec, device):
            follow(trainer, team)


@dataclasses.dataclass(frozen=True)
class _Job:
    """The work on one fit and its pending cells."""

    ready: Ready
    plan: Plan
    store: Store
    bank: FeatureBank
    monitor: Monitor
    until: float | None
    team: Team

    def __call__(self) -> bool:
        fit = self.ready.fit
        with self.store.lease(fit.key.id) as mine:
            if not mine:
                self.monitor.waiting(fit)
                return False
            cells = [cell for cell in self.plan.cells_of(fit) if not self.store.is_settled(cell.id, cell.name)]
            for cell in cells:
                if reason := self.ready.impossible.get(cell.id):
                    outcome = Outcome(status="na", reason=reason, details=SETTLED)
                    self._write(cell, Measured(outcome, {}))
            with devices.threads_for(self.ready.dataset.spec, self.bank.device):
                self._measure([cell for cell in cells if cell.id not in self.ready.impossible])
        self.monitor.fit_finished(fit)
        return True

    def _measure(self, cells: Sequence[CellPlan]) -> None:
        if not cells:
            return
        try:
            limit, metrics = cells[0].limit, [cell.metric.make() for cell in cells]
            evaluation = trained(self.ready.fit, self.bank, self.store, self.monitor, limit, self.until, self.team)
            evaluation.wanted = frozenset().union(*(getattr(metric, "reads", frozenset()) for metric in metrics))
        except (StoreError, OutOfTime, ProcessLost):
            raise
        except Exception as error:
            for cell in cells:
                self._write(cell, Measured(failed(error), {}))
            return
        self._draw_picture(evaluation)
        unfinished = []
        for cell, metric in zip(cells, metrics, strict=True):
            self.monitor.cell_started(cell)
            evaluation.told = functools.partial(self.monitor.measuring, cell)
            evaluation.used.clear()
            evaluation.metric_code = cell.metric.code
            measured = measure(metric, evaluation)
            self._write(cell, measured, evaluation.used)
            if "partial" in measured.outcome.details:
                unfinished.append(f"{cell.metric} has {measured.outcome.details['partial']}")
        if unfinished:
            raise OutOfTime(
                f"The time is up: of {self.ready.fit.key.model}, {'; '.join(unfinished)}. The same command goes on "
                "from here."
            )

    def _draw_picture(self, evaluation: FitEvaluation) -> None:
        if "samples" not in self.ready.has:
            return
        fit = self.ready.fit
        self.monitor.drawing(fit)
        try:
            write_samples(evaluation, evaluation.samples(), self.store.fit_folder(fit.key) / SAMPLES)
        except StoreError:
            raise
        except Exception as error:
            self.monitor.trouble(fit, f"no picture of the samples: {type(error).__name__}: {error}")

    def _write(self, cell: CellPlan, measured: Measured, used: Iterable[Component] = ()) -> None:
        fit = self.ready.fit
        made_by = [*fit.components(sampled=self.ready.sampled), cell.metric.component, *used]
        record = Cell(
            id=cell.id,
            fit=fit.key,
            metric=str(cell.metric),
            outcome=measured.outcome,
            provenance=provenance.collect(str(self.bank.device), made_by) | self._circumstances(cell),
        )
        self.store.write_cell(record, cell.name, measured.arrays)

    def _circumstances(self, cell: CellPlan) -> dict[str, Any]:
        """What a reader of the number must know of how it came about."""
        fit = self.store.read_fit(self.ready.fit.key)
        return {
            "limit": cell.limit,
            "metric_id": cell.metric.id,
            "interventions": list(fit.interventions) if fit else [],
            "execution": {
                "training": fit.provenance.get("execution") if fit else None,
                "evaluation": {"precision": "float32", "tf32": tf32(self.bank.device)},
            },
        }
