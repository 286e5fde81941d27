"""Suites and plans: from a suite and the command line to the list of fits and cells. Imports no torch.

A suite is a TOML file that crosses models, datasets, metrics and seeds. A plan is that cross, every spec resolved
and every identity known, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from jembench import packages, registry, spec
from jembench.errors import SpecError, unknown
from jembench.outcome import FitKey
from jembench.registry import Component, Resolved
from jembench.spec import stable_hash
from jembench.training import recipe as recipes
from jembench.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """What is run, on what, measured how."""

    name: str
    title: str
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    metrics: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    reference: tuple[str, ...] = ()  # tables of published numbers, "paper/table"


def names() -> list[str]:
    """The names of all suites that are installed."""
    return sorted(packages.files())


def load(name: str) -> Suite:
    """The suite of that name.

    Raises:
        SpecError: if there is none, or its file does not say what a suite must.
    """
    files = packages.files()
    if name not in files:
        raise unknown("suite", name, files, "jembench list suites")
    fields = recipes.parse(files[name].read_bytes(), str(files[name]))
    return recipes.read(Suite, fields, f"suite {name}", name=name)


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """One model to be trained: model x dataset x recipe x seed."""

    model: Resolved
    dataset: Resolved
    recipe: Recipe
    seed: int

    @cached_property
    def sampler(self) -> Resolved:
        """The recipe's sampler, for models that need one.

        Raises:
            SpecError: if it does not exist or has no such option.
        """
        return registry.resolve("samplers", self.recipe.chains.sampler)

    @property
    def components(self) -> list[Component]:
        """What the fit is made of."""
        return [self.model.component, self.dataset.component, self.sampler.component]

    @cached_property
    def key(self) -> FitKey:
        """The fit's names, and the hash of all that makes it what it is."""
        recipe = self.recipe.identity
        recipe["chains"]["sampler"] = _identity(self.sampler)
        identity = {
            "model": _identity(self.model),
            "dataset": _identity(self.dataset),
            "recipe": recipe,
            "seed": self.seed,
        }
        return FitKey(
            model=str(self.model),
            dataset=str(self.dataset),
            recipe=self.recipe.label,
            seed=self.seed,
            id=stable_hash(identity),
        )

    def __str__(self) -> str:
        return f"{self.key.model} on {self.key.dataset}, recipe {self.key.recipe}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """One fit to be measured by one metric."""

    fit: FitPlan
    metric: Resolved
    limit: int | None  # test images, None: all

    @cached_property
    def id(self) -> str:
        """The hash of all that makes the outcome what it is."""
        return stable_hash({"fit": self.fit.key.id, "metric": _identity(self.metric), "limit": self.limit})

    @property
    def name(self) -> str:
        """For human eyes."""
        return f"{self.metric}-{self.fit.key.model}-{self.fit.key.dataset}-s{self.fit.seed}"


def _identity(resolved: Resolved) -> dict[str, Any]:
    """What a component is: its name in its distribution, whatever else is installed, and every option."""
    component = resolved.component
    return {**resolved.bound.identity, "name": component.name, "distribution": component.distribution}


class Plan(NamedTuple):
    """All the work of a run."""

    suite: Suite
    cells: list[CellPlan]

    @property
    def fits(self) -> list[FitPlan]:
        """Each fit once, in the order of the suite."""
        return list({cell.fit.key.id: cell.fit for cell in self.cells}.values())

    def cells_of(self, fit: FitPlan) -> list[CellPlan]:
        """The cells that need this fit."""
        return [cell for cell in self.cells if cell.fit.key.id == fit.key.id]


def make_plan(
    suite: Suite, *, recipe: str | None = None, settings: Sequence[str] = (), limit: int | None = None
) -> Plan:
    """Cross the suite's models, datasets, seeds and metrics.

    Args:
        suite: with the command line's choices in place of its own.
        recipe: its name; None: the dataset's default.
        settings: ``metric.option=value`` for an option of a metric, otherwise ``key=value`` of the recipe.
        limit: how many test images to evaluate.

    Raises:
        SpecError: for any name or option that does not exist, before anything is computed.
    """
    for needed in ("models", "datasets", "metrics", "seeds"):
        if not getattr(suite, needed):
            raise SpecError(f"There is nothing to run: the suite {suite.name} was left without {needed}. Name some.")
    metric_names = {spec.parse(metric).name for metric in suite.metrics}
    for_metrics = [setting for setting in settings if _owner(setting) in metric_names]
    for_recipe = [setting for setting in settings if setting not in for_metrics]
    metrics = [registry.resolve("metrics", _with_options(metric, for_metrics)) for metric in suite.metrics]
    cells = []
    for dataset_spec in suite.datasets:
        dataset = registry.resolve("datasets", dataset_spec)
        chosen = recipes.load(recipe or recipes.default_for(dataset.component.name), for_recipe)
        for model in (resolve_model(model, chosen) for model in suite.models):
            for seed in suite.seeds:
                fit = FitPlan(model=model, dataset=dataset, recipe=chosen, seed=seed)
                cells += [CellPlan(fit=fit, metric=metric, limit=limit) for metric in metrics]
    return Plan(suite, list({cell.id: cell for cell in cells}.values()))


def resolve_model(text: str, recipe: Recipe) -> Resolved:
    """A model, with the recipe's options where its spec leaves them out: JEM++ is JEM with batch norm, for one.

    Options that the model does not have do not concern it.
    """
    parsed, resolved = spec.parse(text), registry.resolve("models", text)
    options = {key: value for key, value in recipe.model.items() if key in resolved.bound.arguments}
    if options.keys() <= dict(parsed.arguments).keys():
        return resolved
    together = options | dict(parsed.arguments)
    return registry.resolve("models", str(spec.Spec(parsed.name, tuple(sorted(together.items())))))


def _owner(setting: str) -> str:
    """Whose option is set: ``ece`` of ``ece.bins=15``. An import path has dots of its own."""
    return setting.partition("=")[0].rpartition(".")[0]


def _with_options(metric: str, settings: Sequence[str]) -> str:
    """The metric's spec with the command line's options in it."""
    parsed = spec.parse(metric)
    options = dict(parsed.arguments)
    for setting in settings:
        target, _, value = setting.partition("=")
        if _owner(setting) == parsed.name:
            options[target.rpartition(".")[2]] = value
    return str(spec.Spec(parsed.name, tuple(sorted(options.items()))))
