"""Plans: fits and cells, every spec resolved and every identity known. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from jembench.catalog import discovery, registry, spec, trust
from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import stable_hash
from jembench.errors import SpecError, Unavailable
from jembench.experiment import recipe as recipes
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Run, Suite
from jembench.experiment.sweep import Grid, compares_with_itself, with_options
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
    rows: dict[Names, tuple[str, ...]]  # the metrics that are asked for of each fit
    variants: dict[str, str]  # the label of a recipe with settings -> what tables call it


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


# --- from a suite and the command line to a plan ----------------------------------------------------------------------


def make_plan(
    suite: Suite, *, recipe: str | None = None, settings: Sequence[str] = (), limit: int | None = None
) -> Plan:
    """Cross the models, datasets, seeds and metrics of each block of a suite.

    Args:
        suite: with the command line's choices in place of its own.
        recipe: its name; None: the block's, or else the default of a model and a dataset.
        settings: ``metric.option=value`` for an option of a metric, otherwise ``key=value`` of the recipe; stronger
            than those of the suite.
        limit: how many test images to evaluate; None: what the suite says.

    Raises:
        SpecError: for any name or option that does not exist, before anything is computed.
    """
    look_again()
    _check(suite, settings)
    limit = suite.limit if limit is None else limit
    cells: dict[str, CellPlan] = {}
    runs = _set(suite, settings)
    fits = [(run, _known(fit)) for run, fit in _fits(runs, suite.datasets, recipe)]
    for run, fit in fits:
        metrics = [registry.resolve("metrics", metric) for metric in _metrics_on(run, str(fit.dataset))]
        for seed in run.seeds:
            planned = [CellPlan(fit=fit.with_seed(seed), metric=metric, limit=limit) for metric in metrics]
            cells |= {cell.id: cell for cell in planned if cell.id not in cells}
    if not cells:
        datasets = ", ".join(suite.datasets)
        raise SpecError(f"There is nothing to run: no metric of the suite {suite.name} is for {datasets}. Name some.")
    parts = _parts(runs, fits, [(run, fit.key.names) for run, fit in fits])
    return Plan(suite, list(cells.values()), parts, _names(fits))


def _check(suite: Suite, settings: Sequence[str]) -> None:
    """Check that each block has something of everything, and that options that are set are of its metrics.

    An option of a metric that is not measured would be looked for in the recipe.
    """
    metrics = {component.name for component in discovery.components("metrics")} - suite.metric_names
    for setting in (*(setting for run in suite.runs for setting in run.settings), *settings):
        if (owner := _owner(setting)) in metrics:
            raise SpecError(
                f"{setting!r} sets an option of the metric {owner}, which is not measured. The metrics are "
                f"{', '.join(sorted(suite.metric_names))}; name others with --metrics."
            )
    if suite.lacking:
        raise SpecError(f"There is nothing to run: the suite {suite.name} has a block without {suite.lacking}.")
    for dataset in suite.datasets:
        if not any(run.covers(dataset) for run in suite.runs):
            raise SpecError(f"There is nothing to run: no block of the suite {suite.name} is for {dataset}.")


def _set(suite: Suite, settings: Sequence[str] = ()) -> list[Run]:
    """Return the blocks of a suite with the options of metrics set; those of recipes remain in their settings."""
    measured, found = suite.metric_names, []
    for run in suite.runs:
        stated = (*run.settings, *settings)
        metrics = (registry.resolve("metrics", with_options(text, _options(text, stated))) for text in run.metrics)
        grid = tuple(one.pinned(_options(one.metric, stated)) for one in run.grid)
        of_recipes = tuple(setting for setting in stated if _owner(setting) not in measured)
        found.append(dataclasses.replace(run, metrics=tuple(map(str, metrics)), grid=grid, settings=of_recipes))
    return found


def _options(metric: str, settings: Iterable[str]) -> dict[str, str]:
    """Return the options of a metric that are set."""
    own = (setting.partition("=") for setting in settings if _owner(setting) == spec.parse(metric).name)
    return {target.rpartition(".")[2]: value for target, _, value in own}


def _owner(setting: str) -> str:
    """Return the name of what an option is set of: ``ece`` of ``ece.bins=15``. An import path has dots of its own."""
    return setting.partition("=")[0].rpartition(".")[0]


def _fits(runs: Iterable[Run], datasets: Sequence[str], recipe: str | None = None) -> Iterator[tuple[Run, FitPlan]]:
    """Yield a fit, for all seeds, of each model of each block on each dataset. No data are read."""
    for run in runs:
        for dataset in filter(run.covers, datasets):
            for model in run.models:
                yield run, fit_of(model, dataset, recipe or run.recipe_for(model, dataset), run.settings)


def _known(fit: FitPlan) -> FitPlan:
    """Return the fit, or one that says why its dataset cannot be known: a plan is made without it too."""
    try:
        fit.key  # noqa: B018 - a dataset that is known by its content is read here
    except Unavailable as error:
        return dataclasses.replace(fit, absent=str(error))
    return fit


def _metrics_on(run: Run, dataset: str) -> list[str]:
    """Return the metrics of a block on a dataset: its own, then those of its grids."""
    of_grids = (place.metric for grid in run.grid for place in grid.places)
    return [metric for metric in (*run.metrics, *of_grids) if not compares_with_itself(metric, dataset)]


def _parts(
    runs: Iterable[Run], fits: Sequence[tuple[Run, FitPlan]], rows: Sequence[tuple[Run, Names]]
) -> tuple[Part, ...]:
    """Return a part for the blocks of each title.

    Args:
        runs: the blocks.
        fits: of the blocks, whose recipes have labels there.
        rows: the names of fits that each block measures.
    """
    parts: dict[str, Part] = {}
    for run in runs:
        part = parts.get(run.title, Part(run.title, (), (), {}, {}))
        metrics = tuple(dict.fromkeys((*part.metrics, *run.metrics)))
        grids = (*part.grids, *(grid for grid in run.grid if grid not in part.grids))
        labels = {fit.recipe.label: run.label for one, fit in fits if one is run and run.label}
        asked = {names: (*part.rows.get(names, ()), *_metrics_on(run, names[1])) for one, names in rows if one is run}
        parts[run.title] = Part(run.title, metrics, grids, part.rows | asked, part.variants | labels)
    return tuple(parts.values())


def _names(fits: Iterable[tuple[Run, FitPlan]]) -> DisplayNames:
    """Return the display names of models; where --set makes two trainings the same, both names."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for run, fit in fits:
        if run.name:
            found.setdefault((str(fit.model), fit.recipe.label), {})[run.name] = None
    return {key: " / ".join(names) for key, names in found.items()}


# --- what a suite says of results that are there ----------------------------------------------------------------------


def parts_of(suite: Suite, fits: Iterable[FitKey]) -> tuple[Part, ...]:
    """Return the parts of a suite as it stands, for results that are there already.

    A fit is shown with the blocks that train its dataset by its recipe; with all of them, if none does.

    Raises:
        SpecError: for a metric that does not exist, or has no such option.
    """
    runs, names = _set(suite), dict.fromkeys(fit.names for fit in fits)
    by_recipe = {name: [run for run in runs if _is_by(name, run)] for name in names}
    rows = [(run, name) for name, own in by_recipe.items() for run in own or runs if run.covers(name[1])]
    return _parts(runs, list(_fits(runs, suite.datasets)), rows)


def _is_by(names: Names, run: Run) -> bool:
    model, dataset, recipe = names
    return run.covers(dataset) and f"{recipe}+".startswith(f"{run.recipe_for(model, dataset)}+")


def fit_names_of(suite: Suite) -> list[tuple[str, str, str, int]]:
    """Return model, dataset, recipe and seed of each fit of a suite, in its order. No data are read for them.

    Raises:
        SpecError: for any name or option that does not exist.
    """
    _check(suite, ())
    fits = ((run, fit.model, fit.dataset, fit.recipe) for run, fit in _fits(_set(suite), suite.datasets))
    names = ((str(model), str(data), recipe.label, seed) for run, model, data, recipe in fits for seed in run.seeds)
    return list(dict.fromkeys(names))


def display_names_of(suite: Suite) -> DisplayNames:
    """Return the display names of a suite's models, by their specs and the labels of their recipes."""
    return _names(_fits([run for run in _set(suite) if run.name], suite.datasets))
