"""Installed components, suites, recipes and published tables, as ``jembench list`` shows them."""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from jembench.catalog import discovery, packages
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.options import REQUIRED, options_of
from jembench.catalog.spec import format_value
from jembench.errors import JembenchError
from jembench.experiment import recipe as recipes
from jembench.experiment import suite as suites
from jembench.report.published import read_file
from jembench.report.rows import grouped


class Listed(NamedTuple):
    """A component, or a file of a package, in a list."""

    name: str
    title: str = ""
    lines: tuple[str, ...] = ()  #: the options of a component, the columns of a published table
    fields: Mapping[str, Any] = MappingProxyType({})  #: additional fields, in JSON types
    problem: str = ""  #: why the entry cannot be used


def entries(kind: Kind | Literal["recipes", "references"]) -> list[Listed]:
    """Return the installed components or files of a kind.

    Components are imported, with their output on stderr.
    """
    if kind == "suites":
        packages_of_suites = map(describe, discovery.components("suites"))
        broken = [package for package in packages_of_suites if package.problem]
        return broken + _read(suites.names(), _suite)
    if kind == "recipes":
        return _read(recipes.names(), _recipe)
    if kind == "references":
        return _read(sorted(packages.files("reference")), _tables)
    return list(map(describe, discovery.components(kind)))


def describe(component: Component) -> Listed:
    """Import a component and read its options."""
    where = {
        "distribution": component.distribution,
        "version": component.version,
        "target": component.target,
    }
    lines, options = list[str](), list[dict[str, Any]]()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loaded = discovery.load(component)
            takes = {} if component.kind == "suites" else options_of(loaded)
    except JembenchError as error:
        problem = str(error)
        if error.__cause__ is not None:
            problem = f"{type(error.__cause__).__name__}: {error.__cause__}"
        problem = " ".join(problem.splitlines())
        return Listed(component.name, fields=where | {"options": options}, problem=problem)
    for name, option in takes.items():
        kind, default = inspect.formatannotation(option.annotation), option.default
        required = default is REQUIRED
        if required:
            default = None
            lines.append(f"{name}=<{kind}>")
        else:
            lines.append(f"{name}={format_value(default)}")
        options.append({"name": name, "type": kind, "required": required, "default": default})
    return Listed(component.name, _title(loaded), tuple(lines), where | {"options": options})


def _title(component: Any) -> str:
    """Return a docstring's first line, without its verb and reST."""
    title = (component.__doc__ or "").strip().partition("\n")[0]
    title = re.sub(r"^(?:Plan|Return) (.)", lambda match: match[1].upper(), title)
    return re.sub(r":\w+:`~?([^`]+)`|``([^`]+)``", lambda match: f"`{match[1] or match[2]}`", title)


def _read(names: Iterable[str], read: Callable[[str], list[Listed]]) -> list[Listed]:
    """Return the entries of files, or their problems."""
    entries: list[Listed] = []
    for name in names:
        try:
            entries += read(name)
        except JembenchError as error:
            entries.append(Listed(name, problem=str(error)))
    return entries


def _suite(name: str) -> list[Listed]:
    return [Listed(name, suites.load(name).title)]


def _recipe(name: str) -> list[Listed]:
    recipe = recipes.load(name)
    return [Listed(name, recipe.title, fields={"settings": recipe.settings})]


def _tables(stem: str) -> list[Listed]:
    """Return the published tables of a paper."""
    tables = []
    published = read_file(stem, packages.files("reference")[stem])
    for numbers in grouped(published, lambda number: number.table):
        first = numbers[0]
        title = "\n".join(filter(None, (first.title, first.note)))
        by_column = sorted(numbers, key=lambda number: number.column)
        columns = list(dict.fromkeys(number.row.label for number in by_column))
        models = list(dict.fromkeys(number.row.name for number in numbers))
        fields = {"columns": columns, "models": models}
        tables.append(Listed(first.table, title, (", ".join(columns),), fields))
    return tables
