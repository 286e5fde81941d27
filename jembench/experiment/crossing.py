"""The plan of a suite, and the tables of its results. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache

from jembench.catalog import discovery, registry
from jembench.catalog.spec import Spec
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.experiment import recipe as recipes
from jembench.experiment.names import DisplayNames
from jembench.experiment.plan import CellPlan, FitPlan, Part, Plan, clear_caches, fit_of
from jembench.experiment.suite import Run, Suite
from jembench.experiment.sweep import compares_with_itself, covers
from jembench.store.outcome import Evaluated, FitKey, Trained


def make_plan(
    suite: Suite,
    *,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    limit: int | None = None,
    split: Evaluated = "test",
    started: Callable[[FitPlan, Sequence[tuple[Run, FitPlan]]], FitPlan] = lambda fit, _: fit,
) -> Plan:
    """Cross the models, datasets, seeds and metrics of each block of a suite.

    Args:
        suite: after the replacements of the command line.
        recipe: the name of a recipe; None: the recipe of the block, or else the default of a model
            and a dataset.
        settings: ``metric.option=value`` for an option of a metric, otherwise ``key=value`` of the
            recipe; they override those of the suite.
        limit: the number of test images; None: the limit of the suite.
        split: the images that metrics are computed on.
        started: finds the fit that a fit starts from, among the suite's earlier fits too.

    Raises:
        SpecError: if a name or an option does not exist, before anything is computed.
    """
    clear_caches()
    suite = dataclasses.replace(_with_settings(suite, settings, limit), split=split)
    if suite.lacking:
        raise SpecError(
            f"Nothing to run: the suite {suite.name} has a block without {suite.lacking}. Name "
            "some."
        )
    for dataset in suite.datasets:
        if not any(covers(run.datasets, dataset) for run in suite.runs):
            raise SpecError(
                f"There is nothing to run: no block of the suite {suite.name} is for {dataset}."
            )
    fits: list[tuple[Run, FitPlan]] = []
    for run, dataset, model in _crossed(suite):
        fit = _fit_of_block(run, dataset, model, recipe)
        try:
            fit.key  # noqa: B018 - a dataset that is known by its content is read here
        except Unavailable as error:
            fit = dataclasses.replace(fit, absent=str(error))
        fits.append((run, started(fit, fits)))
    plan = _plan(suite, [(run, fit.with_seed(seed)) for run, fit in fits for seed in run.seeds])
    if not plan.cells:
        datasets = ", ".join(suite.datasets)
        raise SpecError(
            f"There is nothing to run: no metric of the suite {suite.name} is for {datasets}. "
            "Name some."
        )
    return plan


def plan_fits(
    suite: Suite, fits: Iterable[FitPlan], limit: int | None = None, split: Evaluated = "test"
) -> Plan:
    """Return the plan of a suite's metrics on ``fits``, without its models.

    ``limit`` and ``split`` are the same as for ``make_plan``.
    """
    suite = dataclasses.replace(_with_settings(suite, limit=limit), split=split)
    planned = []
    for fit in fits:
        planned += [(run, fit) for run in suite.runs if covers(run.datasets, fit.dataset.spec)]
    return _plan(suite, planned)


def _plan(suite: Suite, fits: Sequence[tuple[Run, FitPlan]]) -> Plan:
    """Return the plan of each block's metrics on its fit."""
    metric = cache(lambda text: registry.resolve("metrics", text))
    cells: dict[str, CellPlan] = {}
    for run, fit in fits:
        for text in _metrics_on(run, fit.key.dataset):
            cell = CellPlan(fit=fit, metric=metric(text), limit=suite.limit, split=suite.split)
            cells.setdefault(cell.id, cell)
    rows = [(run, fit.names) for run, fit in fits]
    return Plan(suite, list(cells.values()), _parts(suite, rows), _names(rows))


def _with_settings(suite: Suite, settings: Sequence[str] = (), limit: int | None = None) -> Suite:
    """Return a suite whose metrics have the options that settings set.

    Settings that are not of metrics remain in the blocks, for recipes.

    A ``limit`` of test images replaces the suite's limit.

    Raises:
        SpecError: for an option of a metric that is not measured, which would be taken for a key of
            the recipe.
    """
    measured, blocks = suite.metric_names, list[Run]()
    unmeasured = {component.name for component in discovery.components("metrics")} - measured
    for run in suite.runs:
        options: dict[str, dict[str, str]] = {name: {} for name in measured}
        of_recipes = []
        for setting in (*run.settings, *settings):
            target, _, value = setting.partition("=")
            owner, _, option = target.rpartition(".")  # the owner may be an import path with dots
            if owner in unmeasured:
                raise SpecError(
                    f"{setting!r} sets an option of the metric {owner}, which is not measured. "
                    f"The metrics are {', '.join(sorted(measured))}; name others with --metrics."
                )
            if owner in measured:
                options[owner][option] = value
            else:
                of_recipes.append(setting)
        metrics = []
        for metric in map(Spec, run.metrics):
            stated = metric.with_(**options[metric.name])
            metrics.append(registry.resolve("metrics", stated).spec)
        grids = [grid.pinned(options[Spec(grid.metric).name]) for grid in run.grid]
        settled = dataclasses.replace(run, settings=tuple(of_recipes))
        blocks.append(dataclasses.replace(settled, metrics=tuple(metrics), grid=tuple(grids)))
    suite = dataclasses.replace(suite, runs=tuple(blocks))
    return suite if limit is None else dataclasses.replace(suite, limit=limit)


def _crossed(suite: Suite) -> Iterator[tuple[Run, str, str]]:
    """Yield each block with each of its datasets and models."""
    for run in suite.runs:
        for dataset in suite.datasets:
            if covers(run.datasets, dataset):
                for model in run.models:
                    yield run, dataset, model


def _fit_of_block(run: Run, dataset: str, model: str, recipe: str | None = None) -> FitPlan:
    """Return the fit of a block's model on a dataset, without reading data.

    ``with_seed`` gives the fits of the seeds.
    """
    chosen = recipe or recipes.default(model, dataset, run.recipe)
    return dataclasses.replace(fit_of(model, dataset, chosen, run.settings), imported=run.imported)


def _metrics_on(run: Run, dataset: Spec) -> list[Spec]:
    """Return a block's metrics on a dataset, followed by its grids' metrics."""
    metrics = list(map(Spec, run.metrics))
    for grid in run.grid:
        metrics += [place.metric for place in grid.places]
    return [metric for metric in metrics if not compares_with_itself(metric, dataset)]


# --- the tables of a suite ------------------------------------------------------------------------


def presentation(suite: Suite, fits: Iterable[FitKey]) -> tuple[tuple[Part, ...], DisplayNames]:
    """Return a suite's parts for given results, and the display names.

    The names are of models and recipes.

    A fit is in the blocks that train on its dataset by its recipe, or else in all blocks on its
    dataset. Fits are in the order of the suite, with fits of other models at the end.

    Raises:
        SpecError: if a metric or an option does not exist.
    """
    suite = _with_settings(suite)
    measured = dict.fromkeys(fit.names for fit in fits)
    own, rows = _rows(suite, measured), list[tuple[Run, Trained]]()
    for fit in _sorted(measured, [planned for _, planned in own]):
        on_dataset = [run for run in suite.runs if covers(run.datasets, fit.dataset)]
        by_recipe = []
        for run in on_dataset:
            default = recipes.default(fit.model, fit.dataset, run.recipe)
            if f"{fit.recipe}+".startswith(f"{default}+"):
                by_recipe.append(run)
        rows += [(run, fit) for run in by_recipe or on_dataset]
    return _parts(suite, rows), _names(own)


def _sorted(fits: Iterable[Trained], own: Sequence[Trained]) -> list[Trained]:
    """Return fits in the order of a suite.

    A fit that the suite lacks takes the place of its model, if possible on the same dataset.
    """

    def rank(fit: Trained) -> int:
        if fit in own:
            return own.index(fit)
        alike = [place for place, planned in enumerate(own) if planned.model.bare == fit.model.bare]
        on_dataset = [place for place in alike if own[place].dataset == fit.dataset]
        return [*on_dataset, *alike, len(own)][0]

    return sorted(fits, key=rank)


def fit_names_of(suite: Suite) -> set[tuple[str, str, str, int]]:
    """Return the names and seeds of a suite's fits, without reading data."""
    names = set[tuple[str, str, str, int]]()
    for run, fit in _rows(_with_settings(suite)):
        names.update((*fit, seed) for seed in run.seeds)
    return names


def absent_of(suite: Suite) -> dict[tuple[str, str], tuple[set[int], str]]:
    """Return the models and datasets that cannot be resolved here.

    Keys are the bare names of a model and a dataset; values are the seeds and the reason.
    """
    absent: dict[tuple[str, str], tuple[set[int], str]] = {}
    for run, dataset, model in _crossed(_with_settings(suite)):
        try:
            _ = _fit_of_block(run, dataset, model).names
        except JembenchError as error:
            names = (Spec(model).bare, Spec(dataset).bare)
            seeds, _ = absent.setdefault(names, (set(), str(error)))
            seeds.update(run.seeds)
    return absent


def _rows(suite: Suite, measured: Collection[Trained] = ()) -> list[tuple[Run, Trained]]:
    """Return the blocks' fits.

    A block whose components are not installed has the only measured fit that has the block's model,
    dataset and recipe, or none.
    """
    rows = []
    for run, dataset, model in _crossed(suite):
        try:
            rows.append((run, _fit_of_block(run, dataset, model).names))
        except JembenchError:
            alike = []
            for fit in measured:
                is_of_block = (fit.model.bare, fit.dataset) == (Spec(model).bare, dataset)
                by_recipe = run.recipe is None or f"{fit.recipe}+".startswith(f"{run.recipe}+")
                if is_of_block and by_recipe:
                    alike.append(fit)
            if len(alike) == 1:
                rows.append((run, alike[0]))
    return rows


def _parts(suite: Suite, rows: Iterable[tuple[Run, Trained]]) -> tuple[Part, ...]:
    """Return a part for the blocks of each title."""
    parts: dict[str, Part] = {}
    for run in suite.runs:
        part = parts.get(run.title, Part(run.title, (), (), {}))
        metrics = dict.fromkeys((*part.metrics, *map(Spec, run.metrics)))
        grids = [*part.grids, *(grid for grid in run.grid if grid not in part.grids)]
        parts[run.title] = part._replace(metrics=tuple(metrics), grids=tuple(grids))
    for run, fit in rows:
        shown = parts[run.title].rows
        of_fit = (*shown.get(fit, ()), *_metrics_on(run, fit.dataset))
        shown[fit] = tuple(dict.fromkeys(of_fit))
    return tuple(parts.values())


def _names(rows: Iterable[tuple[Run, Trained]]) -> DisplayNames:
    """Return the names that blocks give to models and recipes.

    With --set, trainings of several names may be the same: such names are joined.
    """
    models: dict[tuple[str, str], dict[str, None]] = {}
    recipes: dict[str, dict[str, None]] = {}
    for run, (model, _, recipe) in rows:
        if run.name:
            models.setdefault((model, recipe), {})[run.name] = None
        if run.label:
            recipes.setdefault(recipe, {})[run.label] = None
    return DisplayNames(
        models={key: " / ".join(names) for key, names in models.items()},
        recipes={label: " / ".join(names) for label, names in recipes.items()},
    )
