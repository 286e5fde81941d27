"""The execution of units of work in this process."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from jembench import progress, seeds, stopping
from jembench.catalog.discovery import Component
from jembench.errors import (
    OutOfTime,
    PluginError,
    ProcessLost,
    Remark,
    SpecError,
    StoreError,
    error_text,
)
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.experiment.works import Work, planned
from jembench.interfaces import Evaluation, Quantity
from jembench.interfaces.running import Ended
from jembench.models import devices
from jembench.models.capabilities import capabilities, readable
from jembench.models.settings import isolated
from jembench.models.steadiness import unsteady
from jembench.running import events, provenance
from jembench.running.building import make_model, make_trainer
from jembench.running.caches import FeatureBank, when_free
from jembench.running.check import Datasets, look_ahead
from jembench.running.evaluation import TrainedFit
from jembench.running.events import Events, Report
from jembench.running.fit_samples import write_samples
from jembench.running.fits import FitWork
from jembench.running.measure import Arrays, failed, measure, not_applicable
from jembench.running.planned import PlannedFit
from jembench.store import pictures
from jembench.store.fits import FitRecord
from jembench.store.latest import DATASET
from jembench.store.outcome import Cell, Outcome
from jembench.store.store import Store
from jembench.training import processes


@dataclass(frozen=True)
class Worker:
    """A worker that carries out units one after the other.

    Datasets and feature networks are read once for all units.

    Args:
        store: receives the results.
        device: runs the networks.
        events: receives the events.
        skip_missing: True to leave out metrics for which something is missing.
        checked: the fits that were checked before, by their ids.
    """

    store: Store
    device: torch.device
    events: Events
    skip_missing: bool = False
    checked: dict[str, PlannedFit] = field(default_factory=dict)
    datasets: Datasets = field(default_factory=Datasets, init=False)
    banks: dict[str, FeatureBank] = field(default_factory=dict, init=False)

    def carry_out(self, work: Work, plan: Plan | None = None) -> Ended:
        """Carry out the remaining work of a unit, under its lease.

        Args:
            work: the unit.
            plan: the unit's cells; None: the unit is planned again.

        Returns:
            the ending: ``done``, or ``busy`` if another process works on the unit or on the same
            fit.

        Raises:
            OutOfTime: if the unit's deadline passed.
            ProcessLost: if a process of the group failed or has ended.
            StoreError: if the store cannot be written.
            JembenchError: if the unit cannot be carried out here; see
                :func:`~jembench.experiment.works.planned` and
                :func:`~jembench.running.check.look_ahead`.
        """
        with self.store.lease(work.id) as mine:
            if not mine:
                return Ended(id=work.id, how="busy")
            try:
                plan = plan or planned(work, f"the unit of work {work.id}")
                with self.events.reporting(plan.fits[0].key, work) as report:
                    if work.kind == "check":
                        remarks = self._check(work, plan)
                        ended = Ended(id=work.id, how="done", text="\n".join(remarks))
                    else:
                        ended = self._compute(work, plan, report)
            except BaseException as error:
                with suppress(StoreError):  # such as a full disk, which the raised error reports
                    self.store.works.end(work.id, *events.ending_of(error))
                raise
            self.store.works.end(work.id, ended.how, ended.text)
            return ended

    def _check(self, work: Work, plan: Plan) -> list[str]:
        """Check the fit of a unit, and return the remarks.

        Only one worker of a store at a time checks units that may download something.
        """
        texts = [work.model, work.dataset, *(cell.metric for cell in work.cells)]
        alone: AbstractContextManager[None] = nullcontext()
        if any("download" in text for text in texts):
            alone = when_free(self.store, "downloads")
        with alone, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", Remark)
            self.checked.update(self._look_ahead(plan))
        messages = [warning.message for warning in caught]
        return [str(message) for message in messages if isinstance(message, Remark)]

    def _look_ahead(self, plan: Plan) -> Mapping[str, PlannedFit]:
        outlook = look_ahead(plan, self.datasets, self.device)
        outlook.refuse_missing(skip_missing=self.skip_missing)
        return outlook.fits

    def _compute(self, work: Work, plan: Plan, report: Report) -> Ended:
        """Train, measure or attack, as the unit says."""
        (fit,) = plan.fits
        checked = self.checked.get(fit.key.id)
        if checked is None or checked.split != work.split:
            checked = self._look_ahead(plan)[fit.key.id]
        bank = FeatureBank(checked.dataset, self.store, self.device)
        training = FitWork(
            fit=fit,
            bank=self.banks.setdefault(fit.key.dataset, bank),
            store=self.store,
            report=report,
            deadline=work.deadline,
            command=work.command,
            memory=checked.memory,
        )
        within = isolated(f"The work of {fit.key.model}", training.note)
        with devices.threads_for(checked.spec, self.device), within:
            return _Unit(work, plan.cells, checked, training).compute()


@dataclass(frozen=True)
class _Unit:
    """A unit of work, with all that it needs in this process."""

    work: Work
    cells: Sequence[CellPlan]  # including cells that later units compute
    checked: PlannedFit
    training: FitWork
    # remarks on the outputs of the model
    outputs: list[str] = field(default_factory=list, init=False)

    @property
    def store(self) -> Store:
        """The store of the results."""
        return self.training.store

    @property
    def fit(self) -> FitPlan:
        """The fit of the unit."""
        return self.training.fit

    def compute(self) -> Ended:
        """Train the fit if needed, and compute cells or part of an attack.

        Returns:
            the ending: ``done``, with the reason if training failed, or ``busy`` if another process
            works on the fit or on some of the cells.
        """
        store, key = self.store, self.fit.key
        done = Ended(id=self.work.id, how="done")
        is_trained = store.is_trained(key)
        picture = store.fit_folder(key) / pictures.SAMPLES
        has_picture = is_trained and picture.exists()
        cells = self._possible_cells()
        if not cells:
            stopping.check()
            return done

        # train or load the model; its failure becomes the outcome of each cell
        trained = None
        try:
            lease = nullcontext(True) if is_trained else store.lease(key.id)
            with lease as mine, stopping.contained(f"The model {key.model}"):
                if mine:
                    trained = self.training.load_or_train(
                        cells[0].limit, _wanted(cells), cells[0].split
                    )
        except (StoreError, OutOfTime, ProcessLost, SpecError):
            raise
        except Exception as error:
            stopping.check()
            outcome = failed(error)
            for cell in cells:
                self._write(cell, outcome)
            return replace(done, text=outcome.reason)

        # measure the cells of this unit, or a part of an attack
        all_mine = trained is not None
        if trained and self.work.kind == "fit":
            if not has_picture and "samples" in capabilities(trained.model):
                self._draw_picture(trained.evaluation(), picture)
            own_ids = {cell.id for cell in self.work.cells}
            own_cells = [cell for cell in cells if cell.id in own_ids]
            self._examine(own_cells, trained)
            all_mine = self._measure_all(own_cells, trained)
        elif trained:
            # results are cached for the unit that measures; an error happens there again
            for cell in cells:
                self._measure(cell, trained, set())
        stopping.check()
        if not all_mine:
            return replace(done, how="busy")
        return done

    def _possible_cells(self) -> list[CellPlan]:
        """Return the cells to compute, and write the outcomes of impossible cells."""
        cells = []
        for cell in self.cells:
            if self.store.is_settled(cell):
                continue
            if reason := self.checked.reasons.get(str(cell.metric)):
                self._write(cell, not_applicable(reason))
            else:
                cells.append(cell)
        return cells

    def _examine(self, cells: Sequence[CellPlan], trained: TrainedFit) -> None:
        """Report faults of the outputs that the unit's cells read.

        The faults are outputs that are random or depend on the batch, and running statistics that
        cost accuracy.
        """
        needs: set[str] = set()
        for cell in cells:
            with suppress(Exception), stopping.contained("The metric"):  # its cell reports failures
                needs |= cell.metric.make().requires
        if "log_prob" in needs:
            needs.add("energy")
        wanted = readable(trained.model, {"logits", "energy"}) & needs
        if not wanted:
            return

        images, spec = trained.test.images, trained.spec
        network, note = f"The network of {self.fit.key.model}", self.training.note
        # a network that fails here makes the metrics fail, whose outcomes report it
        with suppress(PluginError), progress.phase("comparing passes"), isolated(network, note):
            self._remark(unsteady(trained.model, images, spec, trained.device, wanted))
        try:
            with progress.phase("comparing running statistics"), isolated(network, note):
                # in a wrong range, counted statistics would spoil a right checkpoint
                self._remark(trained.range_remark() or trained.statistics_remark())
        except StoreError:
            raise
        except Exception as error:
            self.training.warn(f"running statistics were not compared: {error_text(error)}")

    def _remark(self, text: str) -> None:
        """Report a remark on the model's outputs, and keep it for cells."""
        if text:
            self.outputs.append(text)
            self.training.warn(text)

    def _measure(
        self, cell: CellPlan, trained: TrainedFit, used: set[Component]
    ) -> tuple[Outcome, Arrays]:
        """Compute a cell, or a part; ``used`` receives the metric's components."""
        name = f"The metric {cell.metric}"
        with progress.phase(f"measuring {cell.metric.spec.bare}"):
            evaluation = trained.evaluation(used, cell.metric.code, self.work.part)
            within = isolated(f"{name} of {self.fit.key.model}", self.training.note)
            try:
                with stopping.contained(name):
                    metric = cell.metric.make()
            except Exception as error:
                return failed(error), {}
            with seeds.drawing(self.fit.seed, f"evaluation/{cell.metric}", trained.device):
                return measure(metric, evaluation, within)

    def _measure_all(self, cells: Sequence[CellPlan], trained: TrainedFit) -> bool:
        """Compute the cells that are free, and return whether all were free."""
        unfinished, all_mine = [], True
        for cell in cells:
            if self.work.is_late:
                raise OutOfTime(
                    f"The time is up before {cell.metric.spec.without('sampler')}. The same "
                    "command goes on from there."
                )
            with self.store.lease(cell.id) as mine:
                all_mine &= bool(mine)
                if not mine or self.store.is_settled(cell):
                    continue
                used: set[Component] = set()
                outcome, arrays = self._measure(cell, trained, used)
                self._write(cell, outcome, arrays, used)
            if "partial" in outcome.details:
                unfinished.append(f"{cell.metric} has {outcome.details['partial']}")
            if stopping.received():
                break
        if unfinished:
            raise OutOfTime(
                f"{stopping.reason()}: of {self.fit.key.model}, {'; '.join(unfinished)}. The same "
                "command goes on from there."
            )
        return all_mine

    def _draw_picture(self, evaluation: Evaluation, picture: Path) -> None:
        try:
            within = isolated(f"The samples of {self.fit.key.model}", self.training.note)
            with progress.phase("drawing samples"), within:
                texts = {pictures.KEY: pictures.seal_for(picture.parent)}
                write_samples(evaluation, evaluation.samples(), picture, texts=texts)
        except StoreError:
            raise
        except Exception as error:
            self.training.warn(f"no picture of the samples: {error_text(error)}")

    def _write(
        self,
        cell: CellPlan,
        outcome: Outcome,
        arrays: Arrays = MappingProxyType({}),
        used: Iterable[Component] = (),
    ) -> None:
        """Write the outcome of a cell with its provenance."""
        fit, training = self.fit, self.training
        made_by = [*fit.components, cell.metric.component, *used]
        trained = self.store.read_fit(fit.key)
        about = {
            **provenance.collect(str(training.bank.device), made_by, training.command),
            "limit": cell.limit,
            "metric_id": cell.metric.id,
            DATASET: fit.dataset.id,
            **_of_training(trained),
        }
        if cell.split != "test":
            about["split"] = cell.split
            outcome = replace(outcome, protocol=cell.protocol(outcome.protocol))
        if self.outputs:
            about["outputs"] = list(self.outputs)
        record = Cell(
            id=cell.id,
            fit=fit.key,
            metric=cell.metric.spec,
            outcome=outcome,
            provenance=about | training.changed,
        )
        self.store.write_cell(record, arrays)
        if event := events.measurement_event(record, trained):
            training.report(event)


def _of_training(record: FitRecord | None) -> dict[str, Any]:
    """Return the part of a cell's provenance about the model's training."""
    training: Mapping[str, Any] = {}
    interventions, stability = list[str](), None
    if record:
        training, interventions = record.provenance, list(record.interventions)
        stability = record.stability
    return {
        "interventions": interventions,
        "stability": stability,
        "training_passes": training.get("passes"),
        "started_from": training.get("started_from"),
        "execution": {
            "training": training.get("execution"),
            "evaluation": {"precision": "float32"},
        },
    }


def _wanted(cells: Sequence[CellPlan]) -> frozenset[Quantity]:
    """Return the quantities that the metrics of cells read."""
    wanted: frozenset[Quantity] = frozenset()
    for cell in cells:
        # an error happens again in the metric's own cell, and becomes its outcome
        with suppress(Exception), stopping.contained(f"The metric {cell.metric}"):
            wanted |= getattr(cell.metric.make(), "reads", frozenset())
    return wanted


def serve_fits(fits: Sequence[FitPlan], device: torch.device) -> None:
    """Take part in the trainings of rank 0, without using the store.

    Raises:
        ProcessLost: if a process of the group failed or has ended.
    """
    fits_by_id = {fit.key.id: fit for fit in fits}
    # torchrun sends signals to all processes; only rank 0 ends the work
    with stopping.deferred():
        while fit_id := processes.group.broadcast(""):
            fit = fits_by_id[fit_id]
            dataset = fit.dataset.make()
            trainer = make_trainer(fit, dataset, device, make_model(fit, dataset))
            with devices.threads_for(dataset.spec, device):
                processes.group.follow(trainer)
