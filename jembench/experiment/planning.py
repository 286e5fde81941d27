"""From a suite and the command line to a plan: models, datasets, seeds and metrics are crossed. Imports no torch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from jembench.catalog import discovery, registry, spec
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.experiment import recipe_files as recipes
from jembench.experiment.plan import CellPlan, DisplayNames, FitPlan, Part, Plan, fit_of, look_again
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import Model, Variant, bare_name, with_options
from jembench.store.outcome import FitKey


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
    look_again()
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
    return Plan(suite, list(cells.values()), _merged(parts), display_names_of(suite, asked))


class _Asked(NamedTuple):
    """Requests beside a suite, and the metrics that tell their options from fields of the recipe."""

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
        """Return the options of metrics that are set."""
        return [setting for setting in (*part.settings, *self.settings) if _owner(setting) in self.measured]

    def trainings(self, part: Suite, dataset: str) -> Iterator[_Training]:
        """Yield the trainings on a dataset: each model of each variant. The more special setting is stronger."""
        for variant in part.variants_on(dataset):
            for model in part.models_of(variant):
                settings = (*part.settings, *variant.settings, *model.settings, *self.settings)
                chosen = self.recipe or model.recipe or part.recipe_for(model.spec, dataset)
                of_recipe = [setting for setting in settings if _owner(setting) not in self.measured]
                yield _Training(variant, model, dataset, chosen, of_recipe, model.seeds or part.seeds)

    def all_trainings(self, parts: Iterable[Suite]) -> Iterator[_Training]:
        """Yield the trainings on every dataset of some parts."""
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
        """The label of the recipe with the settings."""
        return recipes.load(self.recipe, self.settings).label


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


def _options(metric: str, settings: Sequence[str]) -> dict[str, str]:
    """Return the options of a metric that the command line sets."""
    name, found = spec.parse(metric).name, {}
    for setting in settings:
        target, _, value = setting.partition("=")
        if _owner(setting) == name:
            found[target.rpartition(".")[2]] = value
    return found


def _owner(setting: str) -> str:
    """Whose option is set: ``ece`` of ``ece.bins=15``. An import path has dots of its own."""
    return setting.partition("=")[0].rpartition(".")[0]


def _cells(suite_part: Suite, part: Part, asked: _Asked) -> list[CellPlan]:
    limit = suite_part.limit if asked.limit is None else asked.limit
    found: list[CellPlan] = []
    for dataset_spec in suite_part.datasets:
        dataset = registry.resolve("datasets", dataset_spec)
        metrics = [registry.resolve("metrics", metric) for metric in part.metrics_on(str(dataset))]
        for each in asked.trainings(suite_part, str(dataset)):
            fit = _known(fit_of(each.model.spec, dataset_spec, each.recipe, each.settings))
            for seed in each.seeds:
                seeded = fit.with_seed(seed)
                found += [CellPlan(fit=seeded, metric=metric, limit=limit) for metric in metrics]
    return found


def _known(fit: FitPlan) -> FitPlan:
    """Return the fit, or one that says why its dataset cannot be known: a plan is made without it too."""
    try:
        fit.key  # noqa: B018 - a dataset that is known by its content is read here
    except Unavailable as error:
        return dataclasses.replace(fit, absent=str(error))
    return fit


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


# --- what a suite says of results that are there ----------------------------------------------------------------------


def parts_of(suite: Suite, fits: Iterable[FitKey]) -> tuple[Part, ...]:
    """Return the parts of a suite as it stands, for results that are there already.

    A fit is shown in the parts that train its dataset by its recipe; in all of them, if none does.

    Raises:
        SpecError: for a metric that does not exist, or has no such option.
    """
    names, members, asked = {fit.names for fit in fits}, suite.parts, _Asked(suite.metric_names)
    shown_in = {name: [part for part in members if _is_by(name, part)] or members for name in names}
    return tuple(
        _part(part, asked)._replace(rows=frozenset(name for name, parts in shown_in.items() if part in parts))
        for part in members
    )


def _is_by(names: tuple[str, str, str], part: Suite) -> bool:
    model, dataset, recipe = names
    return f"{recipe}+".startswith(f"{part.recipe_for(model, dataset)}+")


def fit_names_of(suite: Suite) -> list[tuple[str, str, str, int]]:
    """Model, dataset, recipe and seed of each fit of a suite, in its order. No data are read for them.

    Of a folder of images that is not here, the fits by each recipe that may be its default: their number decides.

    Raises:
        SpecError: for any name or option that does not exist.
    """
    asked, found = _Asked.of(suite, None, (), None), dict[tuple[str, str, str, int], None]()
    for each in asked.all_trainings(suite.parts):
        for recipe in _recipes_of(each):
            fit = fit_of(each.model.spec, each.dataset, recipe, each.settings)
            found |= {(str(fit.model), str(fit.dataset), fit.recipe.label, seed): None for seed in each.seeds}
    return list(found)


def _recipes_of(training: _Training) -> list[str]:
    usual = recipes.usual_for(bare_name(training.model.spec), bare_name(training.dataset))
    is_open = training.recipe in usual and recipes.training_images(training.dataset) is None
    return usual if is_open else [training.recipe]


def labels_of(suites: Iterable[Suite]) -> set[str]:
    """Return the labels of the recipes that some suites change. Suites that cannot be planned have none."""
    found: set[str] = set()
    for part in (part for suite in suites for part in suite.parts):
        with contextlib.suppress(JembenchError):
            found |= {each.label for each in _Asked(part.metric_names).all_trainings([part]) if each.settings}
    return found


def display_names_of(suite: Suite, asked: _Asked | None = None) -> DisplayNames:
    """Return the display names of a suite's models, as it stands or as it is asked for.

    A spec with one name has it under every recipe; of several, each is that of a recipe with its settings.
    """
    asked = asked or _Asked(suite.metric_names)
    trainings = [(registry.canonical("models", each.model.spec), each) for each in asked.all_trainings(suite.parts)]
    by_spec: dict[str, set[str]] = {}
    for model, each in trainings:
        by_spec.setdefault(model, set()).add(each.model.name)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for model, each in trainings:
        if each.model.name:
            label = each.label if len(by_spec[model]) > 1 else ""
            found.setdefault((each.model.spec, label), {})[each.model.name] = None
    return {key: " / ".join(names) for key, names in found.items()}  # several: --set made them the same training
