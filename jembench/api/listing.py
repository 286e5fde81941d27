"""What is installed, as ``jembench list`` shows it: components, suites, recipes and published tables."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from typing import Any, NamedTuple

from jembench.catalog import discovery, packages
from jembench.catalog.discovery import Component
from jembench.catalog.options import keyword_parameters
from jembench.catalog.spec import Scalar, format_value
from jembench.catalog.validation import parse
from jembench.errors import JembenchError
from jembench.experiment import recipe_files as recipe
from jembench.experiment.recipe import meanings
from jembench.report import references


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


class Suite(NamedTuple):
    """A suite of a package, or the reason why it, or the whole package, cannot be read."""

    name: str
    title: str
    distribution: str
    problem: str  # "" if it works


class Recipe(NamedTuple):
    """A recipe of a package, or the reason why it cannot be used."""

    name: str
    title: str
    default_for: tuple[str, ...]  # datasets
    most_images: int  # training images up to which it is; 0: any number
    models: tuple[str, ...]  # that it is made for
    fields: dict[str, Any]  # by the keys of --set: "optimizer.name"
    problem: str  # "" if it works

    @property
    def purpose(self) -> str:
        """The models and the datasets whose default it is, in words; "" if there are none."""
        purposes = {"of": self.models, "on": self.default_for}
        words = [f"{word} {', '.join(names)}" for word, names in purposes.items() if names]
        most = f" with up to {self.most_images:,} training images" if self.most_images else ""
        return f"the default {' '.join(words)}{most}" if words else ""


class Reference(NamedTuple):
    """A table of published numbers, or the reason why its file cannot be read."""

    name: str  # as --reference takes it: "jem-iclr2020/table1"
    title: str  # the paper's
    note: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]  # the models, as the paper names them
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
    return Described(component, discovery.describe(loaded), options, "")


def _options(factory: Any) -> tuple[Option, ...]:
    return tuple(
        Option(name, inspect.formatannotation(parameter.annotation), required, None if required else parameter.default)
        for name, parameter in keyword_parameters(factory).items()
        for required in [parameter.default is parameter.empty]
    )


def suites() -> list[Suite]:
    """The suites of every package, by the stems of their TOML files."""
    found = []
    for component in discovery.components("suites"):
        if problem := describe(component).problem:
            found.append(Suite(component.name, "", component.distribution, problem))
            continue
        for name, file in packages.files_of(component).items():
            title = problem = ""
            try:
                title = str(parse(file.read_bytes(), file.name).get("title", ""))
            except JembenchError as error:
                problem = str(error)
            found.append(Suite(name, title, component.distribution, problem))
    return found


def recipes() -> list[Recipe]:
    """The recipes of every package."""
    return [_recipe(name) for name in recipe.names()]


def _recipe(name: str) -> Recipe:
    try:
        loaded = recipe.load(name)
    except JembenchError as error:
        return Recipe(name, "", (), 0, (), {}, str(error))
    return Recipe(
        name, loaded.title, loaded.default_for, loaded.most_images, loaded.models, _dotted(loaded.settings), ""
    )


def recipe_file(name: str) -> str:
    """A recipe as the text of a TOML file with all of its fields, each with what it means.

    Raises:
        SpecError: if there is no such recipe, or it cannot be used.
    """
    loaded = recipe.load(name)
    head = [f"# recipe {name}", *filter(None, [f"# {_recipe(name).purpose}".rstrip("# ")])]
    known = meanings()
    lines = [f"title = {json.dumps(loaded.title, ensure_ascii=False)}"]
    tables = {key: value for key, value in loaded.settings.items() if isinstance(value, dict) and value}
    flat = {"": {key: value for key, value in loaded.settings.items() if not isinstance(value, dict)}, **tables}
    for table, fields in flat.items():
        lines += ["", f"[{table}]"] if table else []
        for key, value in fields.items():
            meaning = known.get(f"{table}.{key}" if table else key, "")
            line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
            lines.append(f"{line:<34}  # {meaning}" if meaning else line)
    return "\n".join([*head, *lines, ""])


def _dotted(fields: dict[str, Any], table: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        flat |= _dotted(value, f"{table}{key}.") if isinstance(value, dict) else {f"{table}{key}": value}
    return flat


def published() -> list[Reference]:
    """The tables of published numbers of every package, by the stems of their TOML files."""
    found = []
    for stem, file in sorted(packages.files("reference").items()):
        try:
            tables = references.read(stem, file)
        except JembenchError as error:
            found.append(Reference(stem, "", "", (), (), str(error)))
            continue
        for table in tables:
            columns = tuple(column.label for column in table.columns)
            rows = tuple(dict.fromkeys(row.label for row in table.rows))
            found.append(Reference(table.id, table.title, table.note, columns, rows, ""))
    return found
