"""Suites: blocks of models, datasets, metrics and seeds that are crossed. Imports no torch.

An experiment is a suite in a file of its own: it may also say how the work is carried out and what is written then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jembench.catalog import spec
from jembench.catalog.validation import Option
from jembench.errors import SpecError
from jembench.experiment import recipe_files as recipes
from jembench.experiment.attacks import attack_metrics
from jembench.experiment.claims import Claim
from jembench.experiment.recipe import AtLeast1, Positive
from jembench.experiment.sweep import Grid, bare_name, covers

Recipes = str | Mapping[str, Option]
"""The recipe of all models; or dataset's name, or "default" -> the recipe of models that have none of their own."""


Shown = Mapping[str, Option | tuple[Option, ...]]
"""Options of a command that shows results: one value or several."""


class Imported(NamedTuple):
    """An imported fit, which stands in a plan like a model: fields of its block."""

    models: tuple[str]
    name: str
    recipe: str
    settings: tuple[str, ...]
    seeds: tuple[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A block of a suite: its models, datasets, seeds and metrics are crossed by themselves."""

    title: str = ""  # of the table; blocks of one title share it
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()  # that the block is for, by their names; "!digits": all but digits; none: all
    metrics: tuple[str, ...] = ()
    grid: tuple[Grid, ...] = ()
    seeds: tuple[int, ...] = (0,)
    recipe: Recipes = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # as for --set
    name: str = ""  # of its only model in tables; "": its spec
    label: str = ""  # of its recipe with these settings in tables
    own_models: bool = False  # whether others do not replace them: of those, the ones of the same names stay

    def covers(self, dataset: str) -> bool:
        """Return whether the block is for a dataset, given by its spec."""
        return covers(self.datasets, dataset)

    @property
    def metric_names(self) -> set[str]:
        """The names of its metrics, whatever their options: ``{"accuracy", "ood"}``."""
        return {spec.parse(metric).name for metric in (*self.metrics, *(grid.metric for grid in self.grid))}

    def recipe_for(self, model: str, dataset: str) -> str:
        """Return the name of the recipe that a model is trained by on a dataset, both given by their specs."""
        return self.recipe if isinstance(self.recipe, str) else recipes.default(model, dataset, self.recipe)

    def with_models(self, models: Sequence[str | Imported]) -> list[Run]:
        """Return the block with other models: one block, or one for each model if some are imported.

        Of a block that has models of its own, those remain whose names are among ``models``.
        """
        specs = tuple(model for model in models if isinstance(model, str))
        if self.own_models:
            names = set(map(bare_name, specs))
            own = tuple(model for model in self.models if bare_name(model) in names)
            return [dataclasses.replace(self, models=own)] if own else []
        if len(specs) == len(models):
            return [dataclasses.replace(self, models=specs)]
        found = []
        for model in models:
            of_fit = {"models": (model,)} if isinstance(model, str) else {**model._asdict(), "label": ""}
            settings = (*self.settings, *of_fit.pop("settings", ()))
            found.append(dataclasses.replace(self, settings=settings, **of_fit))
        return found

    def under(self, block: Run, stated: Set[str]) -> list[Run]:
        """Return the block as another one includes it, with the ``stated`` fields of that one in place of its own.

        Settings are added. The recipes that the other names for datasets are for a block that names none.
        """
        replaced: dict[str, Any] = {key: getattr(block, key) for key in {"seeds", "name", "label"} & stated}
        if stated & {"metrics", "grid"}:
            replaced |= {"title": block.title, "metrics": block.metrics, "grid": block.grid}
        if "datasets" in stated:
            replaced["datasets"] = tuple(filter(self.covers, block.datasets))
        if isinstance(block.recipe, str):
            replaced["recipe"] = block.recipe
        elif not isinstance(self.recipe, str):
            replaced["recipe"] = {**block.recipe, **self.recipe}
        settings = (*self.settings, *block.settings)
        own = dataclasses.replace(self, settings=settings, **replaced)
        if "datasets" in stated and not own.datasets:
            return []
        return own.with_models(block.models) if "models" in stated else [own]


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
    """Blocks of work, the datasets that they are carried out on, and how the results are shown."""

    name: str
    title: str
    runs: tuple[Run, ...] = ()
    datasets: tuple[str, ...] = ()  # specs; on each of them, the blocks that are for it
    limit: AtLeast1 | None = None  # test images, None: all
    references: tuple[str, ...] = ()  # tables of published numbers, "paper/table"
    claims: tuple[Claim, ...] = ()  # what is said of the results
    execution: Execution = Execution()
    report: tuple[Shown, ...] = ()  # what is written after a run: options of ``jembench report``
    figures: tuple[Shown, ...] = ()  # of ``jembench figures``
    text: str = ""  # the content of its file; "": it is installed

    @property
    def metric_names(self) -> set[str]:
        """The names of its metrics, whatever their options: ``{"accuracy", "ood"}``."""
        return set().union(*(run.metric_names for run in self.runs))

    @property
    def lacking(self) -> str:
        """The first of models, metrics, datasets and seeds of which a block has none; "": each has all."""
        for run in self.runs or [Run()]:
            stated = {"models": run.models, "datasets": self.datasets, "metrics": run.metrics or run.grid}
            if missing := [name for name, some in {**stated, "seeds": run.seeds}.items() if not some]:
                return missing[0]
        return ""

    def replaced(
        self,
        *,
        models: Sequence[str | Imported] | None = None,
        metrics: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Suite:
        """Return the suite with these specs and seeds in place of its own; None: its own.

        Metrics replace grids too. Of blocks that have models of their own, those remain whose names are among
        ``models``.

        Raises:
            SpecError: for a model that no block takes.
        """
        changes: dict[str, Any] = {}
        if metrics is not None:
            changes |= {"title": self.title, "metrics": tuple(metrics), "grid": ()}
        if seeds is not None:
            changes["seeds"] = tuple(seeds)
        runs = [dataclasses.replace(run, **changes) for run in self.runs]
        if models is not None:
            self._check_taken(models)
            runs = [new for run in runs for new in run.with_models(models)]
        on = self.datasets if datasets is None else tuple(datasets)
        return dataclasses.replace(self, runs=tuple(runs), datasets=on)

    def _check_taken(self, models: Sequence[str | Imported]) -> None:
        for model in models:
            if not any(run.with_models([model]) for run in self.runs):
                text = model if isinstance(model, str) else model.name
                named = ", ".join(dict.fromkeys(own for run in self.runs for own in run.models))
                raise SpecError(
                    f"No block of the suite {self.name} takes the model {text}: each [[run]] names models of its own, "
                    f"which are {named}. Choose of these, or write a [[run]] for {text}."
                )


def of_attack(
    name: str,
    options: Mapping[str, Any],
    *,
    models: Sequence[str | Imported],
    datasets: Sequence[str],
    seeds: Sequence[int],
) -> Suite:
    """Return the suite of one attack on some models.

    Args:
        name: of an attack or of a metric.
        options: of the attack, as :func:`jembench.experiment.attacks.attack_metrics` takes them.
        models: specs, or imported fits.
        datasets: specs.
        seeds: of the models.

    Raises:
        SpecError: if there is no such attack.
    """
    title, runs = f"Robustness: {name}", list[Run]()
    for dataset in datasets:
        block = Run(
            title=title if len(datasets) == 1 else f"{title}, {bare_name(dataset)}",
            datasets=(dataset,),
            metrics=attack_metrics(name, options, dataset),
            seeds=tuple(seeds),
        )
        runs += block.with_models(models)
    return Suite(name="robustness", title=title, runs=tuple(runs), datasets=tuple(datasets))
