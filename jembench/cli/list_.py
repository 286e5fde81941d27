"""``jembench list``: the installed components and files, and whether they work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from jembench.api import listing
from jembench.catalog import discovery
from jembench.catalog.discovery import KINDS
from jembench.cli import options
from jembench.cli.output import print_json, print_table
from jembench.cli.parameters import RECIPE
from jembench.errors import SpecError


class Files(NamedTuple):
    """A kind of TOML files: how they are found, and what the table shows of each."""

    find: Callable[[], Sequence[Any]]
    columns: tuple[str, ...]
    cells: Callable[[Any], tuple[str, ...]]  # the texts of the columns behind the name


def _recipe(recipe: listing.Recipe) -> tuple[str]:
    return ("\n".join(filter(None, (recipe.title, recipe.purpose))),)


def _published(table: listing.Reference) -> tuple[str, str, str]:
    return "\n".join(filter(None, (table.title, table.note))), ", ".join(table.columns), str(len(table.rows))


FILES = {
    "suites": Files(listing.suites, ("suite", "what it is", "distribution"), lambda each: each[1:3]),
    "recipes": Files(listing.recipes, ("recipe", "what it is"), _recipe),
    "references": Files(
        listing.published, ("table, for --reference", "of which paper", "columns", "models"), _published
    ),
}
LISTS = (*KINDS, "recipes", "references")


@click.command("list")
@click.argument("kind", metavar="[KIND]", type=click.Choice((*LISTS, "recipe")), required=False)
@click.argument("name", metavar="[NAME]", type=RECIPE, required=False)
@options.listing_format
def list_(kind: str | None, name: str | None, format: str) -> None:
    """List what is installed, and whether it works.

    Every component is imported. With KIND, say what each one is and which options it has; the last line names the
    kinds. `jembench list recipe NAME` prints a whole recipe as a TOML file, with what its fields mean.
    """
    if (kind == "recipe") != (name is not None):
        raise SpecError("`jembench list recipe NAME` shows one recipe; `jembench list recipes` lists the names.")
    if name is not None:
        click.echo(listing.recipe_file(name), nl=False)
    elif kind is None:
        _everything(format)
    elif kind in FILES:
        _files(FILES[kind], format)
    else:
        _components(kind, format)


def _everything(format: str) -> None:
    columns = ("kind", "name", "distribution", "version", "target", "status")
    found = discovery.catalogue()
    rows: list[tuple[str, ...]] = [
        (
            component.kind,
            component.name,
            component.distribution,
            component.version,
            component.target,
            _status(component),
        )
        for component in found.components
    ]
    rows += [("", "", other.distribution, "", "", f"broken: {other.problem}") for other in found.unreadable]
    if format == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
        click.echo(f"`jembench list KIND` says what each one is and takes: {', '.join(LISTS)}.")


def _status(component: discovery.Component) -> str:
    return _or_problem("ok", listing.describe(component).problem)


def _files(files: Files, format: str) -> None:
    found = files.find()
    if format == "json":
        print_json([each._asdict() for each in found])
        return
    rows = []
    for each in found:
        text, *others = files.cells(each)
        rows.append((each.name, _or_problem(text, each.problem), *others))
    print_table(files.columns, rows)
    if files is FILES["recipes"]:
        click.echo("`jembench list recipe NAME` shows one whole, as a TOML file for --recipe.")


def _components(kind: Any, format: str) -> None:
    described = [listing.describe(component) for component in discovery.components(kind)]
    if format == "json":
        print_json(
            [
                {
                    **{key: getattr(each.component, key) for key in ("name", "distribution", "version")},
                    "summary": each.summary,
                    "options": [option._asdict() for option in each.options],
                    "problem": each.problem,
                }
                for each in described
            ]
        )
        return
    rows = [(d.component.name, _or_problem(d.summary, d.problem), "\n".join(map(str, d.options))) for d in described]
    print_table((discovery.singular(kind), "what it is", "options, with their defaults"), rows)


def _or_problem(text: str, problem: str) -> str:
    return f"broken: {problem}" if problem else text
