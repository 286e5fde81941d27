"""``jembench report`` and ``jembench compare``: the results of a store, and two models of it side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from jembench.api import stored
from jembench.api.results import Results
from jembench.catalog import spec
from jembench.cli import options, show
from jembench.cli.output import emit
from jembench.errors import SpecError
from jembench.experiment import suite as suites
from jembench.report import references, select
from jembench.report.formats import TERMINAL
from jembench.store.latest import asked, newest
from jembench.store.outcome import Cell
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench report",
    "jembench report hybrid",
    "jembench report hybrid --format latex --output table.tex",
    "jembench report --claims",
)


@click.command("report", epilog=EXAMPLES)
@click.argument("suite", metavar="[SUITE]", required=False)
@click.option("--limit", type=options.COUNT, metavar="N", help="Show the results of `run --limit N`.")
@click.option("--claims", is_flag=True, help="Test which claims of the papers hold for the results in the store.")
@options.store
@options.reference
@options.report_format
@options.output
@options.force
@click.pass_context
def report(
    ctx: click.Context,
    suite: str | None,
    limit: int | None,
    claims: bool,
    store: Path,
    reference: str | None,
    format: str,
    output: Path | None,
    force: bool,
) -> int:
    """Print the results of a store, or write them to a file.

    Shows all results, or those of the metrics of SUITE with the published numbers.
    """
    if claims:
        emit(_claims(Store(store), suite, limit, reference, format), output, force=force)
        return 0
    chosen = suites.load(suite) if suite else None
    named = options.published_tables(reference)
    published = references.load(chosen.references if chosen and named is None else named or ())
    place = Store(store)
    found = select.read(place)
    cells = newest(found, asked(place))
    out_of_date = len(found) - len(cells)
    cells = select.of_suite(cells, chosen)
    shown = [cell for cell in cells if cell.provenance.get("limit") == limit]
    if not shown:
        results = "such results" if found else "results"
        click.echo(select.nothing(store, suite, limit, results), err=format != TERMINAL)
    if out_of_date:
        click.echo(f"Left out: {_outcomes(out_of_date)} that newer ones of the same names stand for.", err=True)
    for note in _left_out(cells, limit):
        click.echo(note, err=True)
    if shown or format != TERMINAL:
        emit(Results.of_suite(shown, chosen, published).table(format), output, force=force)
    return show.exit_code(ctx, shown)


def _claims(store: Store, suite: str | None, limit: int | None, reference: str | None, format: str) -> str:
    if suite is not None or reference is not None:
        raise SpecError("--claims judges all that the store holds. Leave out the suite and --reference.")
    from jembench.report import claims, formats, judging, verdicts

    cells = [cell for cell in newest(select.read(store), asked(store)) if cell.provenance.get("limit") == limit]
    found = judging.judge(claims.load(), cells, store.read_arrays, store=store.root)
    return formats.render(verdicts.of_claims(found), format)


def _left_out(cells: Iterable[Cell], limit: int | None) -> Iterable[str]:
    counts = Counter(cell.provenance.get("limit") for cell in cells)
    for other, count in counts.items():
        if other != limit:
            how = "without --limit" if other is None else f"with --limit {other}"
            images = "all test images" if other is None else f"{other} of the test images"
            yield f"Left out: {_outcomes(count)} on {images}; `jembench report` shows them {how}."


def _outcomes(count: int) -> str:
    return "1 outcome" if count == 1 else f"{count} outcomes"


# --- compare ----------------------------------------------------------------------------------------------------------

COMPARE_EXAMPLES = options.examples(
    "jembench compare jem baseline",
    "jembench compare jem baseline:norm=batch --metrics accuracy,ece",
    "jembench compare jem jem --recipe digits+chains.conditional=true --recipe-b digits",
)


@click.command("compare", epilog=COMPARE_EXAMPLES)
@click.argument("a")
@click.argument("b")
@click.option("--dataset", metavar="SPEC", help="Dataset. By default the one on which both were evaluated.")
@click.option("--recipe", metavar="LABEL", help="Recipe of both models, as `jembench report` names it.")
@click.option("--recipe-b", metavar="LABEL", help="Recipe of B, if it differs from that of A.")
@click.option(
    "--metrics", metavar="LIST", help="Metrics to compare: accuracy,ood:set=interp. A bare name covers all its options."
)
@click.option("--seeds", metavar="LIST", help="Seeds to compare: 0,1,2. By default all that both models have.")
@click.option("--limit", type=options.COUNT, metavar="N", help="Compare the results of `run --limit N`.")
@click.option(
    "--resamples",
    type=options.COUNT,
    metavar="R",
    default=10_000,
    help="Resamples of the bootstrap. No p value is below 1 / (R + 1).",
)
@options.store
@options.report_format
def compare(a: str, b: str, metrics: str | None, seeds: str | None, format: str, **which: Any) -> None:
    """Compare two models of a store, image by image and seed by seed.

    Nothing is trained or evaluated. A and B are models as `jembench report` shows them; a bare name is enough if it is
    unambiguous. If there are several recipes, the most recently requested one is used. Every value that both models
    have under one protocol gets a confidence interval of the difference and a verdict.
    """
    found = stored.compare(
        a,
        b,
        metrics=None if metrics is None else spec.split_list(metrics),
        seeds=None if seeds is None else options.seed_list(seeds),
        **which,
    )
    click.echo(found.table(format), nl=False)
