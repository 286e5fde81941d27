"""From a suite and the command line to a plan: models, datasets, seeds and metrics are crossed. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jembench.catalog import discovery, registry, spec
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import CellPlan, DisplayNames, FitPlan, Names, Part, Plan, fit_of, look_again
from jembench.experiment.suite import Run, Suite
from jembench.experiment.sweep import Grid, compares_with_itself, with_options
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
    parts: dict[str, Part] = {}
    fits: list[tuple[Run, FitPlan]] = []
    for block in _blocks(suite, settings):
        own = [_known(fit) for fit in block.fits(suite, recipe)]
        fits += [(block.run, fit) for fit in own]
        for fit in own:
            metrics = [registry.resolve("metrics", metric) for metric in block.metrics_on(str(fit.dataset))]
            for seed in block.run.seeds:
                planned = [CellPlan(fit=fit.with_seed(seed), metric=metric, limit=limit) for metric in metrics]
                cells |= {cell.id: cell for cell in planned if cell.id not in cells}
        _add(parts, block, own, [fit.key.names for fit in own])
    if not cells:
        raise SpecError(
            f"There is nothing to run: no metric of the suite {suite.name} is for {', '.join(suite.datasets)}. Name "
            "some."
        )
    return Plan(suite, list(cells.values()), tuple(parts.values()), _names(fits))


class _Block(NamedTuple):
    """A block of a suite, with the settings of a plan."""

    run: Run
    settings: list[str]  # of its recipes
    metrics: list[str]  # canonical specs
    grids: list[Grid]

    def fits(self, suite: Suite, recipe: str | None = None) -> Iterator[FitPlan]:
        """Yield a fit of the first seed for each dataset and model. No data are read."""
        for dataset in filter(self.run.covers, suite.datasets):
            for model in self.run.models:
                yield fit_of(model, dataset, recipe or self.run.recipe_for(model, dataset), self.settings)

    def metrics_on(self, dataset: str) -> list[str]:
        """Return the metrics of a dataset: its own, then those of its grids."""
        of_grids = (place.metric for grid in self.grids for place in grid.places)
        return [metric for metric in (*self.metrics, *of_grids) if not compares_with_itself(metric, dataset)]


def _blocks(suite: Suite, settings: Sequence[str] = ()) -> Iterator[_Block]:
    measured = suite.metric_names
    for run in suite.runs:
        stated = (*run.settings, *settings)
        metrics = (registry.resolve("metrics", with_options(text, _options(text, stated))) for text in run.metrics)
        grids = [grid.pinned(_options(grid.metric, stated)) for grid in run.grid]
        of_recipes = [setting for setting in stated if _owner(setting) not in measured]
        yield _Block(run, of_recipes, list(map(str, metrics)), grids)


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


def _options(metric: str, settings: Iterable[str]) -> dict[str, str]:
    """Return the options of a metric that are set."""
    own = (setting.partition("=") for setting in settings if _owner(setting) == spec.parse(metric).name)
    return {target.rpartition(".")[2]: value for target, _, value in own}


def _owner(setting: str) -> str:
    """Return the name of what an option is set of: ``ece`` of ``ece.bins=15``. An import path has dots of its own."""
    return setting.partition("=")[0].rpartition(".")[0]


def _known(fit: FitPlan) -> FitPlan:
    """Return the fit, or one that says why its dataset cannot be known: a plan is made without it too."""
    try:
        fit.key  # noqa: B018 - a dataset that is known by its content is read here
    except Unavailable as error:
        return dataclasses.replace(fit, absent=str(error))
    return fit


def _add(parts: dict[str, Part], block: _Block, fits: Iterable[FitPlan], rows: Iterable[Names]) -> None:
    """Add a block to the part of its title, with the names of the fits that it measures."""
    title = block.run.title
    part = parts.get(title, Part(title, (), (), {}))
    measured = {names: (*(part.rows or {}).get(names, ()), *block.metrics_on(names[1])) for names in rows}
    labels = {fit.recipe.label: block.run.label for fit in fits if block.run.label and block.run.settings}
    parts[title] = Part(
        title,
        tuple(dict.fromkeys((*part.metrics, *block.metrics))),
        (*part.grids, *(grid for grid in block.grids if grid not in part.grids)),
        {**(part.rows or {}), **measured},
        {**part.variants, **labels},
    )


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
    names, parts = dict.fromkeys(fit.names for fit in fits), dict[str, Part]()
    planned = {name for name in names if any(_is_by(name, run) for run in suite.runs)}
    for block in _blocks(suite):
        rows = [name for name in names if (_is_by(name, block.run) if name in planned else block.run.covers(name[1]))]
        _add(parts, block, block.fits(suite), rows)
    return tuple(parts.values())


def _is_by(names: Names, run: Run) -> bool:
    model, dataset, recipe = names
    return run.covers(dataset) and f"{recipe}+".startswith(f"{run.recipe_for(model, dataset)}+")


def fit_names_of(suite: Suite) -> list[tuple[str, str, str, int]]:
    """Return model, dataset, recipe and seed of each fit of a suite, in its order. No data are read for them.

    Raises:
        SpecError: for any name or option that does not exist.
    """
    _check(suite, ())
    found = (
        (str(fit.model), str(fit.dataset), fit.recipe.label, seed)
        for block in _blocks(suite)
        for fit in block.fits(suite)
        for seed in block.run.seeds
    )
    return list(dict.fromkeys(found))


def display_names_of(suite: Suite) -> DisplayNames:
    """Return the display names of a suite's models, by their specs and the labels of their recipes."""
    return _names((block.run, fit) for block in _blocks(suite) if block.run.name for fit in block.fits(suite))
