"""``jembench list``: the installed components and files, and whether they work."""

from typing import Any

import click

from jembench.api import listing
from jembench.api.listing import Listed
from jembench.catalog import discovery, packages
from jembench.catalog.discovery import KINDS
from jembench.cli import options
from jembench.cli.output import print_json, print_table
from jembench.cli.parameters import RECIPE
from jembench.errors import SpecError, unknown

LISTS = (*KINDS, "recipes", "references")
_FILES = ("suites", "recipes", "references")
"""The kinds whose entries are files of packages."""


# accepts ood-sets for ood_sets
@click.command(
    "list", context_settings={"token_normalize_func": lambda token: token.replace("-", "_")}
)
@click.argument("kind", metavar="[KIND]", type=click.Choice((*LISTS, "recipe")), required=False)
@click.argument("name", metavar="[NAME]", type=RECIPE, required=False)
@options.listing_format
def list_(kind: str | None, name: str | None, format: str) -> None:
    """List what is installed, and whether it works.

    Every component is imported. KIND adds the description and the options of each component, or of
    the one called NAME; the last line names the kinds. `jembench list recipe NAME` prints the file
    of a recipe. A recipe named after a model, a dataset or both (MODEL-DATASET) is their default;
    every other model is trained by the recipe `paper`.
    """
    if kind is None:
        _everything(format)
    elif kind != "recipe":
        _one_kind(kind, format, name)
    elif name is None:
        raise SpecError(
            "`jembench list recipe NAME` shows one recipe; `jembench list recipes` lists the names."
        )
    else:
        click.echo(packages.source("recipe", name, "recipes").content.decode(), nl=False)


def _everything(format: str) -> None:
    columns = ("kind", "name", "distribution", "version", "target", "status")
    components, unreadable = discovery.catalogue()
    rows: list[tuple[str, ...]] = []
    for c in components:
        status = _or_problem("ok", listing.describe(c))
        rows.append((c.kind, c.name, c.distribution, c.version, c.target, status))
    for distribution, problem in unreadable:
        rows.append(("", "", distribution, "", "", f"broken: {problem}"))
    if format == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
        click.echo(
            "`jembench list KIND` describes each component of a kind and its options: "
            f"{', '.join(LISTS)}."
        )


def _one_kind(kind: Any, format: str, name: str | None) -> None:
    entries = _entries(kind, name)
    if format == "json":
        print_json(
            [{"name": e.name, "title": e.title, **e.fields, "problem": e.problem} for e in entries]
        )
        return
    columns = [discovery.singular(kind), "what it is"]
    if kind == "references":
        columns.append("columns")
    elif kind not in ("suites", "recipes"):
        columns.append("options, with their defaults")
    rows = []
    for entry in entries:
        row = (entry.name, _or_problem(entry.title, entry), "\n".join(entry.lines))
        rows.append(row[: len(columns)])
    print_table(columns, rows)
    if kind == "recipes":
        click.echo("`jembench list recipe NAME` shows one whole, as a TOML file for --recipe.")


def _entries(kind: Any, name: str | None) -> list[Listed]:
    """Return the entries of a kind, or the one of a name.

    Raises:
        SpecError: if none has the name.
    """
    if name is not None and kind not in _FILES:
        return [listing.describe(discovery.find(kind, name))]
    entries = listing.entries(kind)
    named = [entry for entry in entries if name in (None, entry.name)]
    if not named:
        names = [entry.name for entry in entries]
        raise unknown(discovery.singular(kind), str(name), names, f"jembench list {kind}")
    return named


def _or_problem(text: str, entry: Listed) -> str:
    return f"broken: {entry.problem}" if entry.problem else text
