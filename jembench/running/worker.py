"""Carrying out units of work in this process: a fit is trained, its cells are measured, an attack goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch

from jembench import progress, stopping
from jembench.catalog.discovery import Component
from jembench.errors import OutOfTime, ProcessLost, SpecError, StoreError, error_text, printable
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.experiment.works import Work, planned
from jembench.interfaces import Dataset, Evaluation, Event, Quantity
from jembench.interfaces.running import Ended
from jembench.models import devices
from jembench.running import events, provenance
from jembench.running.caches import FeatureBank, when_free
from jembench.running.check import Datasets, Ready, look_ahead
from jembench.running.evaluation import TrainedFit
from jembench.running.events import Events, beating
from jembench.running.fit_samples import write_samples
from jembench.running.fits import FitWork, make_trainer
from jembench.running.measure import Measured, failed, measure, not_applicable
from jembench.store.fits import FitRecord
from jembench.store.latest import DATASET
from jembench.store.outcome import Cell
from jembench.store.store import Store
from jembench.training import processes

SAMPLES = "samples.png"
"""The picture of a fit's own images, in its folder."""


class Worker:
    """Carries out units of work, one after the other. Datasets and feature networks are read once for all of them.

    Args:
        store: where results go.
        device: where networks run.
        events: get what happens.
        skip_missing: whether metrics that lack something are left out.
        ready: what is known of fits already, by their ids.
    """

    def __init__(
        self,
        store: Store,
        device: torch.device,
        events: Events,
        *,
        skip_missing: bool = False,
        ready: Mapping[str, Ready] | None = None,
    ) -> None:
        self._store = store
        self._device = device
        self._events = events
        self._skip_missing = skip_missing
        self._ready = ready or {}
        self._datasets = Datasets()
        self._banks: dict[str, FeatureBank] = {}

    def carry_out(self, work: Work, plan: Plan | None = None) -> Ended:
        """Do what is left of a unit, under its lease.

        Args:
            work: the unit.
            plan: its cells; None: they are planned again.

        Returns:
            how it ended: ``done``, or ``busy`` if another process works on it or on the same fit.

        Raises:
            OutOfTime: if its deadline came first.
            ProcessLost: if a process of the group failed or has gone.
            StoreError: if the store cannot be written.
            JembenchError: if it cannot be carried out here: see :func:`~jembench.experiment.works.planned` and
                :func:`~jembench.running.check.look_ahead`.
        """
        with self._store.lease(work.id) as mine:
            if not mine:
                return Ended(id=work.id, how="busy")
            try:
                ended = self._carry_out(work, plan)
            except BaseException as error:
                with suppress(StoreError):  # of a full disk: the error that is raised says so
                    self._store.works.end(work.id, events.ending_of(error), printable(str(error)))
                raise
            self._store.works.end(work.id, ended.how, ended.text)
            return ended

    def _carry_out(self, work: Work, plan: Plan | None) -> Ended:
        plan = plan or planned(work, f"the unit of work {work.id}")
        (fit,) = plan.fits
        report = self._events.of(fit.key, work)
        report(Event(kind="progress"))
        with beating(report):
            ready = self._ready.get(fit.key.id) or self._look_at(plan)
            unit = _Unit(
                fit=fit,
                bank=self._bank(fit, ready.dataset),
                store=self._store,
                report=report,
                deadline=work.deadline,
                command=work.command,
                ready=ready,
                cells=plan.cells[: len(work.cells)],
                later=plan.cells[len(work.cells) :],
                part=work.part,
            )
            with devices.threads_for(ready.dataset.spec, self._device), unit.isolated("The work"):
                try:
                    text = unit.measure() if work.kind == "fit" else unit.attack()
                    return Ended(id=work.id, how="done", text=text)
                except _Busy:
                    stopping.check()
                    return Ended(id=work.id, how="busy")

    def open_fit(self, fit: FitPlan, dataset: Dataset, deadline: float | None = None) -> TrainedFit:
        """Load a model, trained first if the store does not have it, once no other process works on it.

        Raises:
            Diverged, OutOfTime, PluginError, ProcessLost, StoreError: as
                :meth:`~jembench.running.fits.FitWork.load_or_train`.
        """
        report = self._events.of(fit.key)
        report(Event(kind="progress"))
        unit = FitWork(fit=fit, bank=self._bank(fit, dataset), store=self._store, report=report, deadline=deadline)
        with beating(report), when_free(self._store, fit.key.id):
            return unit.load_or_train()

    def _look_at(self, plan: Plan) -> Ready:
        outlook = look_ahead(plan, self._datasets)
        outlook.check(skip_missing=self._skip_missing)
        (ready,) = outlook.fits.values()
        return ready

    def _bank(self, fit: FitPlan, dataset: Dataset) -> FeatureBank:
        name = fit.key.dataset
        if name not in self._banks:
            self._banks[name] = FeatureBank(dataset, self._store, self._device)
        return self._banks[name]


class _Busy(Exception):
    """Another process works on the same fit, or on some of the cells."""


@contextmanager
def _alone(store: Store, lease: str) -> Iterator[None]:
    """Hold a lease.

    Raises:
        _Busy: if another process holds it.
    """
    with store.lease(lease) as mine:
        if not mine:
            raise _Busy
        yield


@dataclass(frozen=True, kw_only=True)
class _Unit(FitWork):
    """A unit of work, with all that it needs in this process.

    Its methods return why training failed, or "", and raise :class:`_Busy` if another process is at the same work.
    """

    ready: Ready
    cells: Sequence[CellPlan]
    later: Sequence[CellPlan]
    part: tuple[int, int]

    def measure(self) -> str:
        """Train the fit if a cell needs it, and compute the cells."""
        has_picture = self.store.is_trained(self.fit.key) and (self.folder / SAMPLES).exists()
        possible = self._possible()
        trained = self._trained(possible)
        if trained:
            if not has_picture:
                self._draw_picture(trained.evaluation())
            later = {cell.id for cell in self.later}
            self._measure([cell for cell in possible if cell.id not in later], trained)
        stopping.check()
        failed = None if trained or not possible else self.store.read_cell(possible[0])
        return failed.outcome.reason if failed else ""

    def attack(self) -> str:
        """Attack a part of the images. What is found is kept for the unit that measures.

        So is what goes wrong: it happens there again, and is the outcome.
        """
        possible = self._possible()
        if trained := self._trained(possible):
            for cell in possible:
                with progress.phase(f"measuring {cell.metric}") as shown:
                    evaluation = trained.evaluation(set(), cell.metric.code, shown, self.part)
                    # it ends with PartDone
                    measure(cell.metric.make(), evaluation, self.isolated(f"The metric {cell.metric}"))
        stopping.check()
        return ""

    def _possible(self) -> list[CellPlan]:
        """Return the cells that are to be computed. Of those that cannot be, the reason is their outcome."""
        possible = []
        for cell in (*self.cells, *self.later):
            if self.store.is_settled(cell):
                continue
            if reason := self.ready.reasons.get(str(cell.metric)):
                self._write(cell, Measured(not_applicable(reason), {}))
            else:
                possible.append(cell)
        return possible

    def _trained(self, cells: Sequence[CellPlan]) -> TrainedFit | None:
        """Load the model or train it; None if no cell needs it, or if that failed, which is their outcome."""
        if not cells:
            return None
        wanted: frozenset[Quantity] = frozenset()
        try:
            for cell in cells:
                wanted |= getattr(cell.metric.make(), "reads", frozenset())
            with nullcontext() if self.store.is_trained(self.fit.key) else _alone(self.store, self.fit.key.id):
                return dataclasses.replace(self.load_or_train(cells[0].limit), wanted=wanted)
        except (_Busy, StoreError, OutOfTime, ProcessLost, SpecError):
            raise
        except Exception as error:
            stopping.check()
            for cell in cells:
                self._write(cell, Measured(failed(error), {}))
            return None

    def _measure(self, cells: Sequence[CellPlan], trained: TrainedFit) -> None:
        """Compute cells, as far as no other process is at some of them."""
        unfinished, all_mine = [], True
        for cell in cells:
            if self.deadline is not None and time.time() >= self.deadline:
                raise OutOfTime(f"The time is up before {cell.metric}. The same command goes on from there.")
            with self.store.lease(cell.id) as mine:
                all_mine &= bool(mine)
                if not mine or self.store.is_settled(cell):
                    continue
                used: set[Component] = set()
                with progress.phase(f"measuring {cell.metric}") as shown:
                    evaluation = trained.evaluation(used, cell.metric.code, shown)
                    measured = measure(cell.metric.make(), evaluation, self.isolated(f"The metric {cell.metric}"))
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
        if not all_mine:
            raise _Busy

    def _draw_picture(self, evaluation: Evaluation) -> None:
        if "samples" not in self.ready.has:
            return
        try:
            with progress.phase("drawing samples"), self.isolated("The samples"):
                write_samples(evaluation, evaluation.samples(), self.folder / SAMPLES)
        except StoreError:
            raise
        except Exception as error:
            self.report(Event(kind="warning", text=f"no picture of the samples: {error_text(error)}"))

    def _write(self, cell: CellPlan, measured: Measured, used: Iterable[Component] = ()) -> None:
        made_by = [*self.fit.components(sampled=self.ready.sampled), cell.metric.component, *used]
        fit = self.store.read_fit(self.fit.key)
        made = provenance.collect(str(self.bank.device), made_by, self.command)
        record = Cell(
            id=cell.id,
            fit=self.fit.key,
            metric=str(cell.metric),
            outcome=measured.outcome,
            provenance=made | self._circumstances(cell, fit) | self.changed,
        )
        self.store.write_cell(record, measured.arrays)
        if event := events.measured(record, fit):
            self.report(event)

    def _circumstances(self, cell: CellPlan, fit: FitRecord | None) -> dict[str, Any]:
        """Return what a reader of the number must know of how it came about."""
        return {
            "limit": cell.limit,
            "metric_id": cell.metric.id,
            DATASET: self.fit.dataset.id,
            "interventions": list(fit.interventions) if fit else [],
            "stability": fit.stability._asdict() if fit and fit.stability else None,
            "execution": {
                "training": fit.provenance.get("execution") if fit else None,
                "evaluation": {"precision": "float32"},
            },
        }


def serve_fits(fits: Sequence[FitPlan], device: torch.device) -> None:
    """Take part in each training of rank 0, until rank 0 has ended all. Nothing is read or written.

    Raises:
        ProcessLost: if a process of the group failed or has gone.
    """
    known = {fit.key.id: fit for fit in fits}
    with stopping.deferred():  # torchrun sends a signal to all processes, and rank 0 ends the work of all
        while fit_id := processes.group().broadcast(""):
            dataset = known[fit_id].dataset.make()
            trainer = make_trainer(known[fit_id], dataset, device)
            with devices.threads_for(dataset.spec, device):
                processes.group().follow(trainer)
