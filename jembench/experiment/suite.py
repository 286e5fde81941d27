"""Suites: the TOML files that cross models, datasets, metrics and seeds. Imports no torch.

An experiment is a suite in a file of its own: it may also say how the work is carried out and what is written then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from jembench.catalog import packages, spec
from jembench.catalog.validation import Option, parse, read
from jembench.errors import JembenchError, SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment.attacks import Attack
from jembench.experiment.recipe import AtLeast1, Positive
from jembench.experiment.sweep import Grid, Model, Variant, bare_name

Recipes = str | Mapping[str, Option]
"""The recipe of all models; or dataset's name, or "default" -> the recipe of models that have none of their own."""


Shown = Mapping[str, tuple[Option, ...]]
"""Options of a command that shows results: one value or several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How the work is carried out, where neither the command line nor the environment says it."""

    store: str | None = None
    device: str | None = None
    devices: AtLeast1 | None = None
    executor: str | None = None
    max_hours: Positive | None = None
    skip_missing: bool | None = None
    trackers: tuple[str, ...] | None = None
    format: str | None = None  # what is printed

    @property
    def stated(self) -> dict[str, Any]:
        """What it says, by the names of the options."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """What is run, on what, measured how; or the union of other suites."""

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
    arm: tuple[Variant, ...] = ()  # settings under which each variant is trained once more: "noise .05, unguarded"
    run: Execution = Execution()
    report: tuple[Shown, ...] = ()  # what is written after a run: options of ``jembench report``
    figures: tuple[Shown, ...] = ()  # of ``jembench figures``
    included: tuple[Suite, ...] = ()
    text: str = ""  # the content of its file; "": it is installed

    @property
    def parts(self) -> list[Suite]:
        """What is shown by itself: the suites that it is the union of, each once, and each attack; or itself."""
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
    def names(self) -> dict[str, str]:
        """The display names of its models, by their specs."""
        own = {model.spec: model.name for model in self.model if model.name}
        return {spec: name for suite in self.included for spec, name in suite.names.items()} | own

    @property
    def metric_names(self) -> set[str]:
        """Whatever the options: ``{"accuracy", "ood"}``."""
        of_tables = (*(grid.metric for grid in self.grid), *(attack.name for attack in self.attack))
        own = {spec.parse(metric).name for metric in (*self.metrics, *of_tables)}
        return own.union(*(suite.metric_names for suite in self.included))

    def recipe_for(self, model: str, dataset: str) -> str:
        """The name of the recipe that a model is trained by on a dataset, both given by their specs.

        One that is made for the model comes before the suite's recipe for a dataset, which is made for models like JEM.
        """
        if isinstance(self.recipe, str):
            return self.recipe
        name = bare_name(dataset)
        own = recipes.made_for(model, dataset)
        return own or self.recipe.get(name) or self.recipe.get("default") or recipes.default_for(dataset)

    def variants_on(self, dataset: str) -> list[Variant]:
        """What is trained on a dataset, given by its spec: the recipe itself where the suite names no variants."""
        if not self.variant:
            return [Variant(name="")]
        covering = [variant for variant in self.variant if variant.covers(dataset)]
        return [each for variant in covering for each in (variant, *map(variant.under, self.arm))]

    def models_of(self, variant: Variant) -> list[Model]:
        """The models that are trained in a variant."""
        known = [*(Model(spec=text) for text in self.models), *self.model]
        return _described(variant.models, known) if variant.models else known

    @property
    def references(self) -> list[str]:
        """Its tables of published numbers, or else those of the suites that it includes."""
        if self.reference is not None:
            return list(self.reference)
        return list(dict.fromkeys(name for suite in self.included for name in suite.references))

    def under(self, union: Suite) -> Suite:
        """The suite with the limit, the settings and the recipe of one that includes it in place of its own.

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
            arm=tuple(one.set(union.settings) for one in self.arm),
        )

    def choose(
        self,
        *,
        models: Sequence[str | Model] | None = None,
        metrics: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Suite:
        """The suite, or each that it includes, with these specs and seeds in place of its own; None keeps its own.

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
    """The tables of these models; of each that has none a new one."""
    found: list[Model] = []
    for model in models:
        if isinstance(model, Model):
            found.append(model)
        else:
            found += [table for table in tables if table.spec == model] or [Model(spec=model)]
    return found


def _with_models(variants: Sequence[Variant], models: Sequence[str | Model]) -> tuple[Variant, ...]:
    """The variants that name no models, and the others with those of their models that are among ``models``."""
    names = {bare_name(model if isinstance(model, str) else model.spec) for model in models}
    found = (
        dataclasses.replace(variant, models=tuple(model for model in variant.models if bare_name(model) in names))
        for variant in variants
    )
    return tuple(new for old, new in zip(variants, found, strict=True) if new.models or not old.models)


def of_attack(
    name: str, options: Mapping[str, Any], *, models: Sequence[str], datasets: Sequence[str], seeds: Sequence[int]
) -> Suite:
    """One attack on some models.

    Args:
        name: of an attack or of a metric.
        options: of the attack, as :meth:`jembench.experiment.attacks.Attack.of` takes them.
        models: specs.
        datasets: specs.
        seeds: of the models.
    """
    return Suite(
        name="robustness",
        title=f"Robustness: {name}",
        models=tuple(models),
        datasets=tuple(datasets),
        seeds=tuple(seeds),
        attack=(Attack.of(name, options),),
    )


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
    where = source.where if packages.is_file(name) else f"suite {source.name}"
    fields = parse(source.content, source.where)
    included = tuple(_load(other, (*including, source.name)) for other in _included(fields, where))
    text = source.content.decode() if packages.is_file(name) else ""
    suite = read(Suite, _in_fields(fields), where, name=source.name, included=(), text=text)
    for number, attack in enumerate(suite.attack):
        attack.check(f"attack[{number}] of {where}")
    for model in suite.model:
        if model.name and suite.names[model.spec] != model.name:
            raise SpecError(
                f"{where} gives {model.spec} the names {model.name!r} and {suite.names[model.spec]!r}. A spec has one "
                "name; what it is trained by stands in the column of recipes."
            )
    if included:
        return _union(suite, included, fields.keys())
    any_of = {"models": ("models", "model"), "datasets": ("datasets",), "metrics": ("metrics", "grid", "attack")}
    missing = [key for key, others in any_of.items() if fields.keys().isdisjoint(others)]
    if missing:
        raise SpecError(f"{where} lacks {', '.join(missing)}. Add it to the file.")
    return suite


def _included(fields: dict[str, Any], where: str) -> list[str]:
    """Take the key ``include`` out of a suite's fields."""
    include = fields.pop("include", [])
    if not isinstance(include, list) or any(not isinstance(one, str) or packages.is_file(one) for one in include):
        raise SpecError(f"include of {where} is {include!r}; it must be a list of suites' names.")
    own = sorted(fields.keys() & {"variant", "arm"})
    if include and own:
        raise SpecError(
            f"{where} includes others, and has {', '.join(own)} of its own. Write these into a suite of their own, and "
            "include it as well."
        )
    return include


def _union(suite: Suite, included: Sequence[Suite], keys: Set[str]) -> Suite:
    """The suites that one includes, with what it names itself in place of theirs, and its grids and attacks."""
    models: list[str | Model] | None = [*suite.models, *suite.model] if keys & {"models", "model"} else None
    own: dict[str, Any] = {key: getattr(suite, key) for key in ("metrics", "datasets", "seeds") if key in keys}
    chosen = [one.under(suite).choose(models=models, **own) for one in included]
    if suite.grid or suite.attack:
        first = dataclasses.replace(chosen[0].parts[0], metrics=(), variant=(), arm=(), reference=None)
        chosen.append(
            dataclasses.replace(first, name=suite.name, title=suite.title, grid=suite.grid, attack=suite.attack)
        )
    return dataclasses.replace(
        suite, models=(), model=(), datasets=(), metrics=(), grid=(), attack=(), included=tuple(chosen)
    )


def _in_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is written shorter in a file than it is held, in the form of the dataclasses."""
    found = dict(fields)
    for key in ("grid", "variant", "arm", "attack"):
        if isinstance(found.get(key), list):
            found[key] = [_with_besides(table) for table in found[key]]
    for key in ("report", "figures"):
        if isinstance(found.get(key), list):
            found[key] = [_listed(table) if isinstance(table, Mapping) else table for table in found[key]]
    if isinstance(found.get("attack"), list):
        found["attack"] = [_with_options(table) for table in found["attack"]]
    return found


def _with_besides(table: Any) -> Any:
    """The key ``except``, which is a word of Python, under the name of the field."""
    if not isinstance(table, Mapping):
        return table
    return {"besides" if key == "except" else key: value for key, value in table.items()}


def _with_options(table: Any) -> Any:
    """The options of an attack, which stand beside its name, together: each a value or several."""
    if not isinstance(table, Mapping):
        return table
    options = {key: value for key, value in table.items() if key not in ("name", "on", "besides")}
    own = {key: value for key, value in table.items() if key not in options}
    return {**own, "options": _listed(options)}


def _listed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Each value, or several, as a list."""
    return {key: value if isinstance(value, list) else [value] for key, value in table.items()}


def every() -> list[Suite]:
    """Every installed suite that can be read; `jembench run` of the others says what is wrong with them."""
    found = []
    for name in names():
        with contextlib.suppress(JembenchError):
            found.append(load(name))
    return found


def all_grids() -> list[Grid]:
    """The grids of every suite that can be used, each once and with all values."""
    found: list[Grid] = []
    for suite in every():
        try:
            grids = [grid for part in suite.parts for grid in part.grid if grid.places]
        except JembenchError:
            continue
        found += [grid for grid in (dataclasses.replace(grid, values=()) for grid in grids) if grid not in found]
    return found
