"""From a suite and the command line to a plan: models, datasets, seeds and metrics are crossed. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from jembench.catalog import discovery, registry, spec
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import CellPlan, DisplayNames, FitPlan, Names, Part, Plan, fit_of, look_again
from jembench.experiment.suite import Run, Suite
from jembench.experiment.sweep import compares_with_itself, with_options
from jembench.store.outcome import FitKey


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
        part = parts.get(run.title, Part(run.title, (), (), {}))
        grids = (*part.grids, *(grid for grid in run.grid if grid not in part.grids))
        asked, labels = dict(part.rows or {}), {fit.recipe.label: run.label for one, fit in fits if one is run}
        for names in (names for one, names in rows if one is run):
            asked[names] = (*asked.get(names, ()), *_metrics_on(run, names[1]))
        metrics = tuple(dict.fromkeys((*part.metrics, *run.metrics)))
        parts[run.title] = Part(run.title, metrics, grids, asked, {**part.variants, **(labels if run.label else {})})
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
