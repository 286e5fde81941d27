"""Plans: from a suite and the command line to the list of fits and cells. Imports no torch.

A plan is the cross of a suite, every spec resolved and every identity known, before anything is computed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from jembench.catalog import discovery, registry, spec, trust
from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import stable_hash
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.experiment import recipe as recipes
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import Grid, Model, Variant, compares_with_itself, with_options
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

    @cached_property
    def sampler(self) -> Resolved | None:
        """The recipe's sampler, for models that need one; None: it names none.

        Raises:
            SpecError: if it does not exist or has no such option.
        """
        return registry.resolve("samplers", self.recipe.chains.sampler) if self.recipe.chains.sampler else None

    def components(self, *, sampled: bool) -> list[Component]:
        """What the fit is made of; its sampler only if it is ``sampled`` by it."""
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
        """What makes it what it is, but for the seed."""
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
        """The same with another seed. What all seeds share is not computed again."""
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


class Part(NamedTuple):
    """What belongs together in a report: the work of one suite of a union, or all of it."""

    title: str
    metrics: tuple[str, ...]  # canonical specs
    grids: tuple[Grid, ...]
    rows: frozenset[tuple[str, str, str]] | None = None  # (model, dataset, recipe) of each fit; None: whatever there is
    variants: Mapping[str, str] = MappingProxyType({})  # the label of a variant's recipe -> the variant

    def metrics_on(self, dataset: str) -> list[str]:
        """The metrics of a dataset: the suite's own, then those of its grids."""
        of_grids = (place.metric for grid in self.grids if grid.covers(dataset) for place in grid.places)
        return [metric for metric in (*self.metrics, *of_grids) if not compares_with_itself(metric, dataset)]


DisplayNames = Mapping[tuple[str, str], str]
"""Names of models by their specs, as a suite writes them, and the labels of their recipes; "" for any recipe."""


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
        """The cells that need this fit."""
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


def _look_again() -> None:
    """Read what files hold once in this plan, whatever an earlier one found."""
    registry.look_again()
    recipes.training_images.cache_clear()


def make_plan(
    suite: Suite, *, recipe: str | None = None, settings: Sequence[str] = (), limit: int | None = None
) -> Plan:
    """Cross the suite's models, datasets, seeds and metrics.

    Args:
        suite: with the command line's choices in place of its own.
        recipe: its name; None: the suite's, or else the dataset's default.
        settings: ``metric.option=value`` for an option of a metric, otherwise ``key=value`` of the recipe; stronger
            than those of the suite.
        limit: how many test images to evaluate; None: what the suite says.

    Raises:
        SpecError: for any name or option that does not exist, before anything is computed.
    """
    _look_again()
    asked = _Asked.of(suite, recipe, settings, limit)
    cells: dict[str, CellPlan] = {}
    parts: list[Part] = []
    for suite_part in suite.parts:
        _check(suite_part)
        part = _part(suite_part, asked)
        planned = _cells(suite_part, part, asked)
        cells |= {cell.id: cell for cell in planned if cell.id not in cells}
        rows = frozenset(cell.fit.key.names for cell in planned)
        parts.append(part._replace(rows=rows))
    if not cells:
        datasets = ", ".join(dict.fromkeys(dataset for part in suite.parts for dataset in part.datasets))
        raise SpecError(f"There is nothing to run: no metric of the suite {suite.name} is for {datasets}. Name some.")
    return Plan(suite, list(cells.values()), _merged(parts), _display_names(suite, asked))


class _Asked(NamedTuple):
    """What is asked for beside a suite, and the metrics that tell their options from fields of the recipe."""

    measured: Set[str]
    recipe: str | None = None
    settings: Sequence[str] = ()
    limit: int | None = None

    @classmethod
    def of(cls, suite: Suite, recipe: str | None, settings: Sequence[str], limit: int | None) -> _Asked:
        """Refuses an option of a metric that is not measured: it would be looked for in the recipe."""
        metrics = {component.name for component in discovery.components("metrics")} - suite.metric_names
        for setting in (*suite.settings, *settings):
            if (owner := _owner(setting)) in metrics:
                raise SpecError(
                    f"{setting!r} sets an option of the metric {owner}, which is not measured. The metrics are "
                    f"{', '.join(sorted(suite.metric_names))}; name others with --metrics."
                )
        return cls(suite.metric_names, recipe, settings, limit)

    def for_metrics(self, part: Suite) -> list[str]:
        """The options of metrics that are set."""
        return [setting for setting in (*part.settings, *self.settings) if _owner(setting) in self.measured]

    def trainings(self, part: Suite, dataset: str) -> Iterator[_Training]:
        """What is trained on a dataset: each model of each variant. The more special setting is the stronger one."""
        for variant in part.variants_on(dataset):
            for model in part.models_of(variant):
                settings = (*part.settings, *variant.settings, *model.settings, *self.settings)
                chosen = self.recipe or model.recipe or part.recipe_for(model.spec, dataset)
                of_recipe = [setting for setting in settings if _owner(setting) not in self.measured]
                yield _Training(variant, model, dataset, chosen, of_recipe, model.seeds or part.seeds)

    def all_trainings(self, parts: Iterable[Suite]) -> Iterator[_Training]:
        """What is trained on every dataset of some parts."""
        for part in parts:
            for dataset in part.datasets:
                yield from self.trainings(part, dataset)


class _Training(NamedTuple):
    variant: Variant
    model: Model
    dataset: str  # spec
    recipe: str
    settings: list[str]
    seeds: Sequence[int]

    @property
    def label(self) -> str:
        """That of the recipe with the settings."""
        return recipes.load(self.recipe, self.settings).label


def _merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Parts that measure the same, because the command line says what, are one."""
    found: list[Part] = []
    for part in parts:
        same = next((n for n, other in enumerate(found) if other[1:3] == part[1:3]), None)
        if same is None:
            found.append(part)
        else:
            rows = (found[same].rows or frozenset()) | (part.rows or frozenset())
            found[same] = found[same]._replace(rows=rows, variants={**found[same].variants, **part.variants})
    return tuple(found)


def parts_of(suite: Suite, fits: Iterable[FitKey]) -> tuple[Part, ...]:
    """The parts of a suite as it stands, for results that are there already.

    A fit is shown in the parts that train its dataset by its recipe; in all of them, if none does.

    Raises:
        SpecError: for a metric that does not exist, or has no such option.
    """
    names, members = {fit.names for fit in fits}, suite.parts

    def rows(part: Suite) -> Iterator[tuple[str, str, str]]:
        for name in names:
            trained_in = [member for member in members if _is_by(name, member)]
            if part in trained_in or not trained_in:
                yield name

    asked = _Asked(suite.metric_names)
    return tuple(_part(part, asked)._replace(rows=frozenset(rows(part))) for part in members)


def fit_names_of(suite: Suite) -> list[tuple[str, str, str, int]]:
    """Model, dataset, recipe and seed of each fit of a suite, in its order. No data are read for them.

    Raises:
        SpecError: for any name or option that does not exist.
    """
    asked, found = _Asked.of(suite, None, (), None), dict[tuple[str, str, str, int], None]()
    for each in asked.all_trainings(suite.parts):
        fit = _fit(each.model.spec, each.dataset, each.recipe, each.settings)
        found |= {(str(fit.model), str(fit.dataset), fit.recipe.label, seed): None for seed in each.seeds}
    return list(found)


def _is_by(names: tuple[str, str, str], part: Suite) -> bool:
    model, dataset, recipe = names
    return f"{recipe}+".startswith(f"{part.recipe_for(model, dataset)}+")


def labels_of(suites: Iterable[Suite]) -> set[str]:
    """The labels of the recipes that some suites change. Suites that cannot be planned have none."""
    found: set[str] = set()
    for part in (part for suite in suites for part in suite.parts):
        with contextlib.suppress(JembenchError):
            found |= {each.label for each in _Asked(part.metric_names).all_trainings([part]) if each.settings}
    return found


def display_names_of(suite: Suite) -> DisplayNames:
    """The display names of a suite's models as it stands."""
    return _display_names(suite, _Asked(suite.metric_names))


def _display_names(suite: Suite, asked: _Asked) -> DisplayNames:
    """A spec with one name has it under every recipe; of several, each is that of a recipe with its settings."""
    trainings = list(asked.all_trainings(suite.parts))
    by_spec: dict[str, set[str]] = {}
    for each in trainings:
        by_spec.setdefault(each.model.spec, set()).add(each.model.name)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for each in trainings:
        if each.model.name:
            label = each.label if len(by_spec[each.model.spec]) > 1 else ""
            found.setdefault((each.model.spec, label), {})[each.model.name] = None
    return {key: " / ".join(names) for key, names in found.items()}  # several: --set made them the same training


def _check(part: Suite) -> None:
    stated = {
        "models": part.models or part.model or [variant for variant in part.variant if variant.models],
        "datasets": part.datasets,
        "metrics": part.metrics or part.grid,
        "seeds": part.seeds,
    }
    for needed, found in stated.items():
        if not found:
            raise SpecError(f"There is nothing to run: the suite {part.name} was left without {needed}. Name some.")


def _part(part: Suite, asked: _Asked) -> Part:
    settings = asked.for_metrics(part)
    metrics = (registry.resolve("metrics", with_options(text, _options(text, settings))) for text in part.metrics)
    grids = (grid.pinned(_options(grid.metric, settings)) for grid in part.grid)
    variants = {each.label: each.variant.name for each in asked.all_trainings([part]) if each.variant.settings}
    return Part(part.title, tuple(map(str, metrics)), tuple(grids), variants=variants)


def _cells(suite_part: Suite, part: Part, asked: _Asked) -> list[CellPlan]:
    limit = suite_part.limit if asked.limit is None else asked.limit
    found: list[CellPlan] = []
    for dataset_spec in suite_part.datasets:
        dataset = registry.resolve("datasets", dataset_spec)
        metrics = [registry.resolve("metrics", metric) for metric in part.metrics_on(str(dataset))]
        for each in asked.trainings(suite_part, str(dataset)):
            fit = _known(_fit(each.model.spec, dataset_spec, each.recipe, each.settings))
            for seed in each.seeds:
                seeded = fit.with_seed(seed)
                found += [CellPlan(fit=seeded, metric=metric, limit=limit) for metric in metrics]
    return found


def _known(fit: FitPlan) -> FitPlan:
    """The fit, or one that says why its dataset cannot be known: a plan is made without it too."""
    try:
        fit.key  # noqa: B018 - a dataset that is known by its content is read here
    except Unavailable as error:
        return dataclasses.replace(fit, absent=str(error))
    return fit


def plan_fit(
    model: str,
    dataset: str,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
) -> FitPlan:
    """A model and how it is trained on a dataset, both given by their specs.

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
    _look_again()
    return _fit(model, dataset, recipe, settings, seed)


def plan_again(record: FitRecord, dataset: str, where: str, typed: Sequence[str]) -> FitPlan:
    """The plan of a trained model, with the recipe of its record, whatever the recipe's file says now.

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
    """The plan of a fit from a file that holds the whole recipe; errors and the last two arguments as above."""
    trust.refuse_code([model, *trust.strings(recipe)], where, typed)
    _look_again()
    whole = Record({"recipe": recipe}, where).read(Recipe, "recipe")
    return FitPlan(
        model=resolve_model(model, whole), dataset=registry.resolve("datasets", dataset), recipe=whole, seed=seed
    )


def _fit(model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int = 0) -> FitPlan:
    data = registry.resolve("datasets", dataset)
    chosen = recipes.load(recipe or recipes.for_model(model, str(data)), settings)
    if registry.resolve("models", model).is_pretrained:
        chosen = recipes.load(PRETRAINED, [setting for setting in settings if setting.startswith("chains.")])
    elif recipe == PRETRAINED:
        raise SpecError(f"The recipe {PRETRAINED} trains nothing, and {model} is to be trained. Choose another recipe.")
    fit = FitPlan(model=resolve_model(model, chosen), dataset=data, recipe=chosen, seed=seed)
    for component in filter(None, (fit.model, fit.sampler)):
        component.check_size()
    return fit


PRETRAINED = "pretrained"
"""The recipe that trains nothing."""


def resolve_model(text: str, recipe: Recipe) -> Resolved:
    """A model, with the recipe's options where its spec leaves them out: JEM++ is JEM with batch norm, for one.

    Options that the model does not have do not concern it.
    """
    parsed, resolved = spec.parse(text), registry.resolve("models", text)
    options = {key: value for key, value in recipe.model.items() if key in resolved.bound.arguments}
    if options.keys() <= dict(parsed.arguments).keys():
        return resolved
    return registry.resolve("models", with_options(text, options | dict(parsed.arguments)))


def _owner(setting: str) -> str:
    """Whose option is set: ``ece`` of ``ece.bins=15``. An import path has dots of its own."""
    return setting.partition("=")[0].rpartition(".")[0]


def _options(metric: str, settings: Sequence[str]) -> dict[str, str]:
    """What the command line sets of a metric."""
    name, found = spec.parse(metric).name, {}
    for setting in settings:
        target, _, value = setting.partition("=")
        if _owner(setting) == name:
            found[target.rpartition(".")[2]] = value
    return found
