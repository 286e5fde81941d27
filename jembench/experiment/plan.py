"""Plans: fits and cells with resolved specs and known identities. Imports no torch."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from jembench.catalog import registry, trust
from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Spec, stable_hash
from jembench.errors import JembenchError, Remark, SpecError
from jembench.experiment import effects
from jembench.experiment import recipe as recipes
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import Grid
from jembench.store.fits import FitRecord, asked
from jembench.store.outcome import Evaluated, FitKey, Trained
from jembench.store.records import Record


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """A planned fit: model x dataset x recipe x seed."""

    model: Resolved
    dataset: Resolved
    recipe: Recipe
    seed: int
    imported: str = ""  # the name of the import; "": not imported
    # why the dataset's files cannot be read; such a fit is only planned, without an identity
    absent: str = ""

    @property
    def is_pretrained(self) -> bool:
        """True if the model has weights already, and is not trained here."""
        return self.model.is_pretrained or bool(self.recipe.source)

    @cached_property
    def sampler(self) -> Resolved | None:
        """The recipe's sampler, for models with chains; None: the recipe names none.

        Raises:
            SpecError: if the sampler or an option does not exist.
        """
        sampler = self.recipe.chains.sampler
        return registry.resolve("samplers", sampler) if sampler else None

    @property
    def components(self) -> list[Component]:
        """The components of the fit, including the sampler of its recipe."""
        components = [*self.model.uses, *self.dataset.uses]
        if self.sampler:
            components += self.sampler.uses
        for component in self.recipe.components:
            if component.distribution != "jembench":
                components.append(component)
        return components

    @property
    def names(self) -> Trained:
        """Model, dataset and recipe, which are known without reading data."""
        return Trained(self.model.spec, self.dataset.spec, self.recipe.label)

    @cached_property
    def key(self) -> FitKey:
        """The fit's names, and the hash of its identity."""
        return FitKey(
            model=self.model.spec,
            dataset=self.dataset.spec,
            recipe=self.recipe.label,
            seed=self.seed,
            id=stable_hash({**self.identity, "seed": self.seed}),
            family=stable_hash(self.identity),
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that determines the fit except the seed, as JSON."""
        recipe = self.recipe.identity
        recipe["chains"]["sampler"] = self.sampler.identity if self.sampler else None
        if self.recipe.data.outliers:
            outliers = registry.resolve("starts", self.recipe.data.outliers)
            recipe["data"]["outliers"] = outliers.identity
        if codes := registry.codes(self.recipe.components):
            recipe["code"] = codes
        dataset = {"absent": str(self.dataset)} if self.absent else self.dataset.identity
        return {"model": self.model.identity, "dataset": dataset, "recipe": recipe}

    def with_seed(self, seed: int) -> FitPlan:
        """Return the fit with another seed; all else is shared, computed once."""
        fit = dataclasses.replace(self, seed=seed)
        vars(fit).update(sampler=self.sampler, identity=self.identity)
        return fit

    def starts_from(self, key: FitKey) -> bool:
        """Return whether training starts from the weights of a fit.

        The fit is named by its id, or by its family and the seed.
        """
        start = self.recipe.start_from
        return bool(start) and (start == key.id or (start, self.seed) == (key.family, key.seed))

    @cached_property
    def asked(self) -> str:
        """The name of the import, or the model's spec as asked for.

        The spec lacks the options that the recipe added.
        """
        return self.imported or asked(self.key.model, self.model.arguments, self.recipe.model)

    @property
    def display(self) -> DisplayNames:
        """The display name of the model."""
        return DisplayNames(models={(self.key.model, self.key.recipe): self.asked})

    def __str__(self) -> str:
        return self.key.called(self.asked)


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """A planned cell: one fit x one metric."""

    fit: FitPlan
    metric: Resolved
    limit: int | None  # number of test images; None: all
    split: Evaluated = "test"

    @cached_property
    def id(self) -> str:
        """The hash of everything that determines the outcome."""
        parts = {"fit": self.fit.key.id, "metric": self.metric.identity, "limit": self.limit}
        if self.split != "test":
            parts["split"] = self.split
        return stable_hash(parts)

    def protocol(self, stated: str) -> str:
        """Return a metric's protocol with the images that were evaluated, if not test images."""
        if not stated or self.split == "test":
            return stated
        try:
            return Spec(stated).with_(split=self.split)
        except SpecError:  # a plugin's protocol may be any text
            return f"{stated}, split={self.split}"

    @cached_property
    def name(self) -> str:
        """The readable part of the names of the cell's files."""
        return f"{self.metric}-{self.fit.key.model}-{self.fit.key.dataset}-s{self.fit.seed}"


class Part(NamedTuple):
    """A part of a report: the work under one title, or all."""

    title: str
    metrics: tuple[Spec, ...]  # canonical
    grids: tuple[Grid, ...]
    rows: dict[Trained, tuple[Spec, ...]]  # the metrics of each fit


@dataclass(frozen=True)
class Plan:
    """The work of a run."""

    suite: Suite
    cells: list[CellPlan]
    parts: tuple[Part, ...] = ()
    names: DisplayNames = NO_NAMES

    @cached_property
    def fits(self) -> list[FitPlan]:
        """The fits without repetition, in the order of the suite."""
        by_id: dict[str, FitPlan] = {}
        for cell in self.cells:
            by_id.setdefault(cell.fit.key.id, cell.fit)
        return list(by_id.values())

    def cells_of(self, fit: FitPlan) -> list[CellPlan]:
        """Return the cells that need this fit."""
        return [cell for cell in self.cells if cell.fit.key.id == fit.key.id]


def clear_caches() -> None:
    """Clear the caches of files' contents, which may have changed meanwhile."""
    trained_spec.cache_clear()
    registry.content_of.cache_clear()
    recipes.extent_of.cache_clear()


def plan_fit(
    model: str, dataset: str, recipe: str | None = None, settings: Sequence[str] = (), seed: int = 0
) -> FitPlan:
    """Return the plan of a model's training on a dataset.

    A model that was trained elsewhere has the recipe ``pretrained``, to which only settings of
    chains apply; ``recipe`` and other settings are ignored for it.

    Args:
        model: the spec of the model.
        dataset: the spec of the dataset.
        recipe: the name of the recipe; None: the default of the model and the dataset.
        settings: ``key=value`` of the recipe.
        seed: of the fit.

    Raises:
        SpecError: if a name or an option does not exist, or the recipe ``pretrained`` is given for
            another model.
    """
    clear_caches()
    return fit_of(model, dataset, recipe, settings, seed)


def plan_again(record: FitRecord, dataset: str, where: str, typed: Sequence[str]) -> FitPlan:
    """Return the plan of a trained model, with the recipe of its record.

    The recipe's present file does not count.

    Args:
        record: of the model.
        dataset: the spec of the dataset, whose files may be elsewhere now.
        where: the folder of the record, for errors.
        typed: the specs that the user has named.

    Raises:
        SpecError: if a name or an option does not exist, or the record names code that the user did
            not name.
        DamagedError: if the record has no recipe of this version.
    """
    fit = rebuilt(record.key.model, dataset, record.recipe, record.key.seed, where, typed)
    return dataclasses.replace(fit, imported=record.import_name)


def rebuilt(
    model: str,
    dataset: str,
    recipe: Mapping[str, Any],
    seed: int,
    where: str,
    typed: Sequence[str] = (),
) -> FitPlan:
    """Return the plan of a fit with a file's whole recipe.

    Arguments and errors are those of :func:`plan_again`.

    The spec of the model is whole too: an option that it leaves out has its default, even if the
    recipe would add another value.
    """
    trust.refuse_code([model, recipe], where, typed)
    clear_caches()
    whole = Record({"recipe": recipe}, where).read(Recipe, "recipe")
    return FitPlan(
        model=registry.resolve("models", model),
        dataset=registry.resolve("datasets", dataset),
        recipe=whole,
        seed=seed,
    )


def fit_of(
    model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int = 0
) -> FitPlan:
    """Return the plan of a fit without clearing caches.

    Arguments and errors are those of :func:`plan_fit`.
    """
    data = registry.resolve("datasets", dataset)
    chosen = _recipe(recipe or recipes.default(model, dataset), settings, data)
    is_imported = any(setting.startswith("source=") for setting in settings)
    if is_imported or registry.resolve("models", model).is_pretrained:
        of_chains = [text for text in settings if text.startswith(("chains.", "source="))]
        chosen = recipes.load(PRETRAINED, of_chains)
    elif recipe == PRETRAINED:
        raise SpecError(
            f"The recipe {PRETRAINED} trains nothing, and {model} is to be trained. Choose "
            "another recipe."
        )
    effects.check(chosen)
    return FitPlan(model=resolve_model(model, chosen), dataset=data, recipe=chosen, seed=seed)


def _recipe(name: str, settings: Sequence[str], data: Resolved) -> Recipe:
    """Return a recipe, without flips for a dataset that is never mirrored.

    A setting of ``data.flip`` is kept for every dataset.
    """
    chosen = recipes.load(name, settings)
    is_stated = any(setting.partition("=")[0].strip() == "data.flip" for setting in settings)
    if not chosen.data.flip or is_stated or not data.is_never_mirrored:
        return chosen
    warnings.warn(
        f"The recipe {chosen.name} flips images, and a mirrored image of {data.name} is of no "
        "class: it is trained without flips. --set data.flip=true trains with them.",
        Remark,
        stacklevel=2,
    )
    return recipes.load(name, [*settings, "data.flip=false"])


PRETRAINED = "pretrained"
"""The recipe that trains nothing."""


def resolve_model(text: str, recipe: Recipe) -> Resolved:
    """Return a model with the recipe's options that its spec leaves out.

    An example is the batch norm of JEM++.

    Options that the model does not have are ignored.
    """
    spec, resolved = Spec(text), registry.resolve("models", text)
    added = {
        key: value
        for key, value in recipe.model.items()
        if key in resolved.arguments and key not in spec.options
    }
    return registry.resolve("models", spec.with_(**added)) if added else resolved


@cache
def trained_spec(model: str, recipe: str) -> str:
    """Return the canonical spec of a model, with its recipe's options.

    A recipe that is not installed adds none.
    """
    with suppress(JembenchError):
        return str(resolve_model(model, recipes.load(recipe)))
    return registry.canonical("models", model)
