"""The files of suites: those that are installed, and those of users. Imports no torch."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jembench.catalog import packages, spec
from jembench.catalog.validation import parse, read
from jembench.errors import SpecError, unknown
from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.experiment.suite import Run, Suite

_OF_BLOCKS = {field.name for field in dataclasses.fields(Run)} - {"own_models"} | {"include"}
_OF_FILES = {"title", "datasets", "limit", "reference", "claim", "execution", "report", "figures"}


def names() -> list[str]:
    """Return the names of all suites that are installed."""
    return sorted(packages.files())


def load(name: str) -> Suite:
    """Return the suite of that name, or in that TOML file.

    Raises:
        SpecError: if there is none, or its file does not say what a suite must.
    """
    return _load(name, ())


def _load(name: str, including: tuple[str, ...]) -> Suite:
    if name in including:
        circle = " includes ".join((*including[including.index(name) :], name))
        raise SpecError(f"The suite {circle}. Leave one of these out.")
    source, is_file = packages.source("suite", name), packages.is_file(name)
    where = source.where if is_file else f"suite {source.name}"
    fields = parse(source.content, source.where)
    _refuse_former(fields, where)
    blocks = _blocks(fields, where)
    if extra := sorted(fields.keys() - _OF_BLOCKS - _OF_FILES):
        raise unknown(f"key in {where}", extra[0], _OF_BLOCKS | _OF_FILES | {"run"}, "")
    includes = dict.fromkeys(other for block in blocks for other in block.include)
    included = {other: _load(other, (*including, source.name)) for other in includes}
    runs = [run for block in blocks for run in _runs(block, included, where)]
    of_file = {key: fields[key] for key in fields.keys() & _OF_FILES - {"claim", "reference"}}
    of_file.setdefault("datasets", list(dict.fromkeys(_datasets(blocks, included))))
    of_file.setdefault("limit", next((other.limit for other in included.values() if other.limit), None))
    references = [reference for other in included.values() for reference in other.references]
    of_file["references"] = fields.get("reference", list(dict.fromkeys(references)))
    text = source.content.decode() if is_file else ""
    suite = read(Suite, of_file, where, name=source.name, runs=tuple(runs), claims=(), text=text)
    if suite.lacking:
        raise SpecError(f"{where} lacks {suite.lacking}. Add it to the file.")
    own = _claims(fields.get("claim", []), suite, where, f"jembench run {shlex.quote(name)}")
    of_included = (claim for other in included.values() for claim in other.claims)
    return dataclasses.replace(suite, claims=tuple(dict.fromkeys((*own, *of_included))))


class _Block(NamedTuple):
    """A ``[[run]]`` of a file."""

    path: str  # the keys that lead to it, for errors
    table: dict[str, Any]  # with what the head of the file says for all blocks
    include: list[str]  # the suites whose blocks it takes
    own_models: bool


def _blocks(fields: dict[str, Any], where: str) -> list[_Block]:
    """Take the blocks out of a file. One without any is a block."""
    tables = fields.pop("run", None)
    if tables is not None and not (isinstance(tables, list) and all(isinstance(table, dict) for table in tables)):
        raise SpecError(f"In {where}, run is {tables!r}; it must be blocks, each under a line [[run]].")
    head = {key: fields[key] for key in fields.keys() & _OF_BLOCKS if key != "datasets"}
    found = []
    for number, own in enumerate(tables or [{}]):
        table = head | own
        if isinstance(of_all := head.get("settings"), list) and isinstance(own.get("settings"), list):
            table["settings"] = of_all + own["settings"]
        path = "" if tables is None else f".run[{number}]"
        found.append(_Block(path, table, _included(table, where), "models" in own))
    return found


def _included(table: dict[str, Any], where: str) -> list[str]:
    """Take the key ``include`` out of a block."""
    include = table.pop("include", [])
    if not isinstance(include, list) or any(not isinstance(one, str) or packages.is_file(one) for one in include):
        raise SpecError(f"include of {where} is {include!r}; it must be a list of suites' names.")
    return include


def _runs(block: _Block, included: Mapping[str, Suite], where: str) -> list[Run]:
    """Return a block; or, where it includes suites, theirs with what it says in place of what they say."""
    run = read(Run, block.table, where, path=block.path, own_models=block.own_models)
    run = dataclasses.replace(run, grid=tuple(dataclasses.replace(one, datasets=run.datasets) for one in run.grid))
    of_suites = [other for name in block.include for other in included[name].runs]
    found = [new for other in of_suites for new in other.under(run, block.table.keys())] if block.include else [run]
    for run in found:
        if run.name and len(run.models) > 1:
            raise SpecError(
                f"{where} gives {', '.join(run.models)} the name {run.name!r}, which is that of one model. Write a "
                "[[run]] for each."
            )
    return found


def _datasets(blocks: list[_Block], included: Mapping[str, Suite]) -> Iterator[str]:
    """Yield the datasets of a file that says none for all blocks: those that the blocks name, or their suites."""
    for block in blocks:
        named = block.table.get("datasets") or [one for name in block.include for one in included[name].datasets]
        yield from (dataset for dataset in named if not dataset.startswith("!"))


def _claims(tables: Any, suite: Suite, where: str, command: str) -> list[Claim]:
    """Return the claims of a file.

    Raises:
        SpecError: if a table does not make a claim, or its metrics are not measured.
    """
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise SpecError(f"In {where}, claim is {tables!r}; it must be tables, each under a line [[claim]].")
    paper = claims.Paper(title=where, cite=suite.title or suite.name, url="")
    found = [claims.of_table(suite.name, {"where": "", "measure": [command], **table}, paper) for table in tables]
    for claim in found:
        for metric in (*claim.metric, *claim.than_metric):
            if spec.parse(metric).name not in suite.metric_names:
                raise SpecError(
                    f"The claim {claim.id} of {where} is about {metric}, which is not measured. The metrics are "
                    f"{', '.join(sorted(suite.metric_names))}."
                )
    return found


def _refuse_former(fields: Mapping[str, Any], where: str) -> None:
    """Check that a file has none of the tables that blocks stand in place of."""
    former = [f"[[{key}]]" for key in ("variant", "model", "arm", "attack") if key in fields]
    former += ["[run]"] * isinstance(fields.get("run"), Mapping)
    grids = fields.get("grid", [])
    former += [key for key in ("on", "except") if any(key in grid for grid in grids if isinstance(grid, Mapping))]
    if former:
        raise SpecError(
            f"{where} has {', '.join(former)}, which suites no longer have. Write a [[run]] block for each variant, "
            "model and attack: it crosses its models, datasets, seeds and metrics by a recipe with settings, and what "
            "it leaves out is as above the blocks. Its name stands in tables for its model, its label for its recipe. "
            '`datasets = ["digits"]` of a block is what on was, and `datasets = ["!digits"]` what except was. The '
            "execution is in [execution]."
        )
