"""The check of a plan before training: it reads every dataset, builds every model and checks every metric."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import torch

from jembench import progress
from jembench.catalog import registry
from jembench.data.datasets import blank, count, make
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import JembenchError, NotApplicable, Unavailable
from jembench.experiment.plan import FitPlan, Plan
from jembench.interfaces import Dataset, DataSpec, FeatureNetwork, Need, Sampler, Source, Split, Trainable
from jembench.interfaces.data import Truth
from jembench.interfaces.evaluation import KEPT, Checked
from jembench.interfaces.models import Capability
from jembench.metrics.attacks import Attack
from jembench.models import devices
from jembench.models.capabilities import capabilities, has_energy_gradient, is_fitted, require_gradients
from jembench.models.objective import PlainClassifier
from jembench.models.settings import isolated
from jembench.running import selection
from jembench.running.caches import FeatureBank
from jembench.running.estimate import attack_seconds
from jembench.running.evaluation import FRESH_SAMPLES, limited, no_validation, way_of
from jembench.running.fits import FitWork, make_model, make_trainer
from jembench.sampling.chain import require_chains
from jembench.stopping import INTERRUPTS
from jembench.store.store import Store
from jembench.training import snapshots
from jembench.training.loop import make_sampler


class Ready(NamedTuple):
    """The state of a fit before it is trained."""

    dataset: Dataset
    has: frozenset[Capability]
    iterations: int
    reasons: dict[str, Unavailable]  # metric -> the reason why it cannot be computed, with the remedy


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


@dataclass(frozen=True)
class Datasets:
    """The datasets of plans, each read once.

    Args:
        dry: True to download nothing, and to record a missing dataset instead of raising an error.
    """

    dry: bool = False
    absent: dict[str, str] = field(default_factory=dict)  # dataset -> why it is missing, with the remedy
    data: dict[tuple[str, int | None], PlannedFit | None] = field(default_factory=dict)

    def find(self, fit: FitPlan, limit: int | None) -> PlannedFit | None:
        """Return the fits' dataset; with ``dry``, blank images for a missing one, or None if its size is unknown.

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
        self.data[key] = PlannedFit(dataset=made, test=test, fetching=not self.dry) if made and test else None
        return self.data[key]


def look_ahead(plan: Plan, datasets: Datasets | None = None) -> Outlook:
    """Read every dataset, build every model and check every metric, so that errors are known before training.

    Args:
        plan: the cells to compute.
        datasets: those that were read before.

    Raises:
        Unavailable: if a dataset is missing.
        SpecError: if a model cannot be made for a dataset, its training cannot work, or an option of a metric fits
            neither.
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
        with progress.phase(f"building {fit.requested}"), isolated(f"The training of {fit.requested}", _ignore):
            model = make_model(fit, data.dataset, _ignore)
            if fit.is_pretrained or is_fitted(model):
                sampler = make_sampler(model, data.spec, fit.recipe, data.dataset.split("train"))
            else:
                trainer = make_trainer(fit, data.dataset, torch.device("cpu"), model)
                sampler, iterations, buffers = trainer.sampler, trainer.iterations, len(snapshots.moments(trainer))
        held = 0 if fit.is_pretrained else fit.recipe.data.validation
        start = {"model": model, "sampler": sampler, "validation": held, "buffers": buffers}
        start |= {"pretrained": fit.is_pretrained, "content": "" if fit.absent else fit.dataset.content}
        planned = replace(data, **start)
        for selecting in selection.metrics(fit.recipe).values() if iterations else ():
            on_held = replace(planned, test=trainer.held.validation or planned.test)
            on_held.require(selecting.requires)
            if isinstance(selecting, Checked):
                selecting.check(on_held)
        reasons: dict[str, Unavailable] = {}
        for name, metric in {str(cell.metric): cell.metric for fit in fits for cell in plan.cells_of(fit)}.items():
            with isolated(f"The metric {name}", _ignore):
                try:
                    made = metric.make()
                    planned.require(made.requires)
                    if isinstance(made, Checked):
                        made.check(planned)
                except Unavailable as error:
                    reasons[name] = error
                except (JembenchError, *INTERRUPTS):
                    raise
                except BaseException:  # an error of a plugin becomes the outcome of its cell
                    pass
        state = Ready(data.dataset, capabilities(model), iterations, reasons)
        ready |= {fit.key.id: state for fit in fits}
    return Outlook(plan, ready, datasets.absent)


def _ignore(text: str) -> None:
    """Ignore the message about settings that a plugin left changed, which the unit of work repeats."""


# --- a fit before it is trained, as its metrics see it ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlannedFit:
    """The :class:`~jembench.interfaces.Planned` of a model at its start; without a model, what all models share."""

    dataset: Dataset
    test: Split  # the test images under evaluation
    fetching: bool  # whether downloads may be made now
    content: str = ""  # a hash of the files of a dataset of the user's own files
    drawn: set[str] = field(default_factory=set)  # specs of OOD sets that can be drawn
    networks: dict[str, FeatureNetwork] = field(default_factory=dict)  # that can be used
    model: Any = None
    sampler: Sampler | None = None
    validation: int = 0  # number of validation images of the recipe
    buffers: int = 0  # number of buffers of the last epochs that training will keep
    pretrained: bool = False

    def require(self, needs: frozenset[Need]) -> None:
        """Check that the fit will meet the needs of a metric.

        Raises:
            NotApplicable: if it will not.
        """
        if "chains" in needs:
            require_chains(self.sampler)
        if missing := sorted(needs & set(get_args(Capability)) - capabilities(self.model)):
            chains = "samples" in missing and has_energy_gradient(self.model) and not isinstance(self.model, Trainable)
            remedy = "; --sampler sgld:steps=100 draws samples from its energy" if chains else ""
            raise NotApplicable(f"needs {' and '.join(missing)}, which the model does not give{remedy}")
        if "labels" in needs and self.test.labels is None:
            raise NotApplicable(f"The dataset {self.spec.name} has no labels, so that no class can be wrong.")
        if "validation" in needs and not self.validation:
            raise no_validation(self.count("train"), pretrained=self.pretrained)
        if "buffer" in needs and self._kept() == 0:
            raise NotApplicable("The model keeps no chains with their ages: only a replay buffer does.")
        if "gradients" in needs:
            require_gradients(self.model)
        if "training" in needs and self.pretrained:
            raise NotApplicable("The model was trained elsewhere: nothing is known of its training.")

    @property
    def spec(self) -> DataSpec:
        """The description of the images."""
        return self.dataset.spec

    @property
    def truth(self) -> Truth | None:
        """The density of synthetic images."""
        return getattr(self.dataset, "truth", None)

    def count(self, images: Literal["test", "train"]) -> int:
        """Return the number of test images under evaluation, or of the whole training split."""
        return len(self.test.images) if images == "test" else count(self.dataset, "train")

    def samples(self, source: Source = KEPT) -> int | None:
        """Return the number of generated images that the model will have; None if its sampler has no ``capacity``."""
        if source.sampler and isinstance(self.model, PlainClassifier):
            raise NotApplicable(
                "It is a network without an energy of its own, for which no sampler runs. To draw from -logsumexp of "
                "its logits, name it as baseline:net=..., or wrap it: jembench.parts.LogitModel(net)."
            )
        if not (source.sampler and registry.resolve("samplers", source.sampler) and has_energy_gradient(self.model)):
            self.require(frozenset({"samples"}))  # without such an energy, the model's own are used
        kept, has_chains = self._kept(), self.sampler is not None
        buffers = 0 if kept == 0 else self.buffers
        way = way_of(source, self.model, chains=has_chains, pretrained=self.pretrained, buffers=buffers)
        if way == "new":
            return source.images or FRESH_SAMPLES
        if way == "direct":
            return FRESH_SAMPLES
        if kept is None:
            return None
        return kept * snapshots.COUNT if source.pooling == "five" else kept or FRESH_SAMPLES

    def _kept(self) -> int | None:
        """Return the number of chains that training will keep; None if the sampler has no ``capacity``."""
        if self.sampler is None:
            return 0
        if self.pretrained:
            kept = self.sampler.kept()
            return len(kept.x) if kept else 0
        return getattr(self.sampler, "capacity", None)

    def check_ood_set(self, spec: str) -> None:
        """Check that an OOD set is available, by drawing it once.

        A dataset with ``download=true`` counts as available where nothing may be downloaded.
        """
        outliers = resolve(spec)
        if outliers.is_dataset and not self.fetching and outliers.component.arguments.get("download"):
            try:
                make(outliers.component, download=False)
            except Unavailable:
                return
        if spec not in self.drawn:
            outliers.make().draw(self.test, self.spec)
            self.drawn.add(spec)

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec after its check."""
        if spec not in self.networks:
            network = registry.resolve("features", spec).make()
            if isinstance(network, Checked):
                network.check(self)
            self.networks[spec] = network
        return self.networks[spec]


# --- a dry run --------------------------------------------------------------------------------------------------------


class FitPreview(NamedTuple):
    """The remaining work of one fit."""

    model: str
    dataset: str
    recipe: str
    seed: int
    trained: bool  # also if it was trained elsewhere
    iterations: int | None  # None: unknown, since the dataset is missing
    to_do: list[str]  # metrics
    done: list[str]
    not_applicable: dict[str, str]  # metric -> why
    missing: dict[str, str]  # metric or dataset -> what is missing, with the remedy
    seconds: dict[str, float]  # attack on a trained model -> its estimated time in one process


def preview(plan: Plan, store: Store, device: torch.device) -> tuple[list[FitPreview], Outlook]:
    """Check the part of a plan that is not in the store, without training, downloading or writing anything.

    Attacks on trained models are timed on the device.

    Returns:
        the work of each fit, and the results of the check.
    """
    found = filter(None, map(store.read_cell, plan.cells))
    settled = {cell.id: cell.outcome for cell in found if cell.outcome.is_settled}
    outlook = look_ahead(Plan(plan.suite, [cell for cell in plan.cells if cell.id not in settled]), Datasets(dry=True))
    fits = []
    for fit in plan.fits:
        ready = outlook.fits.get(fit.key.id)
        trained = fit.is_pretrained or store.is_trained(fit.key)
        row = FitPreview(*fit.key.names, fit.seed, trained, ready.iterations if ready else None, [], [], {}, {}, {})
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
                if ready and store.is_trained(fit.key) and isinstance(attack := cell.metric.make(), Attack):
                    bank = FeatureBank(ready.dataset, store, device)
                    work = FitWork(fit=fit, bank=bank, store=store, report=lambda event: None)
                    with devices.threads_for(ready.dataset.spec, device), suppress(Exception):  # its outcome says why
                        row.seconds[metric] = attack_seconds(attack, work.load_or_train(cell.limit))
        if fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        fits.append(row._replace(iterations=0) if trained or not row.to_do else row)
    return fits, outlook
