"""``jembench report``, ``view`` and ``compare``: the results of a store.

``view`` shows them in a browser, ``compare`` compares two models.
"""

import webbrowser
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import click

from jembench import stopping
from jembench.api import comparison
from jembench.api.arguments import selection
from jembench.api.results import Results
from jembench.cli import options, show
from jembench.cli.output import check_ending, check_file, emit, plugins_aside, say
from jembench.cli.parameters import COUNT, DATASET, METRICS, MODEL, SEEDS
from jembench.errors import SpecError
from jembench.report.formats import TERMINAL
from jembench.report.select import Selection
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench report",
    "jembench report hybrid",
    "jembench report hybrid --models jem,baseline --columns accuracy,ece --format latex --output "
    "table.tex",
    "jembench report --format html --output report.html",
    "jembench report --claims",
)


@click.command("report", epilog=EXAMPLES)
@options.selected
@click.option(
    "--claims",
    is_flag=True,
    help="Test which claims of FILE, or else of the papers, hold for the results.",
)
@click.option(
    "--strict", is_flag=True, help="With --claims of FILE: a claim that is undecided fails too."
)
@options.store
@options.reference
@options.report_format
@options.label
@click.option(
    "--per-seed", is_flag=True, help="A row for each seed, for the formats csv, json and parquet."
)
@options.output
@options.force
@click.pass_context
def report(
    ctx: click.Context,
    /,
    claims: bool,
    strict: bool,
    store: Path,
    reference: list[str] | None,
    format: str,
    label: str | None,
    per_seed: bool,
    output: Path | None,
    force: bool,
    **selected: Any,
) -> int:
    """Print the results of a store, or write them to a file.

    Shows all results, or those of the metrics of SUITE with the published numbers. With the FILE of
    an experiment, shows the models, data, recipes and seeds that the file names.
    """
    format = options.labelled(format, label, output)
    if output:  # refused now, not after the work
        check_ending(output, format)
        check_file(output, output.suffix, force=force)
    with plugins_aside():
        which = selection(**selected)
    if claims:
        whole = selection(limit=which.limit, split=which.split)
        is_narrowed = not which.suite and which != whole
        if reference is not None or is_narrowed:
            raise SpecError(
                "--claims judges the claims of papers, or of a FILE, by all results of the store. "
                "It takes no --reference and, without a FILE, no selection except --limit and "
                "--split."
            )
        return _claims(Store(store), which, strict, format, output, force=force)
    if strict:
        raise click.UsageError("--strict is for --claims. Add it, or leave --strict out.")
    results = Results.of_store(Store(store), which, reference)
    if not results.cells:
        say(results.nothing, err=format != TERMINAL)
    for note in results.left_out:
        say(f"Left out: {note}", err=True)
    if results.cells or format != TERMINAL:
        shown = results.per_seed() if per_seed else results
        emit(shown.table(format), output, force=force)
    code = show.exit_code(ctx, results.cells)
    if code:
        say(
            "Some results failed; `jembench --debug report` shows their tracebacks. The exit code "
            "is 1.",
            err=True,
        )
    return code


def _claims(
    store: Store, which: Selection, strict: bool, format: str, output: Path | None, *, force: bool
) -> int:
    """Print the verdicts on the claims of a suite or of papers.

    Returns:
        the exit code, which is 0 for papers.
    """
    from jembench.api.check import Check
    from jembench.experiment import claims
    from jembench.experiment.stored import with_imports
    from jembench.report import claims as verdicts
    from jembench.report import formats, gate

    if which.suite and not which.suite.claims:
        raise SpecError(
            f"{which.suite.name} makes no claims. Write some as [[claim]] into its file, or judge "
            "those of papers by `jembench report --claims`."
        )
    cells = which.of(store).cells
    if not which.suite:
        if strict:
            raise click.UsageError("--strict is for the claims of a FILE. Name one")
        judged = verdicts.judge(claims.load(), cells, store.read_arrays, store=store.root)
        emit(formats.render(verdicts.document(judged), format), output, force=force)
        return 0
    asked = with_imports(which.suite, store).claims
    judged = verdicts.judge(asked, cells, store.read_arrays, store=store.root)
    checked = Check(gate.document((), judged, strict=strict))
    return show.check(checked, format, output, force=force)


# --- view -----------------------------------------------------------------------------------------

VIEW_EXAMPLES = options.examples(
    "jembench view", "jembench view hybrid --no-browser --port 8000 --refresh 30"
)


@click.command("view", epilog=VIEW_EXAMPLES)
@options.selected
@options.store
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=0,
    help="Port to use; 0 is a free one.",
)
@click.option(
    "--refresh",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Load the page again every SECONDS seconds.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
def view(store: Path, port: int, refresh: int | None, no_browser: bool, **selected: Any) -> int:
    """Show a store in a browser.

    Serves the page of `jembench report --format html` to this machine alone. A reload shows the
    results that a run has added since; `jembench status` shows what it is doing. Ctrl-C ends the
    command.
    """
    from jembench.report.page.render import render
    from jembench.report.page.server import PageServer

    place = Store(store)
    with plugins_aside():
        which = selection(**selected)

    def state() -> Hashable:
        cells = place.root / "cells"  # each write changes the folder
        return cells.stat().st_mtime_ns if cells.exists() else None

    def page() -> str:
        return render(Results.of_store(place, which).document.page(), refresh)

    try:
        server = PageServer(port, state, page)
    except OSError as error:
        raise SpecError(
            f"Port {port} cannot be used: {error.strerror}. Name another with --port, or leave it "
            "out."
        ) from error
    with server:
        server.page()  # raises errors of the store before serving
        say(f"{store} is shown at {server.url} until Ctrl-C.")
        if not no_browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except (KeyboardInterrupt, stopping.Stopped):  # the usual end, with no work to resume
            click.echo()
    return 0


# --- compare --------------------------------------------------------------------------------------

COMPARE_EXAMPLES = options.examples(
    "jembench compare jem baseline",
    "jembench compare jem baseline:norm=batch --metrics accuracy,ece",
    "jembench compare jem jem --recipe digits+chains.conditional=true --recipe-b digits",
)


@click.command("compare", epilog=COMPARE_EXAMPLES)
@click.argument("a", metavar="A", type=MODEL)
@click.argument("b", metavar="B", type=MODEL)
@click.option(
    "--dataset", type=DATASET, help="Dataset. By default the one on which both were evaluated."
)
@click.option(
    "--recipe", metavar="LABEL", help="Recipe of both models, as `jembench report` names it."
)
@click.option("--recipe-b", metavar="LABEL", help="Recipe of B, if it differs from that of A.")
@click.option(
    "--metrics",
    type=METRICS,
    metavar="LIST",
    help="Metrics to compare: accuracy,ood:set=interp. A bare name covers all its options.",
)
@options.columns
@click.option(
    "--seeds", type=SEEDS, help="Seeds to compare: 0,1,2. By default all that both models have."
)
@options.names
@click.option("--limit", type=COUNT, help="Compare the results of `run --limit N`.")
@options.shown_split
@click.option(
    "--resamples",
    type=COUNT,
    metavar="R",
    default=10_000,
    help="Resamples of the bootstrap. No p value is below 1 / (R + 1).",
)
@click.option(
    "--fail-if-worse",
    is_flag=True,
    help="End with exit code 1 if A is worse than B, and 2 if a value could not be judged.",
)
@options.tolerance
@options.strict
@options.store
@options.report_format
@options.label
def compare(
    a: str,
    b: str,
    fail_if_worse: bool,
    tolerance: Mapping[str, float] | None,
    strict: bool,
    format: str,
    label: str | None,
    **which: Any,
) -> int:
    """Compare two models of a store, image by image and seed by seed.

    Nothing is trained or evaluated. A and B are models as `jembench report` shows them; a bare name
    is enough if it is unambiguous. Every value that both models have under one protocol gets a
    confidence interval of the difference and a verdict.
    """
    format = options.labelled(format, label)
    if (tolerance or strict) and not fail_if_worse:
        raise click.UsageError("--tolerance and --strict are for --fail-if-worse. Add it")
    compared = comparison.compare(a, b, **which)
    if not fail_if_worse:
        click.echo(compared.table(format), nl=False)
        return 0
    checked = compared.check(tolerance=tolerance or {}, strict=strict)
    return show.check(checked, format)
