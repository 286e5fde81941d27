"""The files of suites: those that are installed, and those of users. Imports no torch."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

from jembench.catalog import packages, spec
from jembench.catalog.validation import parse, read
from jembench.errors import SpecError, unknown
from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.experiment.suite import Run, Suite

_OF_BLOCKS = {field.name for field in dataclasses.fields(Run)} - {"own_models"} | {"include"}
_OF_FILES = {"title", "datasets", "limit", "reference", "claim", "execution", "report", "figures", "run"}


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
    if extra := sorted(fields.keys() - _OF_BLOCKS - _OF_FILES):
        raise unknown(f"key in {where}", extra[0], _OF_BLOCKS | _OF_FILES, "")
    included: dict[str, Suite] = {}
    runs: list[Run] = []
    datasets: list[str] = []
    for path, table, own_models in _blocks(fields, where):
        of_block = {other: _load(other, (*including, source.name)) for other in _included(table, where)}
        run = read(Run, table, where, path=path, own_models=own_models)
        runs += _expanded(run, table.keys(), of_block.values(), where)
        datasets += run.datasets or [dataset for other in of_block.values() for dataset in other.datasets]
        included |= of_block
    of_file = {key: fields[key] for key in fields.keys() & _OF_FILES - {"run", "claim", "reference"}}
    of_file.setdefault("datasets", list(dict.fromkeys(one for one in datasets if not one.startswith("!"))))
    of_file.setdefault("limit", next((other.limit for other in included.values() if other.limit), None))
    references = [reference for other in included.values() for reference in other.references]
    of_file["references"] = fields.get("reference", list(dict.fromkeys(references)))
    text = source.content.decode() if is_file else ""
    suite = read(Suite, of_file, where, name=source.name, runs=tuple(runs), claims=(), text=text)
    if suite.lacking:
        raise SpecError(f"{where} lacks {suite.lacking}. Add it to the file.")
    own = _claims(_tables(fields, "claim", where), suite, where, f"jembench run {shlex.quote(name)}")
    of_included = (claim for other in included.values() for claim in other.claims)
    return dataclasses.replace(suite, claims=tuple(dict.fromkeys((*own, *of_included))))


def _blocks(fields: Mapping[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each block of a file, with what the head of the file says for all; a file without any is a block.

    Beside it are the keys that lead to it, for errors, and whether it names models of its own.
    """
    head = {key: fields[key] for key in fields.keys() & _OF_BLOCKS if key != "datasets"}
    if "run" not in fields:
        yield "", head, False
        return
    for number, own in enumerate(_tables(fields, "run", where)):
        table = head | own
        if isinstance(of_all := head.get("settings"), list) and isinstance(own.get("settings"), list):
            table["settings"] = of_all + own["settings"]
        yield f".run[{number}]", table, "models" in own


def _tables(fields: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Return the tables of a key."""
    tables = fields.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SpecError(f"In {where}, {key} is {tables!r}; it must be tables, each under a line [[{key}]].")
    return tables


def _included(table: dict[str, Any], where: str) -> list[str]:
    """Take the key ``include`` out of a block."""
    include = table.pop("include", [])
    if not isinstance(include, list) or any(not isinstance(one, str) or packages.is_file(one) for one in include):
        raise SpecError(f"include of {where} is {include!r}; it must be a list of suites' names.")
    return include


def _expanded(run: Run, stated: Set[str], included: Collection[Suite], where: str) -> list[Run]:
    """Return a block; or, where it includes suites, theirs with what it says in place of what they say."""
    run = dataclasses.replace(run, grid=tuple(dataclasses.replace(one, datasets=run.datasets) for one in run.grid))
    found = [new for other in included for of_other in other.runs for new in of_other.under(run, stated)]
    for one in found if included else [run]:
        if one.name and len(one.models) > 1:
            raise SpecError(
                f"{where} gives {', '.join(one.models)} the name {one.name!r}, which is that of one model. Write a "
                "[[run]] for each."
            )
    return found if included else [run]


def _claims(tables: list[dict[str, Any]], suite: Suite, where: str, command: str) -> list[Claim]:
    """Return the claims of a file.

    Raises:
        SpecError: if a table does not make a claim, or its metrics are not measured.
    """
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
