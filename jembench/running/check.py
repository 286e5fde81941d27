"""The check of a plan before training.

It reads every dataset, builds every model and checks every metric.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from jembench import progress
from jembench.data.datasets import blank, make
from jembench.errors import JembenchError, NotApplicable, Remark, Unavailable
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.recipe import are_own_images
from jembench.interfaces import Dataset
from jembench.interfaces.evaluation import Checked
from jembench.interfaces.models import Capability
from jembench.models.capabilities import capabilities, is_fitted
from jembench.models.settings import isolated
from jembench.running import selection
from jembench.running.building import make_model, make_trainer
from jembench.running.evaluation import limited
from jembench.running.planned import PlannedFit
from jembench.stopping import is_request
from jembench.training import snapshots
from jembench.training.loop import make_sampler


class Ready(NamedTuple):
    """The state of a fit before it is trained."""

    dataset: Dataset
    has: frozenset[Capability]
    iterations: int
    # metric -> the reason why it cannot be computed, with the remedy
    reasons: dict[str, Unavailable]


class Outlook(NamedTuple):
    """The results of the check of a plan."""

    plan: Plan
    fits: dict[str, Ready]  # by id, except those of a missing dataset of unknown shape and size
    absent: dict[str, str]  # dataset -> why it is missing, with the remedy

    def refuse_missing(self, *, skip_missing: bool) -> None:
        """Check that nothing is missing for a plan.

        Args:
            skip_missing: True to leave out metrics for which something is missing.

        Raises:
            Unavailable: listing all that is missing, with the remedies.
        """
        lacking: dict[str, list[str]] = {}
        for cell in self.plan.cells:
            ready = self.fits.get(cell.fit.key.id)
            reason = ready.reasons.get(str(cell.metric)) if ready else None
            if reason and not isinstance(reason, NotApplicable):
                lacking.setdefault(str(reason), []).append(cell.metric.component.name)
        reasons = [
            f"{', '.join(dict.fromkeys(metrics))}: {reason}" for reason, metrics in lacking.items()
        ]
        if self.absent:
            raise Unavailable(" ".join([*self.absent.values(), *reasons]))
        if lacking and not skip_missing:
            raise Unavailable(
                f"Something is missing, and nothing was started. {' '.join(reasons)} Or leave "
                "them out for now with --skip-missing: the same command adds them once nothing "
                "is missing."
            )


@dataclass(frozen=True)
class Datasets:
    """The datasets of plans, each read once.

    Args:
        dry: True to download nothing, and to record a missing dataset instead of raising an error.
    """

    dry: bool = False
    # dataset -> why it is missing, with the remedy
    absent: dict[str, str] = field(default_factory=dict)
    data: dict[tuple[str, int | None], PlannedFit | None] = field(default_factory=dict)

    def find(self, fit: FitPlan, limit: int | None) -> PlannedFit | None:
        """Return the fits' dataset.

        With ``dry``, a missing one has blank images, or is None if its size is unknown.

        Raises:
            Unavailable: if it is missing and ``dry`` is False.
        """
        key = fit.key.dataset, limit
        if key in self.data:
            return self.data[key]
        dataset, made = fit.dataset, None
        try:
            if fit.absent:
                raise Unavailable(fit.absent)
            with progress.phase(f"reading {key[0]}"), isolated(f"The dataset {dataset}"):
                made = make(dataset, download=False) if self.dry else dataset.make()
                made.split("train"), made.split("test")  # reports damaged images before training
        except Unavailable as error:
            if not self.dry:
                raise
            if not dataset.arguments.get("download"):
                self.absent[str(dataset)] = str(error)
            made = blank(make(dataset, download=True)) if "download" in dataset.arguments else None
        test = limited(made.split("test"), limit) if made else None
        self.data[key] = (
            PlannedFit(dataset=made, test=test, fetching=not self.dry) if made and test else None
        )
        return self.data[key]


def _remark_on_flips(fit: FitPlan) -> None:
    """Say once that images of a folder or array are mirrored, unless asked for."""
    recipe, name = fit.recipe, fit.dataset.name
    if recipe.data.flip and "data.flip=true" not in recipe.overrides and are_own_images(name):
        warnings.warn(
            f"Half of the training images of {name} are mirrored. Where a mirrored image is of "
            "another class, as with letters: --set data.flip=false.",
            Remark,
            stacklevel=2,
        )


def look_ahead(plan: Plan, datasets: Datasets | None = None) -> Outlook:
    """Read every dataset, build every model and check every metric.

    Errors are then known before training.

    Args:
        plan: the cells to compute.
        datasets: those that were read before.

    Raises:
        Unavailable: if a dataset is missing.
        SpecError: if a model cannot be made for a dataset, its training cannot work, or an option
            of a metric fits neither.
    """
    datasets = datasets or Datasets()
    families: dict[str, list[FitPlan]] = {}
    for fit in plan.fits:
        families.setdefault(fit.key.family, []).append(fit)
    ready: dict[str, Ready] = {}
    for fits in families.values():  # which differ only in their seeds
        fit, iterations, buffers = fits[0], 0, 0
        data = datasets.find(fit, plan.cells_of(fit)[0].limit)
        if data is None:
            continue
        with (
            progress.phase(f"building {fit.requested}"),
            isolated(f"The training of {fit.requested}", _ignore),
        ):
            model = make_model(fit, data.dataset, _ignore)
            if fit.is_pretrained or is_fitted(model):
                sampler = make_sampler(model, data.spec, fit.recipe, data.dataset.split("train"))
            else:
                _remark_on_flips(fit)
                trainer = make_trainer(fit, data.dataset, torch.device("cpu"), model)
                sampler, iterations, buffers = (
                    trainer.sampler,
                    trainer.iterations,
                    len(snapshots.moments(trainer)),
                )
        held = 0 if fit.is_pretrained else fit.recipe.data.validation
        start = {"model": model, "sampler": sampler, "validation": held, "buffers": buffers}
        start |= {
            "pretrained": fit.is_pretrained,
            "content": "" if fit.absent else fit.dataset.content,
        }
        planned = replace(data, **start)
        for selecting in selection.metrics(fit.recipe).values() if iterations else ():
            on_held = replace(planned, test=trainer.held.validation or planned.test)
            on_held.require(selecting.requires)
            if isinstance(selecting, Checked):
                selecting.check(on_held)
        reasons: dict[str, Unavailable] = {}
        for name, metric in {
            str(cell.metric): cell.metric for fit in fits for cell in plan.cells_of(fit)
        }.items():
            with isolated(f"The metric {name}", _ignore):
                try:
                    made = metric.make()
                    planned.require(made.requires)
                    if isinstance(made, Checked):
                        made.check(planned)
                except Unavailable as error:
                    reasons[name] = error
                except BaseException as error:  # one of a plugin becomes the outcome of its cell
                    if isinstance(error, JembenchError) or is_request(error):
                        raise
        state = Ready(data.dataset, capabilities(model), iterations, reasons)
        ready |= {fit.key.id: state for fit in fits}
    return Outlook(plan, ready, datasets.absent)


def _ignore(text: str) -> None:
    """Ignore the message about changed settings, which the unit of work repeats."""
