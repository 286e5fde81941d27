"""Plans: fits and cells with resolved specs and known identities. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from jembench.catalog import discovery, registry, spec, trust
from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import stable_hash
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.experiment import effects
from jembench.experiment import recipe as recipes
from jembench.experiment.names import Fit, Names, display_names, requested
from jembench.experiment.recipe import Recipe
from jembench.experiment.suite import Run, Suite
from jembench.experiment.sweep import Grid, compares_with_itself, covers, with_options
from jembench.store.fits import FitRecord
from jembench.store.outcome import FitKey
from jembench.store.records import Record


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """A planned fit: model x dataset x recipe x seed."""

    model: Resolved
    dataset: Resolved
    recipe: Recipe
    seed: int
    imported: str = ""  # the name of the import
    absent: str = ""  # why the dataset's files cannot be read; such a fit is only planned, without an identity

    @property
    def is_pretrained(self) -> bool:
        """True if the fit is not trained here, since its model has weights or they were imported."""
        return self.model.is_pretrained or bool(self.recipe.source)

    @cached_property
    def sampler(self) -> Resolved | None:
        """The recipe's sampler, for models that need one; None: the recipe names none.

        Raises:
            SpecError: if the sampler or an option does not exist.
        """
        return registry.resolve("samplers", self.recipe.chains.sampler) if self.recipe.chains.sampler else None

    def components(self, *, sampled: bool) -> list[Component]:
        """Return the components of the fit, including its sampler if ``sampled``."""
        parts = [self.model, self.dataset, self.sampler if sampled else None]
        of_recipe = [component for component in self.recipe.components if component.distribution != "jembench"]
        return [component for part in parts if part for component in part.uses] + of_recipe

    @cached_property
    def key(self) -> FitKey:
        """The fit's names, and the hash of its identity."""
        return FitKey(
            model=str(self.model),
            dataset=str(self.dataset),
            recipe=self.recipe.label,
            seed=self.seed,
            id=stable_hash({**self.identity, "seed": self.seed}),
            family=stable_hash(self.identity),
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the fit, except the seed, in JSON types."""
        recipe = self.recipe.identity
        recipe["chains"]["sampler"] = self.sampler.identity if self.sampler else None
        if codes := registry.codes(self.recipe.components):
            recipe["code"] = codes
        return {
            "model": self.model.identity,
            "dataset": {"absent": str(self.dataset)} if self.absent else self.dataset.identity,
            "recipe": recipe,
        }

    def starts_from(self, key: FitKey) -> bool:
        """Return whether training starts from the weights of a fit, named by its id, or by its family and the seed."""
        start = self.recipe.start_from
        return bool(start) and (start == key.id or (start, self.seed) == (key.family, key.seed))

    @property
    def requested(self) -> str:
        """The name of the import, or the spec of the model without the options that the recipe added."""
        return self.imported or requested(self.key.model, self.model.arguments, self.recipe.model)

    @property
    def names(self) -> Names:
        """The display name of the model."""
        return display_names({}, {self.key.names: self.requested})

    def __str__(self) -> str:
        return str(dataclasses.replace(self.key, model=self.requested))


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """A planned cell: one fit x one metric."""

    fit: FitPlan
    metric: Resolved
    limit: int | None  # number of test images; None: all

    @cached_property
    def id(self) -> str:
        """The hash of everything that determines the outcome."""
        return stable_hash({"fit": self.fit.key.id, "metric": self.metric.identity, "limit": self.limit})

    @cached_property
    def name(self) -> str:
        """The readable part of the names of its files."""
        return f"{self.metric}-{self.fit.key.model}-{self.fit.key.dataset}-s{self.fit.seed}"


class Part(NamedTuple):
    """A part of a report: the blocks of one title, or all work."""

    title: str
    metrics: tuple[str, ...]  # canonical specs
    grids: tuple[Grid, ...]
    rows: dict[Fit, tuple[str, ...]]  # the metrics of each fit


@dataclass(frozen=True)
class Plan:
    """The work of a run."""

    suite: Suite
    cells: list[CellPlan]
    parts: tuple[Part, ...] = ()
    names: Names = field(default_factory=dict)

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

    @classmethod
    def joined(cls, plans: Sequence[Plan]) -> Plan:
        """Join the cells and parts of plans, under the suite of the first one."""
        cells = [cell for plan in plans for cell in plan.cells]
        names = {key: name for plan in plans for key, name in plan.names.items()}
        return cls(plans[0].suite, cells, tuple(part for plan in plans for part in plan.parts), names)


def clear_caches() -> None:
    """Clear the caches of what files say, which may have changed since the last plan."""
    trained_spec.cache_clear()
    registry.content_of.cache_clear()
    recipes.training_images.cache_clear()


def plan_fit(
    model: str, dataset: str, recipe: str | None = None, settings: Sequence[str] = (), seed: int = 0
) -> FitPlan:
    """Return the plan of the training of a model on a dataset, both given by their specs.

    A model that was trained elsewhere has the recipe ``pretrained``, to which only settings of chains apply. The recipe
    and other settings are for models that are trained.

    Args:
        model: the spec of the model.
        dataset: the spec of the dataset.
        recipe: the name of the recipe; None: the default of the model and the dataset.
        settings: ``key=value`` of the recipe.
        seed: of the fit.

    Raises:
        SpecError: if a name or an option does not exist, or the recipe ``pretrained`` is given for another model.
    """
    clear_caches()
    return fit_of(model, dataset, recipe, settings, seed)


def plan_again(record: FitRecord, dataset: str, where: str, typed: Sequence[str]) -> FitPlan:
    """Return the plan of a trained model, with the recipe of its record instead of the recipe's present file.

    Args:
        record: of the model.
        dataset: the spec of the dataset, whose files may be elsewhere now.
        where: the folder of the record, for errors.
        typed: the specs that the user has named.

    Raises:
        SpecError: if a name or an option does not exist, or only the record names some code.
        DamagedError: if the record has no recipe of this version.
    """
    fit = rebuilt(record.key.model, dataset, record.recipe, record.key.seed, where, typed)
    return dataclasses.replace(fit, imported=record.import_name)


def rebuilt(
    model: str, dataset: str, recipe: Mapping[str, Any], seed: int, where: str, typed: Sequence[str] = ()
) -> FitPlan:
    """Return the plan of a fit with a whole recipe from a file; arguments and errors as for :func:`plan_again`."""
    trust.refuse_code([model, recipe], where, typed)
    clear_caches()
    whole = Record({"recipe": recipe}, where).read(Recipe, "recipe")
    return FitPlan(
        model=resolve_model(model, whole), dataset=registry.resolve("datasets", dataset), recipe=whole, seed=seed
    )


def fit_of(model: str, dataset: str, recipe: str | None, settings: Sequence[str], seed: int = 0) -> FitPlan:
    """Return the plan of a fit without clearing caches; arguments and errors as for :func:`plan_fit`."""
    data = registry.resolve("datasets", dataset)
    chosen = recipes.load(recipe or recipes.default(model, dataset), settings)
    if any(setting.startswith("source=") for setting in settings) or registry.resolve("models", model).is_pretrained:
        chosen = recipes.load(PRETRAINED, [text for text in settings if text.startswith(("chains.", "source="))])
    elif recipe == PRETRAINED:
        raise SpecError(f"The recipe {PRETRAINED} trains nothing, and {model} is to be trained. Choose another recipe.")
    effects.check(chosen)
    return FitPlan(model=resolve_model(model, chosen), dataset=data, recipe=chosen, seed=seed)


PRETRAINED = "pretrained"
"""The recipe that trains nothing."""


def resolve_model(text: str, recipe: Recipe) -> Resolved:
    """Return a model, with the recipe's options that its spec leaves out, such as the batch norm of JEM++.

    Options that the model does not have are ignored.
    """
    parsed, resolved = spec.parse(text), registry.resolve("models", text)
    options = {key: value for key, value in recipe.model.items() if key in resolved.arguments}
    if options.keys() <= dict(parsed.arguments).keys():
        return resolved
    return registry.resolve("models", with_options(text, options | dict(parsed.arguments)))


@cache
def trained_spec(model: str, recipe: str) -> str:
    """Return the canonical spec of a model, with the options that a recipe adds to it if that is installed."""
    with suppress(JembenchError):
        return str(resolve_model(model, recipes.load(recipe)))
    return registry.canonical("models", model)


# --- from a suite and the command line to a plan ----------------------------------------------------------------------


def make_plan(
    suite: Suite,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    limit: int | None = None,
    started: Callable[[FitPlan, Sequence[tuple[Run, FitPlan]]], FitPlan] = lambda fit, _: fit,
) -> Plan:
    """Cross the models, datasets, seeds and metrics of each block of a suite.

    Args:
        suite: after the replacements of the command line.
        recipe: the name of a recipe; None: that of the block, or else the default of a model and a dataset.
        settings: ``metric.option=value`` for an option of a metric, otherwise ``key=value`` of the recipe; they
            override those of the suite.
        limit: the number of test images; None: that of the suite.
        started: finds the fit that one starts from, also among the earlier ones of the suite.

    Raises:
        SpecError: if a name or an option does not exist, before anything is computed.
    """
    clear_caches()
    runs = _set(suite, settings)
    if suite.lacking:
        raise SpecError(f"Nothing to run: the suite {suite.name} has a block without {suite.lacking}. Name some.")
    for dataset in suite.datasets:
        if not any(covers(run.datasets, dataset) for run in runs):
            raise SpecError(f"There is nothing to run: no block of the suite {suite.name} is for {dataset}.")
    cells: dict[str, CellPlan] = {}
    fits: list[tuple[Run, FitPlan]] = []
    for run, fit in _fits(runs, suite.datasets, recipe):
        try:
            fit.key  # noqa: B018 - a dataset that is known by its content is read here
        except Unavailable as error:
            fit = dataclasses.replace(fit, absent=str(error))
        fit = started(fit, fits)
        fits.append((run, fit))
        metrics = [registry.resolve("metrics", metric) for metric in _metrics_on(run, fit.key.dataset)]
        for seed in run.seeds:
            of_seed = dataclasses.replace(fit, seed=seed)
            vars(of_seed).update(sampler=fit.sampler, identity=fit.identity)  # which the seeds share
            for metric in metrics:
                cell = CellPlan(fit=of_seed, metric=metric, limit=suite.limit if limit is None else limit)
                cells.setdefault(cell.id, cell)
    if not cells:
        datasets = ", ".join(suite.datasets)
        raise SpecError(f"There is nothing to run: no metric of the suite {suite.name} is for {datasets}. Name some.")
    parts, names = _presentation(runs, [(run, fit.key.names) for run, fit in fits], fits)
    names = display_names({}, {fit.key.names: fit.requested for _, fit in fits}, names)
    return Plan(suite, list(cells.values()), parts, names)


def _set(suite: Suite, settings: Sequence[str] = ()) -> list[Run]:
    """Return the blocks of a suite with the options of metrics set; other settings remain, for recipes.

    Raises:
        SpecError: for an option of a metric that is not measured, which would be taken for a key of the recipe.
    """
    measured, blocks = suite.metric_names, []
    others = {component.name for component in discovery.components("metrics")} - measured
    for run in suite.runs:
        options: dict[str, dict[str, str]] = {name: {} for name in measured}
        of_recipes = []
        for setting in (*run.settings, *settings):
            target, _, value = setting.partition("=")
            owner, _, option = target.rpartition(".")  # the owner may be an import path with dots
            if owner in others:
                raise SpecError(
                    f"{setting!r} sets an option of the metric {owner}, which is not measured. The metrics are "
                    f"{', '.join(sorted(measured))}; name others with --metrics."
                )
            if owner in measured:
                options[owner][option] = value
            else:
                of_recipes.append(setting)
        stated = [with_options(text, options[spec.parse(text).name]) for text in run.metrics]
        metrics = tuple(str(registry.resolve("metrics", text)) for text in stated)
        grid = tuple(one.pinned(options[spec.parse(one.metric).name]) for one in run.grid)
        blocks.append(dataclasses.replace(run, metrics=metrics, grid=grid, settings=tuple(of_recipes)))
    return blocks


def _fits(runs: Iterable[Run], datasets: Sequence[str], recipe: str | None = None) -> Iterator[tuple[Run, FitPlan]]:
    """Yield a fit of each model of each block on each dataset, for all seeds, without reading data."""
    for run in runs:
        for dataset in (dataset for dataset in datasets if covers(run.datasets, dataset)):
            for model in run.models:
                chosen = recipe or recipes.default(model, dataset, run.recipe)
                yield run, dataclasses.replace(fit_of(model, dataset, chosen, run.settings), imported=run.imported)


def _metrics_on(run: Run, dataset: str) -> list[str]:
    """Return the metrics of a block on a dataset, followed by those of its grids."""
    of_grids = (place.metric for grid in run.grid for place in grid.places)
    return [metric for metric in (*run.metrics, *of_grids) if not compares_with_itself(metric, dataset)]


def _presentation(
    runs: Iterable[Run], rows: Iterable[tuple[Run, Fit]], fits: Iterable[tuple[Run, FitPlan]]
) -> tuple[tuple[Part, ...], Names]:
    """Return a part for the blocks of each title, and the display names of models.

    Names are joined if --set makes two trainings the same.

    Args:
        runs: the blocks.
        rows: the blocks with the names of the fits that they measure.
        fits: of the blocks that give models or recipes a name.
    """
    parts: dict[str, Part] = {}
    for run in runs:
        part = parts.get(run.title, Part(run.title, (), (), {}))
        metrics = tuple(dict.fromkeys((*part.metrics, *run.metrics)))
        grids = (*part.grids, *(grid for grid in run.grid if grid not in part.grids))
        parts[run.title] = part._replace(metrics=metrics, grids=grids)
    for run, names in rows:
        shown = parts[run.title].rows
        shown[names] = tuple(dict.fromkeys((*shown.get(names, ()), *_metrics_on(run, names[1]))))
    found: dict[tuple[str, str], dict[str, None]] = {}
    for run, fit in fits:
        if run.label:
            found.setdefault(("", fit.recipe.label), {})[run.label] = None
        if run.name:
            found.setdefault((str(fit.model), fit.recipe.label), {})[run.name] = None
    return tuple(parts.values()), {key: " / ".join(names) for key, names in found.items()}


# --- a suite for given results ----------------------------------------------------------------------------------------


def presentation(suite: Suite, fits: Iterable[FitKey]) -> tuple[tuple[Part, ...], Names]:
    """Return the parts of a suite for given results, and the display names of its models.

    A fit belongs to the blocks that train on its dataset by its recipe, or to all blocks if none does.

    Raises:
        SpecError: if a metric or an option does not exist.
    """
    runs, rows = _set(suite), list[tuple[Run, Fit]]()
    for names in dict.fromkeys(fit.names for fit in fits):
        model, dataset, recipe = names
        on = [run for run in runs if covers(run.datasets, dataset)]
        by = [run for run in on if f"{recipe}+".startswith(f"{recipes.default(model, dataset, run.recipe)}+")]
        rows += [(run, names) for run in by or on]
    return _presentation(runs, rows, _fits([run for run in runs if run.name or run.label], suite.datasets))


def fit_names_of(suite: Suite) -> list[tuple[str, str, str, int]]:
    """Return model, dataset, recipe and seed of each fit of a suite, in its order, without reading data.

    Raises:
        SpecError: if a name or an option does not exist.
    """
    fits = ((run, fit.model, fit.dataset, fit.recipe) for run, fit in _fits(_set(suite), suite.datasets))
    names = ((str(model), str(data), recipe.label, seed) for run, model, data, recipe in fits for seed in run.seeds)
    return list(dict.fromkeys(names))
