"""A check of a plan before training: every dataset is read, every model built and every metric asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import torch

from jembench import progress
from jembench.catalog import registry
from jembench.data.datasets import absent, count, present
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import JembenchError, NotApplicable, Unavailable
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.interfaces import Dataset, DataSpec, FeatureNetwork, Generative, Need, Sampler, Source, Split
from jembench.interfaces.evaluation import KEPT, Checked
from jembench.interfaces.models import Capability
from jembench.models.capabilities import capabilities, is_differentiable, is_fitted, require_gradients
from jembench.models.settings import isolated
from jembench.running.evaluation import FRESH_SAMPLES, check_source, limited, no_validation
from jembench.running.fits import is_sampled, make_model, make_trainer
from jembench.sampling.chain import require_chains
from jembench.stopping import INTERRUPTS
from jembench.store.store import Store
from jembench.training import snapshots
from jembench.training.loop import make_sampler


class Ready(NamedTuple):
    """The state of a fit before it is trained."""

    dataset: Dataset
    has: frozenset[Capability]
    sampled: bool  # whether its chains are those of the recipe's sampler
    iterations: int
    reasons: dict[str, Unavailable]  # metric -> why it is not applicable, or what it lacks, with the remedy


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
            reason = ready.reasons.get(str(cell.metric)) if ready else None
            if reason and not isinstance(reason, NotApplicable):
                lacking.setdefault(str(reason), []).append(cell.metric.component.name)
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


class Datasets:
    """The datasets of plans, each read once.

    Args:
        dry: whether nothing may be downloaded, and a missing dataset is recorded instead of raised.
    """

    def __init__(self, *, dry: bool = False) -> None:
        self._dry = dry
        self.absent: dict[str, str] = {}  # dataset -> why it is not here, with the remedy
        self._found: dict[tuple[str, int | None], PlannedFit | None] = {}

    def find(self, fit: FitPlan, limit: int | None) -> PlannedFit | None:
        """Return the dataset, or what is known of it without its images; None: nothing is.

        Raises:
            Unavailable: if it is missing; not with ``dry``.
        """
        key = fit.key.dataset, limit
        if key in self._found:
            return self._found[key]
        dataset, made = fit.dataset, None
        try:
            if fit.absent:
                raise Unavailable(fit.absent)
            with progress.phase(f"reading {key[0]}"), isolated(f"The dataset {dataset}"):
                made = present(dataset) if self._dry else dataset.make()
                made.split("train"), made.split("test")  # damaged images are found before training
        except Unavailable as error:
            if not self._dry:
                raise
            if not dataset.bound.arguments.get("download"):
                self.absent[str(dataset)] = str(error)
            made = absent(dataset)
        test = limited(made.split("test"), limit) if made else None
        self._found[key] = PlannedFit(dataset=made, test=test, fetching=not self._dry) if made and test else None
        return self._found[key]


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
            found |= dict.fromkeys([fit.key.id for fit in fits], _look_at(fits, plan, data))
    return Outlook(plan, found, here.absent)


def _look_at(fits: Sequence[FitPlan], plan: Plan, data: PlannedFit) -> Ready:
    """Look at one model before training, with all of its seeds."""
    fit, dataset, iterations, buffers = fits[0], data.dataset, 0, 0
    name = fit.key.model
    with progress.phase(f"building {name}"), isolated(f"The training of {name}", _keep_for_later):
        model = make_model(fit, dataset, _keep_for_later)
        if fit.is_pretrained or is_fitted(model):
            sampler = make_sampler(model, dataset.spec, fit.recipe, dataset.split("train"))
        else:
            trainer = make_trainer(fit, dataset, torch.device("cpu"), model)
            sampler, iterations, buffers = trainer.sampler, trainer.iterations, snapshots.expected(trainer)
    held = 0 if fit.is_pretrained else fit.recipe.data.validation
    start = {"model": model, "sampler": sampler, "validation": held, "buffers": buffers}
    planned = replace(data, **start, pretrained=fit.is_pretrained)
    reasons = {}
    for metric, cell in {str(cell.metric): cell for fit in fits for cell in plan.cells_of(fit)}.items():
        with isolated(f"The metric {metric}", _keep_for_later):
            if reason := _reason(cell, planned):
                reasons[metric] = reason
    return Ready(dataset, capabilities(model), is_sampled(model), iterations, reasons)


def _keep_for_later(text: str) -> None:
    """Say nothing of settings that a plugin left changed: the unit of work will."""


def _reason(cell: CellPlan, planned: PlannedFit) -> Unavailable | None:
    """Return why a metric cannot be computed on a fit, as far as it is known beforehand."""
    metric = cell.metric.make()
    try:
        planned.require(metric.requires, cell.fit.key.model)
        if isinstance(metric, Checked):
            metric.check(planned)
    except Unavailable as error:
        return error
    except (JembenchError, *INTERRUPTS):
        raise
    except BaseException:  # a plugin's own: it becomes the outcome of this cell, and stops no other
        pass
    return None


# --- a fit before it is trained, as its metrics see it ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlannedFit:
    """The :class:`~jembench.interfaces.Planned` of a model at its start; without a model, what all models share."""

    dataset: Dataset
    test: Split  # the test images under evaluation
    fetching: bool  # whether downloads may be made now
    drawn: set[str] = field(default_factory=set)  # OOD sets that can be drawn
    networks: dict[str, FeatureNetwork] = field(default_factory=dict)  # that can be used
    model: Any = None
    sampler: Sampler | None = None
    validation: int = 0  # images that the recipe holds out
    buffers: int = 0  # of the last epochs, that training will keep
    pretrained: bool = False

    def require(self, needs: frozenset[Need], name: str) -> None:
        """Check that the fit will give what a metric needs; ``name`` is the model's.

        Raises:
            NotApplicable: with what is missing.
        """
        known: tuple[Need, ...] = get_args(Capability)
        has = capabilities(self.model)
        if missing := sorted(needs & set(known) - has):
            given = " and ".join(capability for capability in known if capability in has)
            given = f"{given} only" if given else "nothing"
            raise NotApplicable(f"needs {' and '.join(missing)}: {name} gives {given}")
        if "labels" in needs and self.test.labels is None:
            raise NotApplicable(f"The dataset {self.spec.name} has no labels, so there is nothing to classify.")
        if "validation" in needs and not self.validation:
            raise no_validation(self.count("train"), pretrained=self.pretrained)
        if "chains" in needs:
            require_chains(self.sampler)
        if "buffer" in needs and self._kept() == 0:
            raise NotApplicable("The model keeps no chains, or not their ages: only a replay buffer does.")
        if "gradients" in needs:
            require_gradients(is_differentiable(self.model))
        if "training" in needs and self.pretrained:
            raise NotApplicable("The model was trained elsewhere: nothing is known of its training.")

    @property
    def spec(self) -> DataSpec:
        """The description of the images."""
        return self.dataset.spec

    def count(self, images: Literal["test", "train"]) -> int:
        """Return the number of test images under evaluation, or of the whole training split."""
        return len(self.test.images) if images == "test" else count(self.dataset, "train")

    def samples(self, source: Source = KEPT) -> int | None:
        """Return how many images of its own the model will have; None: its sampler does not say how many it keeps."""
        kept = self._kept()
        buffers = 0 if kept == 0 else self.buffers
        check_source(source, chains=self.sampler is not None, pretrained=self.pretrained, buffers=buffers)
        if source.chains == "fresh":
            return source.images or FRESH_SAMPLES
        if isinstance(self.model, Generative) and source.pooling == "one":
            return FRESH_SAMPLES
        if kept is None:
            return None
        return kept * snapshots.COUNT if source.pooling == "five" else kept or FRESH_SAMPLES

    def _kept(self) -> int | None:
        """Return how many chains outlive training; None: the sampler does not say."""
        if self.sampler is None:
            return 0
        if self.pretrained:
            kept = self.sampler.kept()
            return len(kept.x) if kept else 0
        return getattr(self.sampler, "capacity", None)

    def check_ood_set(self, spec: str) -> None:
        """Draw them once. Those of a dataset that is to be downloaded are believed in where nothing may be fetched."""
        outliers = resolve(spec)
        if outliers.is_dataset and not self.fetching and outliers.component.bound.arguments.get("download"):
            try:
                present(outliers.component)
            except Unavailable:
                return
        if spec not in self.drawn:
            outliers.make().draw(self.test, self.spec)
            self.drawn.add(spec)

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, checked once."""
        if spec not in self.networks:
            network = registry.resolve("features", spec).make()
            if isinstance(network, Checked):
                network.check(self)
            self.networks[spec] = network
        return self.networks[spec]


# --- a dry run --------------------------------------------------------------------------------------------------------


class FitPreview(NamedTuple):
    """The work that is left for one fit."""

    model: str
    dataset: str
    recipe: str
    seed: int
    trained: bool  # here or elsewhere
    iterations: int | None  # None: they are unknown, since its dataset is missing
    to_do: list[str]  # metrics
    done: list[str]
    not_applicable: dict[str, str]  # metric -> why
    missing: dict[str, str]  # metric or dataset -> what it lacks, with the remedy


def preview(plan: Plan, store: Store) -> tuple[list[FitPreview], Outlook]:
    """Look at what the store does not have of a plan. Nothing is trained, downloaded or written.

    Returns:
        the work for each fit, and what is known of all that is to be done.
    """
    settled = {cell.id: cell.outcome for cell in store.read_cells(plan.cells) if cell.outcome.is_settled}
    outlook = look_ahead(Plan(plan.suite, [cell for cell in plan.cells if cell.id not in settled]), Datasets(dry=True))
    fits = []
    for fit in plan.fits:
        ready = outlook.fits.get(fit.key.id)
        trained = fit.is_pretrained or store.is_trained(fit.key)
        row = FitPreview(*fit.key.names, fit.seed, trained, ready.iterations if ready else None, [], [], {}, {})
        for cell in plan.cells_of(fit):
            metric, outcome = str(cell.metric), settled.get(cell.id)
            if outcome and outcome.status == "ok":
                row.done.append(metric)
            elif outcome:
                row.not_applicable[metric] = outcome.reason
            elif ready and (reason := ready.reasons.get(metric)):
                (row.not_applicable if isinstance(reason, NotApplicable) else row.missing)[metric] = str(reason)
            else:
                row.to_do.append(metric)
        if fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        fits.append(row._replace(iterations=0) if trained or not row.to_do else row)
    return fits, outlook
