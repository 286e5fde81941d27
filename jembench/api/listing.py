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


class Entry(NamedTuple):
    """The entry of an installed component, or of a file of a package, in a list."""

    name: str
    title: str = ""
    lines: tuple[str, ...] = ()  #: the options of a component, the columns of a published table
    fields: Mapping[str, Any] = MappingProxyType({})  #: additional fields, in JSON types
    problem: str = ""  #: the reason why it cannot be used


def entries(kind: Kind | Literal["recipes", "references"]) -> list[Entry]:
    """Return the installed components or files of a kind.

    Components are imported, with their output on stderr.
    """
    if kind == "suites":
        described = map(describe, discovery.components("suites"))
        broken = [package for package in described if package.problem]
        return broken + _read(suites.names(), lambda name: [Entry(name, suites.load(name).title)])
    if kind == "recipes":
        return _read(recipes.names(), _recipe)
    if kind == "references":
        return _read(sorted(packages.files("reference")), _tables)
    return [describe(component) for component in discovery.components(kind)]


def describe(component: Component) -> Entry:
    """Import a component and read its options."""
    where = {
        "distribution": component.distribution,
        "version": component.version,
        "target": component.target,
    }
    try:
        with contextlib.redirect_stdout(sys.stderr):
            loaded = discovery.load(component)
            options = [] if component.kind == "suites" else _options(loaded)
    except JembenchError as error:
        cause = error.__cause__
        problem = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
        return Entry(
            component.name, fields=where | {"options": []}, problem=" ".join(problem.splitlines())
        )
    lines = [
        f"{of['name']}=<{of['type']}>"
        if of["required"]
        else f"{of['name']}={format_value(of['default'])}"
        for of in options
    ]
    title = (loaded.__doc__ or "").strip().partition("\n")[0]
    # the verb of a function
    title = re.sub(r"^(?:Plan|Return) (.)", lambda match: match[1].upper(), title)
    # reST
    title = re.sub(
        r":\w+:`~?([^`]+)`|``([^`]+)``", lambda match: f"`{match[1] or match[2]}`", title
    )
    return Entry(component.name, title, tuple(lines), where | {"options": options})


def _options(factory: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": inspect.formatannotation(of.annotation),
            "required": of.default is REQUIRED,
            "default": None if of.default is REQUIRED else of.default,
        }
        for name, of in options_of(factory).items()
    ]


def _read(names: Iterable[str], read: Callable[[str], list[Entry]]) -> list[Entry]:
    """Return the entries of files by their names; of one that cannot be read, its problem."""
    found: list[Entry] = []
    for name in names:
        try:
            found += read(name)
        except JembenchError as error:
            found.append(Entry(name, problem=str(error)))
    return found


def _recipe(name: str) -> list[Entry]:
    recipe = recipes.load(name)
    return [Entry(name, recipe.title, fields={"settings": recipe.settings})]


def _tables(stem: str) -> list[Entry]:
    """Return the published tables of a paper."""
    found = []
    published = read_file(stem, packages.files("reference")[stem])
    for numbers in grouped(published, lambda number: number.table):
        title = "\n".join(filter(None, (numbers[0].title, numbers[0].note)))
        columns = list(
            dict.fromkeys(
                number.row.label for number in sorted(numbers, key=lambda number: number.column)
            )
        )
        models = list(dict.fromkeys(number.row.name for number in numbers))
        found.append(
            Entry(
                numbers[0].table,
                title,
                (", ".join(columns),),
                {"columns": columns, "models": models},
            )
        )
    return found
