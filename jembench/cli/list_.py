"""``jembench list``: what is installed, and what each thing is."""

from __future__ import annotations

import json
from typing import Any, cast

import click

from jembench.catalog import discovery
from jembench.catalog.discovery import KINDS, Kind
from jembench.cli import components, options
from jembench.cli.output import print_json, print_table

LISTS = (*KINDS, "recipes", "references")


@click.command("list")
@click.argument("kind", metavar="[KIND]", type=click.Choice(LISTS), required=False)
@options.listing_format
def list_(kind: str | None, format: str) -> None:
    """List what is installed: models, datasets, suites and more.

    With KIND, say what each one is and which options it has. Without it, the last line names the kinds.
    """
    if kind is None:
        _everything(format)
    elif kind == "suites":
        _suites(format)
    elif kind == "recipes":
        _recipes(format)
    elif kind == "references":
        _references(format)
    else:
        _one_kind(cast(Kind, kind), format)


def _everything(format: str) -> None:
    found = discovery.catalogue().components
    if format == "json":
        print_json([{**component._asdict(), "target": component.target} for component in found])
    else:
        rows = [(c.kind, c.name, c.distribution, c.version, c.target) for c in found]
        print_table(("kind", "name", "distribution", "version", "target"), rows)
        click.echo(f"`jembench list KIND` says what each one is and takes: {', '.join(LISTS)}.")


def _one_kind(kind: Kind, format: str) -> None:
    described = [components.describe(component) for component in discovery.components(kind)]
    if format == "json":
        print_json(
            [
                {
                    "name": d.component.name,
                    "distribution": d.component.distribution,
                    "version": d.component.version,
                    "summary": d.summary,
                    "options": [option._asdict() for option in d.options],
                    "problem": d.problem,
                }
                for d in described
            ]
        )
    else:
        rows = [
            (d.component.name, f"broken: {d.problem}" if d.problem else d.summary, "\n".join(map(str, d.options)))
            for d in described
        ]
        print_table((discovery.singular(kind), "what it is", "options, with their defaults"), rows)


def _suites(format: str) -> None:
    found = components.suites()
    if format == "json":
        print_json([suite._asdict() for suite in found])
    else:
        rows = [(s.name, f"broken: {s.problem}" if s.problem else s.title, s.distribution) for s in found]
        print_table(("suite", "what it is", "distribution"), rows)


def _recipes(format: str) -> None:
    found = components.recipes()
    if format == "json":
        print_json([recipe._asdict() for recipe in found])
    else:
        rows = [
            (
                recipe.name,
                f"broken: {recipe.problem}" if recipe.problem else "\n".join([recipe.title, *_default_for(recipe)]),
                "\n".join(f"{key}={_text(value)}" for key, value in recipe.fields.items()),
            )
            for recipe in found
        ]
        print_table(("recipe", "what it is", "fields, for --set"), rows)


def _references(format: str) -> None:
    found = components.published()
    if format == "json":
        print_json([table._asdict() for table in found])
    else:
        rows = [
            (
                table.name,
                f"broken: {table.problem}" if table.problem else "\n".join(filter(None, (table.title, table.note))),
                ", ".join(table.columns),
                str(len(table.rows)),
            )
            for table in found
        ]
        print_table(("table, for --reference", "of which paper", "columns", "models"), rows)


def _default_for(recipe: components.Recipe) -> list[str]:
    purposes = {"of": recipe.models, "on": recipe.default_for}
    words = [f"{word} {', '.join(names)}" for word, names in purposes.items() if names]
    return [f"the default {' '.join(words)}"] if words else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
