"""``jembench status``: the units of work of a store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from jembench.api import status as api
from jembench.api.status import UnitStatus
from jembench.cli import options
from jembench.cli.output import print_json, print_table
from jembench.progress import duration

QUEUED = 20
"""The largest number of waiting units that are listed one by one."""


@click.command("status", epilog=options.examples("jembench status", "jembench status --store /shared/runs"))
@options.store
@options.listing_format
def status(store: Path, format: str) -> None:
    """Show which work runs where, since when and how far it is.

    Lists each unit of work that is not done, from any machine that sees the store. A unit is lost if its worker has
    died; the next run takes it over. `jembench work ID` carries one out by hand.
    """
    units = api.status(store)
    if format == "json":
        print_json({"units": [unit._asdict() for unit in units]})
        return
    queued = [unit for unit in units if unit.state == "queued"]
    shown = [unit for unit in units if unit.state != "queued"] + queued[:QUEUED]
    if shown:
        rows = [(u.id, _name(u), u.state, u.worker, _ago(u.since), "\n".join(_progress(u))) for u in shown]
        print_table(("unit", "work", "state", "worker", "for", "progress"), rows)
    else:
        click.echo(f"Nothing runs in {store}.")
    if queued[QUEUED:]:
        click.echo(f"and {len(queued) - QUEUED} more that are queued")


def _name(unit: UnitStatus) -> str:
    return f"{unit.kind} {unit.model} on {unit.dataset}, recipe {unit.recipe}, seed {unit.seed}"


def _progress(unit: UnitStatus) -> Iterator[str]:
    """Yield the progress of a unit, or the reason why it has stopped."""
    counted = f"{unit.done:,} of {unit.total:,} {unit.counted}" if unit.total else ""
    yield ", ".join(filter(None, [counted, unit.text]))
    if unit.state in ("refused", "failed", "lost"):
        if unit.log:
            yield f"log: {unit.log}"
        yield f"by hand: {unit.command}"


def _ago(since: float | None) -> str:
    return "" if since is None else duration(time.time() - since)
