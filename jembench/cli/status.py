"""``jembench status``: the units of work of a store."""

import itertools
import operator
import os
import shlex
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import click

from jembench.api import status as api
from jembench.api.status import UnitStatus
from jembench.cli import options
from jembench.cli.output import narrow_width, print_json, print_table
from jembench.errors import printable
from jembench.progress import duration

LONGEST = 40
"""The largest number of characters of a spec; longer ones are shortened in the middle."""

QUEUED = 20
"""The largest number of waiting units that are listed one by one."""


@click.command("status", epilog=options.examples("jembench status", "jembench status --store /shared/runs"))
@options.store
@options.listing_format
def status(store: Path, format: str) -> None:
    """Show the units of work of a store, with host, start and progress.

    Lists each unit of work that is not done under the command that it belongs to, from any machine that sees the store.
    A unit is lost if its worker has died; the same command takes it over. `jembench work UNIT` carries one out by hand.
    Units that ended more than a day ago are only counted.
    """
    units = api.status(store)
    if format == "json":
        print_json({"units": [unit._asdict() for unit in units]})
        return
    queued = [unit for unit in units if unit.state == "queued"]
    old = [unit for unit in units if unit.is_old]
    shown = [unit for unit in units if unit not in queued + old] + queued[:QUEUED]
    width = narrow_width()
    shown.sort(key=operator.attrgetter("command"))
    for command, group in itertools.groupby(shown, operator.attrgetter("command")):
        click.echo(_wrapped(command, width))
        rows = [(u.id, u.state, _ago(u.since), "\n".join(_progress(u, store))) for u in group]
        print_table(("unit", "state", "for", "work"), rows, width)
    if not shown:
        click.echo(f"Nothing runs in {store}.")
    if queued[QUEUED:]:
        click.echo(f"and {len(queued) - QUEUED} more that are queued")
    if old:
        click.echo(f"and {len(old)} that ended more than a day ago; `jembench store gc` lists and removes them")


def _progress(unit: UnitStatus, store: Path) -> Iterator[str]:
    """Yield what a unit is, its progress or the reason why it has stopped, and its worker or log."""
    model, recipe = map(_shortened, (unit.name, unit.recipe))
    yield f"{unit.kind} {model} on {unit.dataset}, recipe {recipe}, seed {unit.seed}"
    counted = f"{unit.done:,} of {unit.total:,} {unit.counted}" if unit.total and unit.state == "running" else ""
    yield from filter(None, [", ".join(filter(None, [counted, unit.text])), unit.worker and f"worker {unit.worker}"])
    if unit.log:
        yield f"log {os.path.relpath(unit.log) if Path(unit.log).is_relative_to(store.absolute()) else unit.log}"


def _shortened(spec: str) -> str:
    half = LONGEST // 2 - 1
    return spec if len(spec) <= LONGEST else f"{spec[:half]}...{spec[-half:]}"


def _wrapped(command: str, width: int) -> str:
    """Return a command in lines that a shell reads as one."""
    words = " ".join(word.replace(" ", "\0") for word in map(shlex.quote, shlex.split(command)))
    lines = textwrap.wrap(words, width - 6, break_long_words=False, break_on_hyphens=False)
    return printable(" \\\n    ".join(lines).replace("\0", " "))


def _ago(since: float | None) -> str:
    return "" if since is None else duration(time.time() - since)
