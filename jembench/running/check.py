"""The check of a plan's datasets, models and metrics before training."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from jembench import progress
from jembench.catalog.registry import Resolved
from jembench.data.datasets import blank, count, make
from jembench.data.images import check_small
from jembench.errors import JembenchError, NotApplicable, Remark, Unavailable
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.experiment.recipe import DOORS, are_own_images
from jembench.interfaces import Dataset, Split
from jembench.interfaces.evaluation import Checked
from jembench.interfaces.metrics import Metric
from jembench.models.capabilities import is_fitted
from jembench.models.settings import isolated
from jembench.running import selection
from jembench.running.building import CPU, held_out, make_model, make_trainer
from jembench.running.evaluation import limited, no_validation
from jembench.running.planned import PlannedFit
from jembench.stopping import is_request
from jembench.training import memory, snapshots
from jembench.training.chains import make_sampler


class Outlook(NamedTuple):
    """The results of the check of a plan."""

    plan: Plan
    # by id, without models; fits on a missing dataset of unknown shape or size are left out
    fits: dict[str, PlannedFit]
    absent: dict[str, str]  # dataset -> why it is missing, with the remedy

    def reason(self, cell: CellPlan) -> Unavailable | None:
        """Return why a cell cannot be computed; None: possible, or not checked."""
        planned = self.fits.get(cell.fit.key.id)
        return planned.reasons.get(str(cell.metric)) if planned else None

    def refuse_missing(self, *, skip_missing: bool) -> None:
        """Check that nothing is missing for a plan.

        Args:
            skip_missing: True to leave out metrics for which something is missing.

        Raises:
            Unavailable: if a dataset is missing or, without ``skip_missing``, anything else; the
                message lists all that is missing, with the remedies.
        """
        lacking = defaultdict[str, list[str]](list)
        for cell in self.plan.cells:
            reason = self.reason(cell)
            if reason and not isinstance(reason, NotApplicable):
                lacking[str(reason)].append(cell.metric.component.name)
        reasons = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in lacking.items()]
        if self.absent:
            raise Unavailable(" ".join([*self.absent.values(), *reasons]))
        if reasons and not skip_missing:
            raise Unavailable(
                f"Something is missing, and nothing was started. {' '.join(reasons)} Or leave "
                "these metrics out for now with --skip-missing: the same command adds them once "
                "nothing is missing."
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
        """Return the dataset of a fit, read once.

        Returns:
            the dataset and its test images; with ``dry``, blank images for a missing dataset, or
            None if its size is unknown.

        Raises:
            Unavailable: if the dataset is missing and ``dry`` is False.
        """
        key = fit.key.dataset, limit
        if key not in self.data:
            dataset, planned = self._read(fit), None
            if dataset:
                test = limited(dataset.split("test"), limit)
                planned = PlannedFit(dataset=dataset, test=test, fetching=not self.dry)
            self.data[key] = planned
        return self.data[key]

    def _read(self, fit: FitPlan) -> Dataset | None:
        data = fit.dataset
        try:
            if fit.absent:
                raise Unavailable(fit.absent)
            with progress.phase(f"reading {fit.key.dataset}"), isolated(f"The dataset {data}"):
                dataset = make(data, download=False) if self.dry else data.make()
                # reads all images, so that damaged ones are reported before training
                dataset.split("train")
                dataset.split("test")
                if data.name in DOORS:
                    _remark_on_content(str(fit.key.dataset), dataset)
                return dataset
        except Unavailable as error:
            if not self.dry:
                raise
            if not data.arguments.get("download"):
                self.absent[str(data)] = str(error)
        if "download" not in data.arguments:
            return None
        return blank(make(data, download=True))


def _remark_on_content(name: str, dataset: Dataset) -> None:
    """Say what a user's own images are."""
    spec = dataset.spec
    train, test = count(dataset, "train"), count(dataset, "test")
    classes = f"in {spec.num_classes:,} classes" if spec.num_classes else "without classes"
    listed = ""
    if spec.class_names:
        listed = f": {', '.join(spec.class_names[:3])}"
    if len(spec.class_names) > 3:
        listed += f" and {len(spec.class_names) - 3:,} more"
    warnings.warn(
        f"{name} has {train:,} training and {test:,} test images of "
        f"{'x'.join(map(str, spec.shape))} (channels x height x width), {classes}{listed}.",
        Remark,
        stacklevel=2,
    )


def _remark_on_flips(fit: FitPlan) -> None:
    """Warn that a user's own images are mirrored, unless a setting asks for it."""
    recipe, name = fit.recipe, fit.dataset.name
    if recipe.data.flip and "data.flip=true" not in recipe.overrides and are_own_images(name):
        warnings.warn(
            f"Half of the training images of {name} are mirrored. Where a mirrored image is of "
            "another class, as with letters: --set data.flip=false.",
            Remark,
            stacklevel=2,
        )


def look_ahead(plan: Plan, datasets: Datasets | None = None, device: torch.device = CPU) -> Outlook:
    """Check the datasets, models and metrics of a plan before training.

    Args:
        plan: the cells to compute.
        datasets: datasets that were read before, to which new ones are added; None: none.
        device: of the trainings, whose memory they must fit into.

    Raises:
        Unavailable: if a dataset is missing.
        SpecError: if a model cannot be made for its dataset or trained, or an option of a metric
            does not fit the model or the dataset.
    """
    datasets = datasets or Datasets()
    families = defaultdict[str, list[FitPlan]](list)
    for fit in plan.fits:
        families[fit.key.family].append(fit)

    checked: dict[str, PlannedFit] = {}
    for fits in families.values():  # fits of a family differ only in their seeds
        cells = [cell for fit in fits for cell in plan.cells_of(fit)]
        data = datasets.find(fits[0], cells[0].limit)
        if data is not None:
            data = _evaluated(cells[0], data)
            metrics = {str(cell.metric): cell.metric for cell in cells}
            planned = _check_fit(fits[0], data, metrics, device)
            for fit in fits:
                checked[fit.key.id] = planned
    return Outlook(plan, checked, datasets.absent)


def _evaluated(cell: CellPlan, data: PlannedFit) -> PlannedFit:
    """Return a fit's data with its validation images as test images, if a cell is of these.

    Raises:
        NotApplicable: if the fit has no validation images.
    """
    if cell.split == "test":
        return data
    train, validation = held_out(cell.fit, data.dataset)
    if len(train.images) == 0:
        raise NotApplicable(
            f"{data.spec.name} has test images alone, and none are held out for --split "
            f"{cell.split}. Add training images, or leave --split out."
        )
    if validation is None:
        why = f"--split {cell.split} measures {cell.fit.asked} on these"
        raise no_validation(len(train.images), pretrained=cell.fit.is_pretrained, because=why)
    return replace(data, test=limited(validation, cell.limit), split=cell.split, drawn=set())


def _check_fit(
    fit: FitPlan, data: PlannedFit, metrics: Mapping[str, Resolved], device: torch.device
) -> PlannedFit:
    """Build the model of a fit, and check its training and its metrics.

    Returns:
        the fit with the reasons why metrics cannot be computed, without its model, to save memory.
    """
    planned = replace(
        data,
        pretrained=fit.is_pretrained,
        validation=0 if fit.is_pretrained else fit.recipe.data.validation,
        content="" if fit.absent else fit.dataset.content,
    )

    # the model, and its training
    held: Split | None = None
    with (
        progress.phase(f"building {fit.asked}"),
        isolated(f"The training of {fit.asked}", _ignore),
    ):
        model = make_model(fit, data.dataset, _ignore)
        if fit.is_pretrained or is_fitted(model):
            if not fit.is_pretrained:
                check_small(data.dataset.split("train").images, f"The model {fit.asked}")
            sampler = make_sampler(model, data.spec, fit.recipe, data.dataset.split("train"))
            planned = replace(planned, model=model, sampler=sampler)
        else:
            _remark_on_flips(fit)
            trainer = make_trainer(fit, data.dataset, CPU, model)
            planned = replace(
                planned,
                model=model,
                sampler=trainer.chains.sampler,
                buffers=len(snapshots.moments(trainer)),
                iterations=trainer.iterations,
                memory=memory.of_training(trainer, device),
            )
            memory.check(planned.memory, fit.recipe, fit.asked, device)
            held = trainer.held.validation or planned.test

    # the metric that selects a checkpoint, and the metrics of the plan
    if held:
        on_held = replace(planned, test=held, split="test")
        for selecting in selection.metrics(fit.recipe).values():
            _check_metric(selecting, on_held)
    reasons: dict[str, Unavailable] = {}
    for name, metric in metrics.items():
        with isolated(f"The metric {name}", _ignore):
            try:
                _check_metric(metric.make(), planned)
            except Unavailable as error:
                reasons[name] = error
            except BaseException as error:
                # a plugin's other errors happen again in the run, as outcomes of cells
                if isinstance(error, JembenchError) or is_request(error):
                    raise
    return replace(planned, model=None, sampler=None, reasons=reasons)


def _check_metric(metric: Metric, planned: PlannedFit) -> None:
    """Check that a planned fit meets a metric's needs."""
    planned.require(metric.requires)
    if isinstance(metric, Checked):
        metric.check(planned)


def _ignore(text: str) -> None:
    """Ignore a message about changed settings, which the unit of work repeats."""
