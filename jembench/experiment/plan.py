"""Plans: fits and cells, every spec resolved and every identity known. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from jembench.catalog import registry, spec, trust
from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import stable_hash
from jembench.errors import SpecError
from jembench.experiment import recipe_files as recipes
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import Grid, with_options
from jembench.store.fits import FitRecord
from jembench.store.outcome import FitKey
from jembench.store.records import Record


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """One model to be trained: model x dataset x recipe x seed."""

    model: Resolved
    dataset: Resolved
    recipe: Recipe
    seed: int
    absent: str = ""  # why the dataset's files cannot be read: such a fit has no true identity, and is planned alone

    @property
    def is_pretrained(self) -> bool:
        """True if it is not trained here: its model brings its weights, or they were imported."""
        return self.model.is_pretrained or bool(self.recipe.source)

    @cached_property
    def sampler(self) -> Resolved | None:
        """The recipe's sampler, for models that need one; None: it names none.

        Raises:
            SpecError: if it does not exist or has no such option.
        """
        return registry.resolve("samplers", self.recipe.chains.sampler) if self.recipe.chains.sampler else None

    def components(self, *, sampled: bool) -> list[Component]:
        """Return the components of the fit; its sampler only if the fit is ``sampled`` by it."""
        parts = [self.model, self.dataset, self.sampler if sampled else None]
        of_recipe = [component for component in self.recipe.components if component.distribution != "jembench"]
        return [component for part in parts if part for component in part.uses] + of_recipe

    @cached_property
    def key(self) -> FitKey:
        """The fit's names, and the hash of all that makes it what it is."""
        return FitKey(
            model=str(self.model),
            dataset=str(self.dataset),
            recipe=self.recipe.label,
            seed=self.seed,
            id=stable_hash({**self.identity, "seed": self.seed}),
            family=self._family,
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the fit, except the seed."""
        recipe = self.recipe.identity
        recipe["chains"]["sampler"] = self.sampler.identity if self.sampler else None
        codes = {component.target: registry.code_of(component) for component in self.recipe.components}
        if codes := {target: code for target, code in codes.items() if code}:
            recipe["code"] = codes
        return {
            "model": self.model.identity,
            "dataset": {"absent": str(self.dataset)} if self.absent else self.dataset.identity,
            "recipe": recipe,
        }

    @cached_property
    def _family(self) -> str:
        return stable_hash(self.identity)

    def with_seed(self, seed: int) -> FitPlan:
        """Return the same with another seed. What all seeds share is not computed again."""
        other = dataclasses.replace(self, seed=seed)
        vars(other).update({name: getattr(self, name) for name in ("sampler", "identity", "_family")})
        return other

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """One fit to be measured by one metric."""

    fit: FitPlan
    metric: Resolved
    limit: int | None  # test images, None: all

    @cached_property
    def id(self) -> str:
        """The hash of all that makes the outcome what it is."""
        return stable_hash({"fit": self.fit.key.id, "metric": self.metric.identity, "limit": self.limit})

    @cached_property
    def name(self) -> str:
        """For human eyes."""
        return f"{self.metric}-{self.fit.key.model}-{self.fit.key.dataset}-s{self.fit.seed}"


Names = tuple[str, str, str]
"""Model, dataset and recipe of a fit, as its key has them."""


class Part(NamedTuple):
    """One part of a report: the blocks of one title, or all of the work."""

    title: str
    metrics: tuple[str, ...]  # canonical specs
    grids: tuple[Grid, ...]
    rows: Mapping[Names, tuple[str, ...]] | None = None  # the metrics that are asked for of each fit; None: all, of all
    variants: Mapping[str, str] = MappingProxyType({})  # the label of a recipe with settings -> what tables call it


DisplayNames = Mapping[tuple[str, str], str]
"""Names of models in tables, by their canonical specs and the labels of their recipes."""


@dataclass(frozen=True)
class Plan:
    """All the work of a run."""

    suite: Suite
    cells: list[CellPlan]
    parts: tuple[Part, ...] = ()
    names: DisplayNames = field(default_factory=dict)

    @cached_property
    def fits(self) -> list[FitPlan]:
        """Each fit once, in the order of the suite."""
        return [cells[0].fit for cells in self._by_fit.values()]

    def cells_of(self, fit: FitPlan) -> list[CellPlan]:
        """Return the cells that need this fit."""
        return self._by_fit.get(fit.key.id, [])

    @classmethod
    def joined(cls, plans: Sequence[Plan]) -> Plan:
        """All the cells and parts of some plans, under the suite of the first."""
        cells = [cell for plan in plans for cell in plan.cells]
        return cls(plans[0].suite, cells, tuple(part for plan in plans for part in plan.parts))

    @cached_property
    def _by_fit(self) -> dict[str, list[CellPlan]]:
        found: dict[str, list[CellPlan]] = {}
        for cell in self.cells:
            found.setdefault(cell.fit.key.id, []).append(cell)
        return found


def look_again() -> None:
    """Read what files hold once in this plan, whatever an earlier one found."""
    registry.content_of.cache_clear()
    recipes.training_images.cache_clear()


def plan_fit(
    model: str, dataset: str, recipe: str | None = None, settings: Sequence[str] = (), seed: int = 0
) -> FitPlan:
    """Return a model and how it is trained on a dataset, both given by their specs.

    One that has been trained elsewhere has the recipe that trains nothing; of the settings, those of chains are for it.
    The others, and the recipe, are for the models beside it.

    Args:
        model: its spec.
        dataset: its spec.
        recipe: its name; None: the one made for the model, or the dataset's default.
        settings: ``key=value`` of the recipe.
        seed: of the fit.

    Raises:
        SpecError: for a name or an option that does not exist, or a model that is to be trained by that recipe.
    """
    look_again()
    return fit_of(model, dataset, recipe, settings, seed)


def plan_again(record: FitRecord, dataset: str, where: str, typed: Sequence[str]) -> FitPlan:
    """Return the plan of a trained model, with the recipe of its record, whatever the recipe's file says now.

    Args:
        record: of the model.
        dataset: its spec, from wherever its files are taken.
        where: the record's folder.
        typed: the specs that the caller has named.

    Raises:
        SpecError: for a name or an option that does not exist, or code that only the record names.
        DamagedError: if the record holds no recipe of this version.
    """
    return rebuilt(record.key.model, dataset, record.recipe, record.key.seed, where, typed)


def rebuilt(
    model: str, dataset: str, recipe: Mapping[str, Any], seed: int, where: str, typed: Sequence[str] = ()
) -> FitPlan:
    """Return the plan of a fit from a file that holds the whole recipe; errors and the last two arguments as above."""
    trust.refuse_code([model, *trust.strings(recipe)], where, typed)
    look_again()
    whole = Record({"recipe": recipe}, where).read(Recipe, "recipe")
    return FitPlan(
        model=resolve_model(model, whole), dataset=registry.resolve("datasets", dataset), recipe=whole, seed=seed
    )


def fit_of(model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int = 0) -> FitPlan:
    data = registry.resolve("datasets", dataset)
    chosen = recipes.load(recipe or recipes.default(model, dataset), settings)
    is_imported = any(setting.startswith("source=") for setting in settings)
    if is_imported or registry.resolve("models", model).is_pretrained:
        chosen = recipes.load(PRETRAINED, [setting for setting in settings if setting.startswith(_NOT_OF_TRAINING)])
    elif recipe == PRETRAINED:
        raise SpecError(f"The recipe {PRETRAINED} trains nothing, and {model} is to be trained. Choose another recipe.")
    return FitPlan(model=resolve_model(model, chosen), dataset=data, recipe=chosen, seed=seed)


PRETRAINED = "pretrained"
"""The recipe that trains nothing."""

_NOT_OF_TRAINING = ("chains.", "source=")
"""The beginnings of settings that the recipe ``pretrained`` takes."""


def resolve_model(text: str, recipe: Recipe) -> Resolved:
    """Return a model, with the recipe's options where its spec leaves them out: JEM++ is JEM with batch norm, for one.

    Options that the model does not have do not concern it.
    """
    parsed, resolved = spec.parse(text), registry.resolve("models", text)
    options = {key: value for key, value in recipe.model.items() if key in resolved.bound.arguments}
    if options.keys() <= dict(parsed.arguments).keys():
        return resolved
    return registry.resolve("models", with_options(text, options | dict(parsed.arguments)))
