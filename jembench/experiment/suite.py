"""Suites: what crosses models, datasets, metrics and seeds. Imports no torch.

An experiment is a suite in a file of its own: it may also say how the work is carried out and what is written then.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jembench.catalog import spec
from jembench.catalog.validation import Option
from jembench.experiment import recipe_files as recipes
from jembench.experiment.attacks import Attack
from jembench.experiment.claims import Claim
from jembench.experiment.recipe import AtLeast1, Positive
from jembench.experiment.sweep import Grid, Model, Variant, bare_name

Recipes = str | Mapping[str, Option]
"""The recipe of all models; or dataset's name, or "default" -> the recipe of models that have none of their own."""


Shown = Mapping[str, tuple[Option, ...]]
"""Options of a command that shows results: one value or several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """Defaults of the execution, where neither the command line nor the environment states it."""

    store: str | None = None
    device: str | None = None
    executor: str | None = None
    max_hours: Positive | None = None
    skip_missing: bool | None = None
    trackers: tuple[str, ...] | None = None
    format: str | None = None  # what is printed

    @property
    def stated(self) -> dict[str, Any]:
        """The stated values, by the names of the options."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """Models, datasets, seeds and metrics that are crossed; or the union of other suites."""

    name: str
    title: str
    models: tuple[str, ...] = ()
    model: tuple[Model, ...] = ()  # models with recipes, settings or seeds of their own, after the others
    datasets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    reference: tuple[str, ...] | None = None  # tables of published numbers, "paper/table"; None: those of ``included``
    recipe: Recipes = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # as for --set
    limit: AtLeast1 | None = None  # test images, None: all
    grid: tuple[Grid, ...] = ()
    attack: tuple[Attack, ...] = ()
    variant: tuple[Variant, ...] = ()  # where there are some, they are all that is trained
    claim: tuple[Claim, ...] = ()  # what is said of the results
    run: Execution = Execution()
    report: tuple[Shown, ...] = ()  # what is written after a run: options of ``jembench report``
    figures: tuple[Shown, ...] = ()  # of ``jembench figures``
    included: tuple[Suite, ...] = ()
    text: str = ""  # the content of its file; "": it is installed

    @property
    def parts(self) -> list[Suite]:
        """The separate parts of a report: the included suites, each once, and each attack; or the suite itself."""
        if self.included:
            return list({part.name: part for suite in self.included for part in suite.parts}.values())
        crossed = itertools.product(self.datasets, self.attack)
        attacks = [self._attacked(attack, dataset) for dataset, attack in crossed if attack.covers(dataset)]
        own = dataclasses.replace(self, attack=())
        return [*([own] if self.metrics or self.grid or not attacks else []), *attacks]

    def _attacked(self, attack: Attack, dataset: str) -> Suite:
        return dataclasses.replace(
            self,
            name=f"{self.name} {attack.name} {self.attack.index(attack)} {dataset}",
            title=f"Robustness: {attack.name}",
            datasets=(dataset,),
            metrics=attack.specs(dataset),
            grid=(),
            attack=(),
        )

    @property
    def claims(self) -> list[Claim]:
        """Its own, and those of the suites that it includes, each once."""
        found = [*self.claim, *(claim for suite in self.included for claim in suite.claims)]
        return [claim for number, claim in enumerate(found) if claim not in found[:number]]

    @property
    def metric_names(self) -> set[str]:
        """Whatever the options: ``{"accuracy", "ood"}``."""
        of_tables = (*(grid.metric for grid in self.grid), *(attack.name for attack in self.attack))
        own = {spec.parse(metric).name for metric in (*self.metrics, *of_tables)}
        return own.union(*(suite.metric_names for suite in self.included))

    def recipe_for(self, model: str, dataset: str) -> str:
        """Return the name of the recipe that a model is trained by on a dataset, both given by their specs.

        One that is made for the model comes before the suite's recipe for a dataset, which is made for models like JEM.
        """
        if isinstance(self.recipe, str):
            return self.recipe
        name = bare_name(dataset)
        own = recipes.made_for(model, dataset)
        return own or self.recipe.get(name) or self.recipe.get("default") or recipes.default_for(dataset)

    def variants_on(self, dataset: str) -> list[Variant]:
        """Return the variants on a dataset, given by its spec: the plain recipe if the suite names none."""
        if not self.variant:
            return [Variant(name="")]
        return [variant for variant in self.variant if variant.covers(dataset)]

    def models_of(self, variant: Variant) -> list[Model]:
        """Return the models that are trained in a variant."""
        known = [*(Model(spec=text) for text in self.models), *self.model]
        return _described(variant.models, known) if variant.models else known

    @property
    def references(self) -> list[str]:
        """Its tables of published numbers, or else those of the suites that it includes."""
        if self.reference is not None:
            return list(self.reference)
        return list(dict.fromkeys(name for suite in self.included for name in suite.references))

    def under(self, union: Suite) -> Suite:
        """Return the suite with the limit, the settings and the recipe of one that includes it in place of its own.

        The recipes that a union names for datasets are for a suite that names none.
        """
        if self.included:
            return dataclasses.replace(self, included=tuple(suite.under(union) for suite in self.included))
        for_all, recipe = isinstance(union.recipe, str), self.recipe
        if for_all:
            recipe = union.recipe
        elif not isinstance(recipe, str):
            recipe = {**union.recipe, **recipe}  # type: ignore[dict-item]
        return dataclasses.replace(
            self,
            recipe=recipe,
            limit=self.limit if union.limit is None else union.limit,
            settings=(*self.settings, *union.settings),
            model=tuple(one.under(union.settings, keep_recipe=not for_all) for one in self.model),
            variant=tuple(one.set(union.settings) for one in self.variant),
        )

    def choose(
        self,
        *,
        models: Sequence[str | Model] | None = None,
        metrics: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Suite:
        """Return the suite, or each that it includes, with these specs and seeds in place of its own; None: its own.

        A model that has a table keeps the table, but for its seeds if others are chosen. Metrics replace grids and
        attacks too. Of variants that name models, those remain whose models are among ``models``.
        """
        if self.included:
            parts = (
                suite.choose(models=models, metrics=metrics, datasets=datasets, seeds=seeds) for suite in self.included
            )
            return dataclasses.replace(self, included=tuple(parts))
        tables = self.model if seeds is None else tuple(dataclasses.replace(model, seeds=()) for model in self.model)
        return dataclasses.replace(
            self,
            models=self.models if models is None else (),
            model=tables if models is None else tuple(_described(models, tables)),
            metrics=self.metrics if metrics is None else tuple(metrics),
            grid=self.grid if metrics is None else (),
            attack=self.attack if metrics is None else (),
            datasets=self.datasets if datasets is None else tuple(datasets),
            seeds=self.seeds if seeds is None else tuple(seeds),
            variant=self.variant if models is None else _with_models(self.variant, models),
        )


def _described(models: Iterable[str | Model], tables: Sequence[Model]) -> list[Model]:
    """Return the tables of these models; of each that has none a new one."""
    found: list[Model] = []
    for model in models:
        if isinstance(model, Model):
            found.append(model)
        else:
            found += [table for table in tables if table.spec == model] or [Model(spec=model)]
    return found


def _with_models(variants: Sequence[Variant], models: Sequence[str | Model]) -> tuple[Variant, ...]:
    """Return the variants that name no models, and the others with those of their models that are among ``models``."""
    names = {bare_name(model if isinstance(model, str) else model.spec) for model in models}
    found = (
        dataclasses.replace(variant, models=tuple(model for model in variant.models if bare_name(model) in names))
        for variant in variants
    )
    return tuple(new for old, new in zip(variants, found, strict=True) if new.models or not old.models)


def of_attack(
    name: str,
    options: Mapping[str, Any],
    *,
    models: Sequence[str | Model],
    datasets: Sequence[str],
    seeds: Sequence[int],
) -> Suite:
    """One attack on some models.

    Args:
        name: of an attack or of a metric.
        options: of the attack, as :meth:`jembench.experiment.attacks.Attack.of` takes them.
        models: specs, or models with recipes of their own.
        datasets: specs.
        seeds: of the models.
    """
    return Suite(
        name="robustness",
        title=f"Robustness: {name}",
        model=tuple(_described(models, ())),
        datasets=tuple(datasets),
        seeds=tuple(seeds),
        attack=(Attack.of(name, options),),
    )
