"""The files of suites: those that are installed, and those of users. Imports no torch."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from jembench.catalog import packages, spec
from jembench.catalog.validation import parse, read
from jembench.errors import JembenchError, SpecError
from jembench.experiment import claims
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import Grid, Model


def names() -> list[str]:
    """Return the names of all suites that are installed."""
    return sorted(packages.files())


def load(name: str) -> Suite:
    """Return the suite of that name, or in that TOML file.

    Raises:
        SpecError: if there is none, or its file does not say what a suite must.
    """
    return _load(name, ())


def every() -> list[Suite]:
    """Every installed suite that can be read; `jembench run` of the others says what is wrong with them."""
    found = []
    for name in names():
        with contextlib.suppress(JembenchError):
            found.append(load(name))
    return found


def all_grids() -> list[Grid]:
    """Return the grids of every suite that can be used, each once and with all values."""
    found: list[Grid] = []
    for suite in every():
        with contextlib.suppress(JembenchError):
            grids = [grid for part in suite.parts for grid in part.grid if grid.places]
            found += [grid for grid in (dataclasses.replace(grid, values=()) for grid in grids) if grid not in found]
    return found


def _load(name: str, including: tuple[str, ...]) -> Suite:
    if name in including:
        circle = " includes ".join((*including[including.index(name) :], name))
        raise SpecError(f"The suite {circle}. Leave one of these out.")
    source, is_file = packages.source("suite", name), packages.is_file(name)
    where = source.where if is_file else f"suite {source.name}"
    fields = parse(source.content, source.where)
    included = tuple(_load(other, (*including, source.name)) for other in _included(fields, where))
    text = source.content.decode() if is_file else ""
    suite = read(Suite, _in_fields(fields, name, source.name, where), where, name=source.name, included=(), text=text)
    for number, attack in enumerate(suite.attack):
        attack.check(f"attack[{number}] of {where}")
    _check_names(suite, where)
    if included:
        suite = _union(suite, included, fields.keys())
    else:
        any_of = {"models": ("models", "model"), "datasets": ("datasets",), "metrics": ("metrics", "grid", "attack")}
        if missing := [key for key, others in any_of.items() if fields.keys().isdisjoint(others)]:
            raise SpecError(f"{where} lacks {', '.join(missing)}. Add it to the file.")
    _check_claims(suite, where)
    return suite


def _included(fields: dict[str, Any], where: str) -> list[str]:
    """Take the key ``include`` out of a suite's fields."""
    include = fields.pop("include", [])
    if not isinstance(include, list) or any(not isinstance(one, str) or packages.is_file(one) for one in include):
        raise SpecError(f"include of {where} is {include!r}; it must be a list of suites' names.")
    if include and "variant" in fields:
        raise SpecError(
            f"{where} includes others, and has variants of its own. Write these into a suite of their own, and include "
            "it as well."
        )
    return include


def _union(suite: Suite, included: Sequence[Suite], keys: Set[str]) -> Suite:
    """Return the suites that one includes, with what it names itself in place of theirs, and its grids and attacks."""
    models: list[str | Model] | None = [*suite.models, *suite.model] if keys & {"models", "model"} else None
    own: dict[str, Any] = {key: getattr(suite, key) for key in ("metrics", "datasets", "seeds") if key in keys}
    chosen = [one.under(suite).choose(models=models, **own) for one in included]
    if suite.grid or suite.attack:
        first = dataclasses.replace(chosen[0].parts[0], metrics=(), variant=(), reference=None)
        chosen.append(
            dataclasses.replace(first, name=suite.name, title=suite.title, grid=suite.grid, attack=suite.attack)
        )
    return dataclasses.replace(
        suite, models=(), model=(), datasets=(), metrics=(), grid=(), attack=(), included=tuple(chosen)
    )


def _check_names(suite: Suite, where: str) -> None:
    """Check that models that are trained alike have one name."""
    names: dict[tuple[object, ...], str] = {}
    for model in suite.model:
        name = names.setdefault((model.spec, model.recipe, model.settings), model.name)
        if name != model.name:
            raise SpecError(
                f"{where} gives {model.spec} the names {name!r} and {model.name!r}, and trains both by the same "
                "recipe. Leave one out, or give it a recipe or settings of its own."
            )


def _check_claims(suite: Suite, where: str) -> None:
    """Check that the metrics of claims are measured."""
    for claim in suite.claim:
        for metric in (*claim.metric, *claim.than_metric):
            if spec.parse(metric).name not in suite.metric_names:
                raise SpecError(
                    f"The claim {claim.id} of {where} is about {metric}, which is not measured. The metrics are "
                    f"{', '.join(sorted(suite.metric_names))}."
                )


# --- what is written shorter in a file than it is held ----------------------------------------------------------------


def _in_fields(fields: Mapping[str, Any], name: str, stem: str, where: str) -> dict[str, Any]:
    """Return the content of a file in the form of the dataclasses."""
    source = {"title": where, "cite": fields.get("title") or stem, "url": ""}
    command = f"jembench run {shlex.quote(name)}"

    def claim(table: Mapping[str, Any]) -> dict[str, Any]:
        return {"paper": source, **claims.in_fields(stem, {"where": "", "measure": [command], **table})}

    forms: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        **dict.fromkeys(("grid", "variant"), _with_besides),
        **dict.fromkeys(("report", "figures"), _listed),
        "attack": _with_options,
        "claim": claim,
    }
    found = dict(fields)
    for key, form in forms.items():
        if isinstance(tables := found.get(key), list):
            found[key] = [form(table) if isinstance(table, Mapping) else table for table in tables]
    return found


def _with_besides(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key ``except``, which is a word of Python, under the name of the field."""
    return {"besides" if key == "except" else key: value for key, value in table.items()}


def _with_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an attack, which stand beside its name, together: each a value or several."""
    own = {key: table[key] for key in ("name", "on", "except") if key in table}
    return {**_with_besides(own), "options": _listed({key: value for key, value in table.items() if key not in own})}


def _listed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Each value, or several, as a list."""
    return {key: value if isinstance(value, list) else [value] for key, value in table.items()}
