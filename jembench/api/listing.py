"""Installed components, suites, recipes and published tables, as ``jembench list`` shows them."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from jembench.catalog import discovery, packages
from jembench.catalog.discovery import Component
from jembench.catalog.options import REQUIRED, options_of
from jembench.catalog.spec import Scalar, format_value
from jembench.errors import JembenchError
from jembench.experiment import recipe_files, suite_files
from jembench.report import references
from jembench.report.record import grouped


class Option(NamedTuple):
    """An option of a component."""

    name: str
    type: str
    required: bool
    default: Scalar

    def __str__(self) -> str:
        return f"{self.name}=<{self.type}>" if self.required else f"{self.name}={format_value(self.default)}"


class Described(NamedTuple):
    """A component that was imported, or the reason why it could not be."""

    component: Component
    summary: str
    options: tuple[Option, ...]
    problem: str  # "" if it works


class Listed(NamedTuple):
    """The content of a package's file, or the reason why it cannot be used."""

    name: str
    found: Any  # None: it cannot be used
    problem: str  # "" if it works


def describe(component: Component) -> Described:
    """Import a component and read its options. What it prints meanwhile goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loaded = discovery.load(component)
            options = () if component.kind == "suites" else _options(loaded)
    except JembenchError as error:
        cause = error.__cause__
        problem = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
        return Described(component, "", (), " ".join(problem.splitlines()))
    return Described(component, (loaded.__doc__ or "").strip().partition("\n")[0], options, "")


def _options(factory: Any) -> tuple[Option, ...]:
    return tuple(
        Option(name, inspect.formatannotation(of.annotation), is_required, None if is_required else of.default)
        for name, of in options_of(factory).items()
        for is_required in [of.default is REQUIRED]
    )


def suites() -> list[Listed]:
    """Return the suites of every package (:class:`jembench.experiment.suite.Suite`), by the stems of their files."""
    found = []
    for component in discovery.components("suites"):
        if problem := describe(component).problem:
            found.append(Listed(component.name, None, problem))
        else:
            found += [_listed(name, suite_files.load) for name in packages.files_of(component)]
    return found


def recipes() -> list[Listed]:
    """Return the recipes of every package (:class:`jembench.experiment.recipe.Recipe`)."""
    return [_listed(name, recipe_files.load) for name in recipe_files.names()]


def published() -> list[Listed]:
    """Return the published tables of every package, each a list of :class:`jembench.report.references.Published`."""
    found = []
    for stem, file in sorted(packages.files("reference").items()):
        numbers = _listed(stem, partial(references.read, file=file))
        tables = grouped(numbers.found or (), lambda number: number.table)
        found += [numbers] if numbers.problem else [Listed(table[0].table, table, "") for table in tables]
    return found


def _listed(name: str, load: Callable[[str], Any]) -> Listed:
    try:
        return Listed(name, load(name), "")
    except JembenchError as error:
        return Listed(name, None, str(error))
