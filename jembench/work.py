"""Carrying out a plan: train or load each fit, measure its cells, write what comes of it. Finished work is kept."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from jembench import devices, grid, provenance, seeds
from jembench.adapters.classifier import as_classifier
from jembench.data.holdout import holdout
from jembench.errors import CheckpointError, Diverged, OutOfTime, PluginError, ProcessLost, SpecError, StoreError
from jembench.evaluate import SETTLED, FitEvaluation, Measured, capabilities, failed, measure, not_applicable
from jembench.execution import lay_out
from jembench.features import FeatureBank
from jembench.interfaces import (
    Accompanied,
    Capability,
    Chains,
    Costly,
    Dataset,
    Executor,
    Metric,
    Sampler,
    Samples,
    Source,
    Split,
    Trainable,
)
from jembench.memory import Memory
from jembench.monitor import Monitor
from jembench.outcome import Cell, Outcome
from jembench.registry import Component
from jembench.store import FitRecord, Store
from jembench.suite import CellPlan, FitPlan, Plan
from jembench.training import checkpoint, snapshots
from jembench.training.chains import make_sampler
from jembench.training.checkpoint import load_weights
from jembench.training.fit import fit as train
from jembench.training.loop import Trainer
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
        sampled = _is_sampled(looked_at.model)
        ready.append(Ready(fit, dataset, has, sampled, impossible, looked_at.iterations, looked_at.passes, costs))
    return ready


def _is_sampled(model: Any) -> bool:
    return getattr(model, "chains", "none") != "none" and not isinstance(model, Accompanied)


class _LookedAt(NamedTuple):
    """A model before training, and what that will take."""

    model: nn.Module
    iterations: int
    passes: int


def _look_at(fit: FitPlan, dataset: Dataset, team: Team) -> _LookedAt:
    if fit.model.pretrained:
        return _LookedAt(make_model(fit, dataset), 0, 0)
    trainer = _make_trainer(fit, dataset, torch.device("cpu"), team)
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
        trainer = _make_trainer(known[fit_id], dataset, device, team)
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
        return {"limit": cell.limit, "interventions": list(fit.interventions) if fit else []}


def make_model(fit: FitPlan, dataset: Dataset) -> Any:
    """The model as it is before training: the same each time, even what of it no checkpoint holds.

    A network that has none of a model's methods is taken for a classifier.

    Raises:
        PluginError: if it is no model, or none that can be trained and is not said to be trained already.
    """
    with seeds.initialising(fit.seed):
        model = fit.model.make(dataset.spec)
    if not isinstance(model, nn.Module):
        raise PluginError(f"The model {fit.key.model} is of type {type(model).__name__}; it must be a torch.nn.Module.")
    if not capabilities(model) and not isinstance(model, Trainable):
        model = as_classifier(model, dataset.spec, fit.key.model)
    if not isinstance(model, Trainable) and not fit.model.pretrained:
        raise PluginError(
            f"The model {fit.key.model} cannot be trained: {type(model).__name__} lacks `chains` and `training_loss` "
            "(jembench.interfaces.Trainable). If it has been trained elsewhere, mark its factory: "
            "@jembench.spec.pretrained()."
        )
    if getattr(model, "chains", "none") not in get_args(Chains):
        raise PluginError(
            f"The model {fit.key.model} asks for {model.chains!r} chains; it must be {' or '.join(get_args(Chains))}."
        )
    return model


def _make_trainer(fit: FitPlan, dataset: Dataset, device: torch.device, team: Team) -> Trainer:
    model = make_model(fit, dataset)
    return Trainer(model, dataset.spec, dataset.split("train"), fit.recipe, seed=fit.seed, device=device, team=team)


@contextmanager
def waiting_lease(store: Store, fit: FitPlan, monitor: Monitor) -> Iterator[None]:
    """Hold the right to work on a fit, waiting for whoever has it now."""
    while True:
        with store.lease(fit.key.id) as mine:
            if mine:
                yield
                return
        monitor.waiting(fit)
        time.sleep(1)


def trained(
    fit: FitPlan,
    bank: FeatureBank,
    store: Store,
    monitor: Monitor,
    limit: int | None = None,
    until: float | None = None,
    team: Team = ALONE,
) -> FitEvaluation:
    """The fit's model, loaded from the store or trained now on the bank's dataset and device, ready for evaluation.

    Raises:
        Diverged: if training diverged and no remedy helped; this is recorded in the store.
        OutOfTime: if ``until`` came first.
        ProcessLost: if a process of the team failed or has gone.
        StoreError: if the store cannot be written.
    """
    if not store.has_weights(fit.key):
        (store.fit_folder(fit.key) / "fit.json").unlink(missing_ok=True)  # it must not vouch for those that follow
    if not store.is_trained(fit.key):
        work = _keep if fit.model.pretrained else _train
        work(fit, bank.dataset, store, bank.device, monitor, until, team)
    return _load(fit, bank, store, limit, until)


def _train(
    fit: FitPlan,
    dataset: Dataset,
    store: Store,
    device: torch.device,
    monitor: Monitor,
    until: float | None,
    team: Team,
) -> None:
    monitor.fit_started(fit)
    trainer = _make_trainer(fit, dataset, device, team)
    team.broadcast(fit.key.id)
    folder = store.fit_folder(fit.key)
    start = time.perf_counter()
    blank = _blank_record(fit, trainer.model, device, team.size)
    try:
        fitted = train(trainer, folder, monitor.training, lambda text: monitor.trouble(fit, text), until=until)
    except Diverged as error:
        store.write_fit(blank._replace(status="failed", reason=str(error), seconds=time.perf_counter() - start))
        raise
    store.write_fit(
        blank._replace(
            iteration=fitted.iteration,
            validation_accuracy=fitted.validation_accuracy,
            seconds=fitted.seconds,
            # the first window holds the warm-up, and counts only where there is no other
            iteration_seconds=[row["seconds"] for row in fitted.history[1:] or fitted.history],
            interventions=list(map(str, fitted.interventions)),
        )
    )


def _blank_record(fit: FitPlan, model: nn.Module, device: torch.device, processes: int) -> FitRecord:
    made_by = fit.components(sampled=_is_sampled(model))
    return FitRecord(
        key=fit.key,
        status="done",
        reason="",
        recipe=dataclasses.asdict(fit.recipe),
        iteration=0,
        validation_accuracy=None,
        seconds=0.0,
        iteration_seconds=[],
        interventions=[],
        provenance=provenance.collect(str(device), made_by) | {"processes": processes},
    )


def _keep(fit: FitPlan, dataset: Dataset, store: Store, device: torch.device, *_: Any) -> None:
    """Write a model that was trained elsewhere into its folder, as if it had been trained here."""
    model = make_model(fit, dataset)
    sampler = _sampler(model, fit, dataset, dataset.split("train"))
    folder = store.fit_folder(fit.key)
    checkpoint.write(folder / "sampler.safetensors", sampler.state_dict() if sampler else {})
    checkpoint.write(folder / "model.safetensors", dict(model.state_dict()))
    store.write_fit(_blank_record(fit, model, device, 1))


def _sampler(model: Any, fit: FitPlan, dataset: Dataset, train: Split) -> Sampler | None:
    """The model's own, or that of the recipe."""
    return (
        model.own_sampler() if isinstance(model, Accompanied) else make_sampler(model, dataset.spec, fit.recipe, train)
    )


def _load(fit: FitPlan, bank: FeatureBank, store: Store, limit: int | None, until: float | None) -> FitEvaluation:
    folder, dataset = store.fit_folder(fit.key), bank.dataset
    model = make_model(fit, dataset)
    weights = folder / "model.safetensors"
    _load_weights(model, fit, weights)
    lay_out(model.to(bank.device), dataset.spec)
    options = fit.recipe.data
    held = holdout(dataset.split("train"), options.validation, stratified=options.stratified)
    sampler = _sampler(model, fit, dataset, held.train)
    if sampler is not None:
        sampler.load_state_dict(checkpoint.read(folder / "sampler.safetensors"))
    record = store.read_fit(fit.key)
    assert record is not None
    return FitEvaluation(
        model=model.eval(),
        sampler=sampler,
        data=dataset.spec,
        dataset=dataset,
        device=bank.device,
        seed=fit.seed,
        limit=limit,
        iteration_seconds=record.iteration_seconds,
        bank=bank,
        conditional=fit.recipe.chains.conditional,
        held=held,
        buffers=lambda: snapshots.read(folder),
        until=until,
        memory=Memory(store.readings, [weights]),
        pretrained=fit.model.pretrained is not None,
    )


def _load_weights(model: nn.Module, fit: FitPlan, path: Path) -> None:
    state = checkpoint.read(path)
    if fit.model.pretrained and not _same(model.state_dict(), state):
        raise CheckpointError(
            f"The weights of {fit.key.model} have changed since they were first measured, and its results would be "
            f"mixed up. Give the new ones another name or option, use another --store, or remove {path.parent}."
        )
    load_weights(model, state)


def _same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name].cpu(), other[name]) for name in one)


def generates_nothing(fit: FitPlan) -> SpecError:
    """The error of who asks a model for images that has none."""
    why = "it neither draws them nor has chains" if fit.model.pretrained else "it is trained without chains"
    return SpecError(f"{fit.key.model} generates no images: {why}. Choose a model that does.")


def samples_of(evaluation: FitEvaluation, fit: FitPlan, steps: int | None) -> Samples:
    """The images that the model keeps or draws, or those of new chains of so many steps.

    Raises:
        SpecError: if the model does not generate, or has no chains.
    """
    if "samples" not in capabilities(evaluation.model):
        raise generates_nothing(fit)
    if steps is None:
        return evaluation.samples()
    if evaluation.sampler is None:
        raise SpecError(f"{fit.key.model} draws its images directly, without a chain. Leave --steps out.")
    return evaluation.samples(Source(chains="fresh", steps=steps))


def write_samples(evaluation: FitEvaluation, samples: Samples, path: Path, columns: int = 10) -> bool:
    """Write a picture of a model's images: a row a class, the one each was drawn for or the one the model sees.

    Those of a model without classes come in no order. Which images are shown is drawn at random; none is selected for
    its looks.

    Returns:
        whether there is a row a class.
    """
    classes = samples.labels
    if classes is None and "logits" in capabilities(evaluation.model):
        classes = evaluation.read("logits", samples.images).argmax(1)
    generator = evaluation.generator("grid")
    if classes is None:
        chosen = grid.at_random(len(samples.images), columns, generator)
    else:
        chosen = grid.by_class(classes, evaluation.data.num_classes, columns, generator)
    grid.write_png(path, samples.images, chosen)
    return classes is not None
