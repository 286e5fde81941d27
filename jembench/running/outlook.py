"""A look at a plan before training: every dataset is read, every model built and every metric asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from jembench import progress
from jembench.catalog.registry import Resolved
from jembench.data.datasets import absent, present
from jembench.errors import JembenchError, NotApplicable, Unavailable
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.interfaces import Dataset
from jembench.interfaces.evaluation import Checked
from jembench.interfaces.models import Capability
from jembench.models.capabilities import capabilities, is_fitted
from jembench.models.settings import isolated
from jembench.running.fits import is_sampled, make_model, make_trainer
from jembench.running.planned import PlannedData, PlannedFit
from jembench.stopping import INTERRUPTS
from jembench.training import snapshots
from jembench.training.loop import make_sampler


class Ready(NamedTuple):
    """The state of a fit before it is trained."""

    fit: FitPlan
    dataset: Dataset
    has: frozenset[Capability]
    sampled: bool  # whether its chains are those of the recipe's sampler
    iterations: int
    reasons: dict[str, Unavailable]  # metric -> why it is not applicable, or what it lacks, with the remedy

    def missing(self, metric: str) -> str:
        """Return what a metric lacks that could be had; "" if it can be computed, or never can."""
        reason = self.reasons.get(metric)
        return "" if reason is None or isinstance(reason, NotApplicable) else str(reason)


class Outlook(NamedTuple):
    """The state of a plan before it is carried out."""

    plan: Plan
    fits: dict[str, Ready]  # by their ids; without those of a dataset of which nothing is known
    absent: dict[str, str]  # dataset -> why it is not here, with the remedy

    def check(self, *, skip_missing: bool) -> None:
        """Refuse a plan that lacks something.

        Args:
            skip_missing: whether metrics may be left out that lack something.

        Raises:
            Unavailable: with all that is missing, and the remedies.
        """
        lacking: dict[str, list[str]] = {}
        for cell in self.plan.cells:
            ready = self.fits.get(cell.fit.key.id)
            if ready and (reason := ready.missing(str(cell.metric))):
                lacking.setdefault(reason, []).append(cell.metric.component.name)
        reasons = [f"{', '.join(dict.fromkeys(metrics))}: {reason}" for reason, metrics in lacking.items()]
        if self.absent:
            raise Unavailable(" ".join([*self.absent.values(), *reasons]))
        if lacking and not skip_missing:
            count = sum(map(len, lacking.values()))
            raise Unavailable(
                f"Something is missing for {count} of {len(self.plan.cells)} outcomes, and nothing was started. "
                f"{' '.join(reasons)} Or leave them out for now with --skip-missing: the same command adds them once "
                "nothing is missing."
            )


def look_ahead(plan: Plan, here: Datasets | None = None) -> Outlook:
    """Read every dataset, build every model and ask every metric once: what cannot work is known before training.

    Args:
        plan: the cells that are to be computed.
        here: the datasets that were read before.

    Raises:
        Unavailable: if a dataset is missing.
        SpecError: if a model cannot be made for a dataset, its training cannot work, or an option of a metric fits
            neither.
    """
    here = here or Datasets()
    families: dict[str, list[FitPlan]] = {}
    for fit in plan.fits:
        families.setdefault(fit.key.family, []).append(fit)
    found: dict[str, Ready] = {}
    for fits in families.values():
        if data := here.find(fits[0], plan.cells_of(fits[0])[0].limit):
            found |= _look_at(fits, plan, data)
    return Outlook(plan, {fit.key.id: found[fit.key.id] for fit in plan.fits if fit.key.id in found}, here.absent)


class Datasets:
    """The datasets of plans, each read once.

    Args:
        dry: whether nothing may be downloaded, and a missing dataset is recorded instead of raised.
    """

    def __init__(self, *, dry: bool = False) -> None:
        self.dry = dry
        self.absent: dict[str, str] = {}
        self._found: dict[tuple[str, int | None], PlannedData | None] = {}

    def find(self, fit: FitPlan, limit: int | None) -> PlannedData | None:
        """Return the dataset, or what is known of it without its images; None: nothing is."""
        key = fit.key.dataset, limit
        if key not in self._found:
            with progress.phase(f"reading {key[0]}"):
                made = self._make(fit.dataset, fit.absent)
            self._found[key] = PlannedData(dataset=made, limit=limit, fetching=not self.dry) if made else None
        return self._found[key]

    def _make(self, dataset: Resolved, missing: str) -> Dataset | None:
        try:
            if missing:
                raise Unavailable(missing)
            with isolated(f"The dataset {dataset}"):
                made = present(dataset) if self.dry else dataset.make()
                made.split("train"), made.split("test")  # damaged images are found before training
            return made
        except Unavailable as error:
            if not self.dry:
                raise
            if not dataset.bound.arguments.get("download"):
                self.absent[str(dataset)] = str(error)
            return absent(dataset)


def _to_be_noted(text: str) -> None:
    """Say nothing of settings that a plugin left changed: the unit of work will."""


def _look_at(fits: Sequence[FitPlan], plan: Plan, data: PlannedData) -> dict[str, Ready]:
    """Look at one model before training, with all of its seeds."""
    name = fits[0].key.model
    with progress.phase(f"building {name}"), isolated(f"The training of {name}", _to_be_noted):
        planned, iterations = _planned(fits[0], data)
    has, sampled = capabilities(planned.model), is_sampled(planned.model)
    ready = Ready(fits[0], data.dataset, has, sampled, iterations, {})
    for cell in {str(cell.metric): cell for fit in fits for cell in plan.cells_of(fit)}.values():
        with isolated(f"The metric {cell.metric}", _to_be_noted):
            _judge(cell, planned, ready)
    return {fit.key.id: ready._replace(fit=fit) for fit in fits}


def _planned(fit: FitPlan, data: PlannedData) -> tuple[PlannedFit, int]:
    """Return the model before training, and the iterations of its training."""
    model = make_model(fit, data.dataset, _to_be_noted)
    if fit.is_pretrained or is_fitted(model):
        sampler = make_sampler(model, data.dataset.spec, fit.recipe, data.dataset.split("train"))
        held = 0 if fit.is_pretrained else fit.recipe.data.validation
        pretrained = fit.is_pretrained
        return PlannedFit(model=model, sampler=sampler, of=data, validation=held, pretrained=pretrained), 0
    trainer = make_trainer(fit, data.dataset, torch.device("cpu"), model)
    planned = PlannedFit(
        model=trainer.model,
        sampler=trainer.sampler,
        of=data,
        validation=fit.recipe.data.validation,
        buffers=snapshots.expected(trainer),
    )
    return planned, trainer.iterations


def _judge(cell: CellPlan, planned: PlannedFit, ready: Ready) -> None:
    """Note what a metric says of a fit beforehand."""
    metric, name = cell.metric.make(), str(cell.metric)
    try:
        planned.require(metric.requires, cell.fit.key.model)
        if isinstance(metric, Checked):
            metric.check(planned)
    except Unavailable as error:
        ready.reasons[name] = error
    except (JembenchError, *INTERRUPTS):
        raise
    except BaseException:  # a plugin's own: it becomes the outcome of this cell, and stops no other
        return
