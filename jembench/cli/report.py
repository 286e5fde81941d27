"""``jembench report``: the table of a store."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from jembench import spec
from jembench import suite as suites
from jembench.cli import options, show
from jembench.outcome import Cell
from jembench.store import Store

EXAMPLES = options.examples(
    "jembench report", "jembench report hybrid", "jembench report hybrid --format latex > table.tex"
)


@click.command("report", epilog=EXAMPLES)
@click.argument("suite", metavar="[SUITE]", required=False)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show what `run --limit N` has evaluated.")
@options.store
@options.report_format
@click.pass_context
def report(ctx: click.Context, suite: str | None, limit: int | None, store: Path, format: str) -> int:
    """Print the table of a store again.

    Shows all that the store holds, or the metrics of SUITE with the published numbers below.
    """
    chosen = suites.load(suite) if suite else None
    contents = Store(store).contents()
    for problem in contents.problems:
        click.echo(f"Passed over: {problem}", err=True)
    cells = newest(contents.cells)
    if chosen:
        wanted = {spec.parse(metric).name for metric in chosen.metrics}
        cells = [cell for cell in cells if spec.parse(cell.metric).name in wanted]
    shown = [cell for cell in cells if cell.provenance.get("limit") == limit]
    if not shown:
        results = "such results" if contents.cells else "results"
        click.echo(_nothing(store, suite, limit, results), err=format != "table")
    for note in _left_out(cells, limit):
        click.echo(note, err=True)
    if shown or format != "table":
        metrics = chosen.metrics if chosen else tuple(dict.fromkeys(cell.metric for cell in shown))
        show.print_results(shown, metrics, chosen.reference if chosen else (), format)
    return show.exit_code(ctx, shown)


def newest(cells: Sequence[Cell]) -> list[Cell]:
    """Of cells that go by the same names, the one measured last: a newer version may mean another thing by them."""
    latest: dict[tuple[object, ...], Cell] = {}
    for cell in sorted(cells, key=lambda cell: str(cell.provenance.get("time", ""))):
        fit = cell.fit
        latest[fit.model, fit.dataset, fit.recipe, fit.seed, cell.metric, cell.provenance.get("limit")] = cell
    kept = {cell.id for cell in latest.values()}
    return [cell for cell in cells if cell.id in kept]


def _nothing(store: Path, suite: str | None, limit: int | None, results: str) -> str:
    place = "" if store == Path("runs") else f" --store {shlex.quote(str(store))}"
    subset = "" if limit is None else f" --limit {limit}"
    what = f"{store} holds no {results} yet" if store.is_dir() else f"There is no store {store} yet"
    return f"{what}: `jembench run {suite or 'hybrid'}{subset}{place}` makes some."


def _left_out(cells: Iterable[Cell], limit: int | None) -> Iterable[str]:
    counts = Counter(cell.provenance.get("limit") for cell in cells)
    for other, count in counts.items():
        if other != limit:
            how = "without --limit" if other is None else f"with --limit {other}"
            outcomes = "1 outcome" if count == 1 else f"{count} outcomes"
            yield f"Left out: {outcomes} on {show.images(other)}; `jembench report` shows them {how}."
