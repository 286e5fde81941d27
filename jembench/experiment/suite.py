"""Suites: the TOML files that cross models, datasets, metrics and seeds. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jembench.catalog import packages, spec
from jembench.catalog.validation import Option, parse, read
from jembench.errors import JembenchError, SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment.sweep import Grid, Variant, bare_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """What is run, on what, measured how; or the union of other suites, which then says little of its own."""

    name: str
    title: str
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    reference: tuple[str, ...] = ()  # tables of published numbers, "paper/table"
    recipe: Mapping[str, Option] = field(default_factory=dict)  # dataset's name, or "default" -> recipe
    grid: tuple[Grid, ...] = ()
    variant: tuple[Variant, ...] = ()  # where there are some, they are all that is trained
    arm: tuple[Variant, ...] = ()  # settings under which each variant is trained once more: "noise .05, unguarded"
    included: tuple[Suite, ...] = ()

    @property
    def parts(self) -> list[Suite]:
        """The suites that it is the union of, each once, with its recipes where they name none; or itself."""
        if not self.included:
            return [self]
        parts = {part.name: part for suite in self.included for part in suite.parts}
        return [dataclasses.replace(part, recipe={**self.recipe, **part.recipe}) for part in parts.values()]

    @property
    def references(self) -> list[str]:
        """Its tables of published numbers, and those of the suites that it includes."""
        return list(dict.fromkeys([*(name for suite in self.included for name in suite.references), *self.reference]))

    @property
    def metric_names(self) -> set[str]:
        """Whatever the options: ``{"accuracy", "ood"}``."""
        own = {spec.parse(metric).name for metric in (*self.metrics, *(grid.metric for grid in self.grid))}
        return own.union(*(suite.metric_names for suite in self.included))

    def recipe_for(self, model: str, dataset: str) -> str:
        """The name of the recipe that a model is trained by on a dataset, both given by their specs.

        One that is made for the model comes before the suite's, which is made for models like JEM.
        """
        name = bare_name(dataset)
        own = recipes.made_for(bare_name(model), name)
        return own or self.recipe.get(name) or self.recipe.get("default") or recipes.default_for(name)

    def variants_on(self, dataset: str) -> list[Variant]:
        """What is trained on a dataset, given by its spec: the recipe itself where the suite names no variants."""
        if not self.variant:
            return [Variant(name="")]
        covering = [variant for variant in self.variant if variant.covers(dataset)]
        return [each for variant in covering for each in (variant, *map(variant.under, self.arm))]

    def choose(
        self,
        *,
        models: Sequence[str] | None = None,
        metrics: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Suite:
        """The suite, or each that it includes, with these specs and seeds in place of its own; None keeps its own.

        Metrics replace grids too. Of variants that name models, those remain whose models are among ``models``.
        """
        if self.included:
            parts = (
                suite.choose(models=models, metrics=metrics, datasets=datasets, seeds=seeds) for suite in self.included
            )
            return dataclasses.replace(self, included=tuple(parts))
        return dataclasses.replace(
            self,
            models=self.models if models is None else tuple(models),
            metrics=self.metrics if metrics is None else tuple(metrics),
            grid=self.grid if metrics is None else (),
            datasets=self.datasets if datasets is None else tuple(datasets),
            seeds=self.seeds if seeds is None else tuple(seeds),
            variant=self.variant if models is None else _with_models(self.variant, models),
        )


def _with_models(variants: Sequence[Variant], models: Sequence[str]) -> tuple[Variant, ...]:
    """The variants that name no models, and the others with those of their models that are among ``models``."""
    names = {bare_name(model) for model in models}
    found = (
        dataclasses.replace(variant, models=tuple(model for model in variant.models if bare_name(model) in names))
        for variant in variants
    )
    return tuple(new for old, new in zip(variants, found, strict=True) if new.models or not old.models)


def names() -> list[str]:
    """The names of all suites that are installed."""
    return sorted(packages.files())


def load(name: str) -> Suite:
    """The suite of that name, or in that TOML file.

    Raises:
        SpecError: if there is none, or its file does not say what a suite must.
    """
    return _load(name, ())


def _load(name: str, including: tuple[str, ...]) -> Suite:
    if name in including:
        circle = " includes ".join((*including[including.index(name) :], name))
        raise SpecError(f"The suite {circle}. Leave one of these out.")
    source = packages.source("suite", name)
    name, where = source.name, f"suite {source.name}"
    fields = parse(source.content, source.where)
    included = tuple(_load(other, (*including, name)) for other in _included(fields, where))
    suite = read(Suite, _in_fields(fields), where, name=name, included=included)
    if not included:
        needed = ("models", "datasets") if suite.grid else ("models", "datasets", "metrics")
        missing = [key for key in needed if key not in fields]
        if missing:
            raise SpecError(f"{where} lacks {', '.join(missing)}. Add it to the file.")
    return suite


def _included(fields: dict[str, Any], where: str) -> list[str]:
    """Take the key ``include`` out of a suite's fields."""
    include = fields.pop("include", [])
    if not isinstance(include, list) or not all(isinstance(name, str) and ".toml" not in name for name in include):
        raise SpecError(f"include of {where} is {include!r}; it must be a list of suites' names.")
    own = sorted(fields.keys() - {"title", "reference", "recipe"})
    if include and own:
        raise SpecError(
            f"{where} includes others, and has {', '.join(own)} of its own. Write these into a suite of their own, and "
            "include it as well."
        )
    return include


def _in_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is written shorter in a file than it is held, in the form of the dataclasses."""
    found = dict(fields)
    if isinstance(found.get("recipe"), str):
        found["recipe"] = {"default": found["recipe"]}
    for key in ("grid", "variant", "arm"):
        if isinstance(found.get(key), list):
            found[key] = [_with_besides(table) for table in found[key]]
    return found


def _with_besides(table: Any) -> Any:
    """The key ``except``, which is a word of Python, under the name of the field."""
    if not isinstance(table, Mapping):
        return table
    return {"besides" if key == "except" else key: value for key, value in table.items()}


def all_grids() -> list[Grid]:
    """The grids of every suite that can be used, each once and with all values."""
    found: list[Grid] = []
    for name in names():
        try:
            grids = [grid for part in load(name).parts for grid in part.grid if grid.places]
        except JembenchError:
            continue  # `jembench run` of that suite says what is wrong with it
        found += [grid for grid in (dataclasses.replace(grid, values=()) for grid in grids) if grid not in found]
    return found
