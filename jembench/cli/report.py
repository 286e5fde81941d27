"""``jembench report``: the table of a store."""

from __future__ import annotations

from pathlib import Path

import click

from jembench import spec
from jembench import suite as suites
from jembench.cli import options, show
from jembench.store import Store


@click.command("report")
@click.argument("suite", metavar="[SUITE]", required=False)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show what was evaluated on the first N images.")
@options.store
@options.report_format
def report(suite: str | None, limit: int | None, store: Path, format: str) -> int:
    """Print the table of a store again: all of it, or the metrics of SUITE with its published numbers."""
    chosen = suites.load(suite) if suite else None
    contents = Store(store).contents()
    for problem in contents.problems:
        click.echo(f"Passed over: {problem}", err=True)
    cells = [cell for cell in contents.cells if cell.provenance.get("limit") == limit]
    if chosen:
        wanted = {spec.parse(metric).name for metric in chosen.metrics}
        cells = [cell for cell in cells if spec.parse(cell.metric).name in wanted]
    metrics = chosen.metrics if chosen else tuple(dict.fromkeys(cell.metric for cell in cells))
    show.print_results(cells, metrics, chosen.reference if chosen else (), format)
    return int(any(cell.outcome.status == "failed" for cell in cells))
