"""``jembench plugin``: which plugins are installed, and which of them work."""

from __future__ import annotations

import click

from jembench.catalog import discovery
from jembench.cli import options
from jembench.cli.components import Described, describe
from jembench.cli.groups import LazyCommand, LazyGroup
from jembench.cli.output import print_json, print_table

COMMANDS = {
    "list": LazyCommand("jembench.cli.plugin:plugin_list", "Import every component and report which ones work."),
    "check": LazyCommand("jembench.cli.plugin_check:check", "Run the conformance checks of components."),
    "new": LazyCommand(
        "jembench.cli.plugin_new:new", "Write a new plugin distribution: model, sampler, metric, dataset or suite."
    ),
}


@click.group(cls=LazyGroup, late=COMMANDS)
def plugin() -> None:
    """List, check and create plugins."""


@click.command("list")
@options.listing_format
def plugin_list(format: str) -> None:
    """Import every component and report which ones work."""
    found = discovery.catalogue()
    described = [describe(component) for component in found.components]
    if format == "json":
        unreadable = [{"distribution": u.distribution, "reason": u.problem} for u in found.unreadable]
        print_json({"components": [_as_json(d) for d in described], "unreadable": unreadable})
        return
    rows = [_as_row(d) for d in described]
    rows += [(u.distribution, "", "", "", "broken", u.problem) for u in found.unreadable]
    print_table(("distribution", "version", "kind", "entry point", "status", "reason"), rows)


def _as_row(described: Described) -> tuple[str, ...]:
    component = described.component
    entry_point = f"{component.name} = {component.target}"
    status = _status(described)
    return component.distribution, component.version, component.kind, entry_point, status, described.problem


def _status(described: Described) -> str:
    if not described.component.is_compatible:
        return "incompatible"
    return "broken" if described.problem else "ok"


def _as_json(described: Described) -> dict[str, str]:
    component = described.component
    return {
        "distribution": component.distribution,
        "version": component.version,
        "kind": component.kind,
        "name": component.name,
        "target": component.target,
        "status": _status(described),
        "reason": described.problem,
    }
