"""Suites, whose blocks cross models, datasets, metrics and seeds, and their files.

An experiment is a suite in a user's file, which may also have options of execution.
Imports no torch.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from jembench.catalog import packages, registry
from jembench.catalog.discovery import Kind
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Filled, Option, Rule, parse, read
from jembench.errors import SpecError, unknown
from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.experiment.recipe import AtLeast1, Positive
from jembench.experiment.sweep import Grid, covers
from jembench.store.outcome import Evaluated

Recipes = Mapping[str, Option] | Filled
"""The recipe of all models; or, by the dataset's name or "default", recipes of models without a
recipe of their name.
"""


def _is_below(text: str) -> bool:
    """Return whether a path stays below the current folder, without hidden parts."""
    path = Path(text)
    if not text.strip() or not text.isprintable() or path.is_absolute():
        return False
    return not any(part[0] in ".~" for part in path.parts)


BELOW = Rule("a path below the current folder, without .. and hidden folders", _is_below)
"""The paths that a suite's file may give its store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A block of a suite: crossed models, datasets, seeds and metrics."""

    title: str = ""  # of the table, which blocks of the same title share
    models: tuple[str, ...] = ()
    # names of the block's datasets; "!digits": all but digits; (): all
    datasets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    grid: tuple[Grid, ...] = ()
    seeds: tuple[int, ...] = (0,)
    recipe: Recipes = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # as for --set
    name: str = ""  # display name of its only model; "": the spec
    label: str = ""  # display name of its recipe with these settings
    own_models: bool = False  # True if ``with_models`` only selects among these, by name
    imported: str = ""  # the name under which its only model was imported

    def with_models(self, models: Sequence[str]) -> list[Run]:
        """Return the block with other models.

        A block with its own models keeps the models whose names are among ``models``.
        """
        if not self.own_models:
            return [dataclasses.replace(self, models=tuple(models))]
        names = {Spec(model).bare for model in models}
        chosen = tuple(model for model in self.models if Spec(model).bare in names)
        return [dataclasses.replace(self, models=chosen)] if chosen else []

    def under(self, block: Run, stated: Set[str]) -> list[Run]:
        """Return this block with ``stated`` fields of the block that includes it.

        Settings are added. A recipe of ``block`` for all models replaces this block's recipes;
        recipes by dataset apply where this block has none.
        """
        replaced = {key: getattr(block, key) for key in {"seeds", "name", "label"} & stated}
        if stated & {"metrics", "grid"}:
            replaced |= {"title": block.title, "metrics": block.metrics, "grid": block.grid}
        if "datasets" in stated:
            own = [dataset for dataset in block.datasets if covers(self.datasets, dataset)]
            if not own:
                return []
            replaced["datasets"] = tuple(own)
        if isinstance(block.recipe, str):
            replaced["recipe"] = block.recipe
        elif not isinstance(self.recipe, str):
            replaced["recipe"] = {**block.recipe, **self.recipe}
        replaced["settings"] = (*self.settings, *block.settings)
        run = dataclasses.replace(self, **replaced)
        return run.with_models(block.models) if "models" in stated else [run]


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """Options of execution, for those that command line and environment leave open."""

    store: Annotated[str, BELOW] | None = None
    device: Filled | None = None
    executor: Filled | None = None
    max_hours: Positive | None = None
    skip_missing: bool | None = None
    trackers: tuple[str, ...] | None = None
    format: Filled | None = None  # of the printed results

    @property
    def stated(self) -> dict[str, Any]:
        """The stated values, by the names of the options."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }

    def check(self, where: str) -> None:
        """Check a file's executor, trackers and format.

        Raises:
            SpecError: if an option is neither a number nor a named choice; the message names the
                file ``where``.
        """
        components: list[tuple[Kind, str | None]] = [
            ("executors", self.executor),
            ("formats", self.format),
        ]
        components += [("trackers", tracker) for tracker in self.trackers or ()]
        for kind, text in components:
            if text:
                registry.check_of_file(kind, text, where)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """Blocks of work, their datasets, and the presentation of results."""

    name: str
    title: str
    runs: tuple[Run, ...] = ()
    datasets: tuple[str, ...] = ()  # specs
    limit: AtLeast1 | None = None  # number of test images; None: all
    split: Evaluated = "test"  # as for --split
    references: tuple[str, ...] = ()  # tables of published numbers, "paper/table"
    claims: tuple[Claim, ...] = ()  # about the results
    execution: Execution = Execution()
    joint: bool = False  # True: its table is the joint view of all results
    sampler: str | None = None  # as for --sampler
    names: Mapping[str, str] = field(default_factory=dict)  # specs by display names, as for --name
    headings: Mapping[str, str] = field(default_factory=dict)  # by metrics, as for --heading
    text: str = ""  # the content of its file; "": of an installed suite

    @property
    def display(self) -> dict[str, str]:
        """The display names by specs of models, and the headings by metrics."""
        return {**{model: name for name, model in self.names.items()}, **self.headings}

    @property
    def metric_names(self) -> set[str]:
        """The names of the metrics without their options: ``{"accuracy", "ood"}``."""
        metrics = set[str]()
        for run in self.runs:
            metrics.update(run.metrics, (grid.metric for grid in run.grid))
        return {Spec(metric).name for metric in metrics}

    @property
    def lacking(self) -> str:
        """The first of models, metrics, datasets and seeds that a block lacks.

        The name is "" if all blocks are complete.
        """
        for run in self.runs or [Run()]:
            stated = {
                "models": run.models,
                "datasets": self.datasets,
                "metrics": run.metrics or run.grid,
                "seeds": run.seeds,
            }
            for name, values in stated.items():
                if not values:
                    return name
        return ""

    def replaced(
        self,
        *,
        models: Sequence[str] | None = None,
        metrics: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Suite:
        """Return the suite with other specs and seeds; None keeps the suite's.

        Metrics replace grids too. Blocks with their own models keep the models whose names are
        among ``models``.

        Raises:
            SpecError: if no block takes a model.
        """
        changes: dict[str, Any] = {}
        if metrics is not None:
            changes |= {"title": self.title, "metrics": tuple(metrics), "grid": ()}
        if seeds is not None:
            changes["seeds"] = tuple(seeds)
        for model in models or ():
            if not any(run.with_models([model]) for run in self.runs):
                named = ", ".join(dict.fromkeys(own for run in self.runs for own in run.models))
                raise SpecError(
                    f"No block of the suite {self.name} takes the model {model}: each [[run]] "
                    f"names models of its own, which are {named}. Choose one, or write a "
                    f"[[run]] for {model}."
                )
        runs = list[Run]()
        for run in self.runs:
            changed = dataclasses.replace(run, **changes)
            runs += [changed] if models is None else changed.with_models(models)
        suite = dataclasses.replace(self, runs=tuple(runs))
        return suite if datasets is None else dataclasses.replace(suite, datasets=tuple(datasets))


# --- files ----------------------------------------------------------------------------------------

_OF_BLOCKS = {field.name for field in dataclasses.fields(Run)} - {"own_models", "imported"} | {
    "include"
}
# taken from the first included suite that states them
_INHERITED = ("limit", "sampler", "names", "headings")
_OF_FILES = {
    "title",
    "datasets",
    "reference",
    "claim",
    "execution",
    "joint",
    "run",
    *_INHERITED,
}
_WRITTEN = {
    "report": "jembench report {} --format latex --output table.tex",
    "figures": "jembench figures {}",
}
"""The commands that replace tables of earlier experiment files."""


def names() -> list[str]:
    """Return the names of all installed suites."""
    return sorted(packages.files())


def load(name: str, including: tuple[str, ...] = ()) -> Suite:
    """Return the suite of a name or a TOML file.

    Args:
        name: of an installed suite, or the path of a file.
        including: the suites that include this one, from the outermost on.

    Raises:
        SpecError: if there is no such suite, its file is not valid, or suites include each other.
    """
    if name in including:
        circle = " includes ".join((*including[including.index(name) :], name))
        raise SpecError(f"The suite {circle}. Leave one of these out.")
    source = packages.source("suite", name)
    where = f"suite {source.name}" if source.is_installed else source.where
    if including and not source.is_installed:
        raise SpecError(
            f"The suite {including[-1]} includes the file {name}; it may include installed suites "
            "only."
        )
    fields = parse(source.content, source.where)
    _check_keys(fields, where, name)

    # blocks take what they leave out from the fields at the top of the file
    head = {key: fields[key] for key in fields.keys() & _OF_BLOCKS if key != "datasets"}
    blocks = []
    for number, own in enumerate(fields.get("run", [{}])):
        path = f".run[{number}]" if "run" in fields else ""
        blocks.append(_block(head, own, where, path, (*including, source.name)))
    of_file = _of_file(fields, blocks)
    runs = tuple(run for block in blocks for run in block.runs)
    text = "" if source.is_installed else source.content.decode()
    suite = read(Suite, of_file, where, name=source.name, runs=runs, claims=(), text=text)

    suite.execution.check(where)
    # a user's file may lack datasets, which --dataset then names
    if suite.lacking and (source.is_installed or suite.lacking != "datasets"):
        raise SpecError(f"{where} lacks {suite.lacking}. Add it to the file.")
    stated = _claims(fields, suite, where, name)
    for block in blocks:
        for included in block.included.values():
            stated += included.claims
    return dataclasses.replace(suite, claims=tuple(dict.fromkeys(stated)))


def _check_keys(fields: Mapping[str, Any], where: str, name: str) -> None:
    """Check a file's top keys, and that blocks and claims are tables."""
    for key, command in _WRITTEN.items():
        if key in fields:
            raise SpecError(
                f"{where} has [[{key}]], but a file says what is measured, not which files are "
                "written. Delete the table, and after the run use "
                f"`{command.format(shlex.quote(name))}`."
            )
    if extra := sorted(fields.keys() - _OF_BLOCKS - _OF_FILES):
        raise unknown(f"key in {where}", extra[0], _OF_BLOCKS | _OF_FILES, "")
    for key in ("run", "claim"):
        tables = fields.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise SpecError(
                f"In {where}, {key} is {tables!r}; it must be tables, each under a line [[{key}]]."
            )


class _Block(NamedTuple):
    """A block as it is written, with the suites that it includes."""

    run: Run
    included: dict[str, Suite]
    runs: list[Run]  # the blocks of the included suites or, without these, ``run``

    @property
    def datasets(self) -> Sequence[str]:
        """The datasets of the block, or else of its included suites."""
        return self.run.datasets or [
            dataset for suite in self.included.values() for dataset in suite.datasets
        ]


def _of_file(fields: Mapping[str, Any], blocks: Sequence[_Block]) -> dict[str, Any]:
    """Return a suite's fields, from its file or from included suites."""
    included: dict[str, Suite] = {}
    datasets, references = list[str](), list[str]()
    for block in blocks:
        included |= block.included
        datasets += [dataset for dataset in block.datasets if not dataset.startswith("!")]
    of_suites: dict[str, Any] = {"datasets": list(dict.fromkeys(datasets))}
    for suite in reversed(included.values()):  # so that the first suite that states a field wins
        of_suites |= {key: getattr(suite, key) for key in _INHERITED if getattr(suite, key)}
    for suite in included.values():
        references += suite.references
    of_suites["references"] = fields.get("reference", list(dict.fromkeys(references)))
    own = fields.keys() & _OF_FILES - {"run", "claim", "reference"}
    return of_suites | {key: fields[key] for key in own}


def _claims(fields: Mapping[str, Any], suite: Suite, where: str, name: str) -> list[Claim]:
    """Return a file's claims, each about metrics that its suite measures."""
    paper = claims.Paper(title=where, cite=suite.title or suite.name, url="")
    usual = {"where": "", "measure": [f"jembench run {shlex.quote(name)}"]}
    stated = []
    for table in fields.get("claim", []):
        claim = claims.of_table(suite.name, usual | table, paper)
        for metric in (*claim.metric, *claim.than_metric):
            if metric.name not in suite.metric_names:
                raise SpecError(
                    f"The claim {claim.id} of {where} is about {metric}, which is not measured. "
                    f"The metrics are {', '.join(sorted(suite.metric_names))}."
                )
        stated.append(claim)
    return stated


def _block(
    head: Mapping[str, Any],
    own: Mapping[str, Any],
    where: str,
    path: str,
    including: tuple[str, ...],
) -> _Block:
    """Return a block as written, its included suites, and the resulting blocks.

    A block that includes suites results in their blocks, with the fields that it states.

    Args:
        head: the fields at the top of the file, which the block takes if it leaves them out;
            settings are added.
        own: the fields of the block; {}: the file has no blocks.
        where: the file, for errors.
        path: the keys that lead to the block, for errors.
        including: the suites that include the block, from the outermost on.
    """
    table = {**head, **own}
    if isinstance(of_all := head.get("settings"), list) and isinstance(own.get("settings"), list):
        table["settings"] = of_all + own["settings"]
    include = table.pop("include", [])
    if not isinstance(include, list) or not all(isinstance(name, str) for name in include):
        raise SpecError(f"include of {where} is {include!r}; it must be a list of suites' names.")
    included = {name: load(name, including) for name in include}
    run = read(Run, table, where, path=path, own_models="models" in own)
    grids = [dataclasses.replace(grid, datasets=run.datasets) for grid in run.grid]
    run = dataclasses.replace(run, grid=tuple(grids))

    runs = [] if included else [run]
    for suite in included.values():
        for of_suite in suite.runs:
            runs += of_suite.under(run, table.keys())
    for block in runs:
        if block.name and len(block.models) > 1:
            raise SpecError(
                f"{where} gives {', '.join(block.models)} the name {block.name!r}, which is that "
                "of one model. Write a [[run]] for each."
            )
    return _Block(run, included, runs)
