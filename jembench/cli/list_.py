"""``jembench list``: the installed components and files, and whether they work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from jembench.api import listing
from jembench.api.listing import Listed
from jembench.catalog import discovery, packages
from jembench.catalog.discovery import KINDS
from jembench.cli import options
from jembench.cli.output import print_json, print_table
from jembench.cli.parameters import RECIPE
from jembench.errors import SpecError
from jembench.report.references import Published


class Files(NamedTuple):
    """A kind of TOML files: how they are found, and what is shown of each."""

    find: Callable[[], Sequence[Listed]]
    fields: Callable[[Any], dict[str, Any]]  # of JSON
    columns: dict[str, str]  # of the table: their headings by the fields


def _published(table: Sequence[Published]) -> dict[str, Any]:
    return {
        "title": "\n".join(filter(None, (table[0].title, table[0].table_note))),
        "columns": list(dict.fromkeys(number.label for number in sorted(table, key=lambda number: number.column))),
        "models": list(dict.fromkeys(number.printed_as for number in table)),
    }


FILES = {
    "suites": Files(listing.suites, lambda suite: {"title": suite.title}, {"title": "what it is"}),
    "recipes": Files(
        listing.recipes, lambda recipe: {"title": recipe.title, "settings": recipe.settings}, {"title": "what it is"}
    ),
    "references": Files(listing.published, _published, {"title": "of which paper", "columns": "columns"}),
}
LISTS = (*KINDS, "recipes", "references")


@click.command("list")
@click.argument("kind", metavar="[KIND]", type=click.Choice((*LISTS, "recipe")), required=False)
@click.argument("name", metavar="[NAME]", type=RECIPE, required=False)
@options.listing_format
def list_(kind: str | None, name: str | None, format: str) -> None:
    """List what is installed, and whether it works.

    Every component is imported. With KIND, say what each one is and which options it has; the last line names the
    kinds. `jembench list recipe NAME` prints the file of a recipe. A recipe named after a model, a dataset or both
    (MODEL-DATASET) is their default; every other model is trained by the recipe `paper`.
    """
    if (kind == "recipe") != (name is not None):
        raise SpecError("`jembench list recipe NAME` shows one recipe; `jembench list recipes` lists the names.")
    if name is not None:
        click.echo(packages.source("recipe", name, "recipes").content.decode(), nl=False)
    elif kind is None:
        _everything(format)
    elif kind in FILES:
        _files(kind, format)
    else:
        _components(kind, format)


def _everything(format: str) -> None:
    columns = ("kind", "name", "distribution", "version", "target", "status")
    found = discovery.catalogue()
    rows: list[tuple[str, ...]] = [
        (c.kind, c.name, c.distribution, c.version, c.target, _or_problem("ok", listing.describe(c).problem))
        for c in found.components
    ]
    rows += [("", "", other.distribution, "", "", f"broken: {other.problem}") for other in found.unreadable]
    if format == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
        click.echo(f"`jembench list KIND` says what each one is and takes: {', '.join(LISTS)}.")


def _files(kind: str, format: str) -> None:
    files = FILES[kind]
    found = [(each, files.fields(each.found) if each.found else {}) for each in files.find()]
    if format == "json":
        print_json([{"name": each.name, **fields, "problem": each.problem} for each, fields in found])
        return
    rows = []
    for each, fields in found:
        text, *others = (fields.get(column, "") for column in files.columns)
        rows.append((each.name, _or_problem(text, each.problem), *map(", ".join, others)))
    print_table((discovery.singular(kind), *files.columns.values()), rows)
    if kind == "recipes":
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
