"""``jembench run`` and ``reproduce``: train and evaluate the models of a suite.

``reproduce`` measures the results of a store again.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jembench.api import runs
from jembench.catalog.spec import Spec
from jembench.cli import options, show
from jembench.cli.options import RunCommand
from jembench.cli.output import emit, plugins_aside, print_json, print_table, say
from jembench.cli.parameters import DATASETS, METRICS, MODELS, PATH, SEEDS, SUITE
from jembench.errors import SpecError
from jembench.experiment import suite as suites
from jembench.experiment.plan import Plan
from jembench.files import write_atomically
from jembench.report.published import Published, published_numbers
from jembench.running import session
from jembench.running.display import Display
from jembench.running.driver import RunOptions
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.running.estimate import FitPreview

EXAMPLES = options.examples(
    "jembench run hybrid",
    "jembench run hybrid --models jem,jem-factored,baseline --seeds 0,1,2",
    "jembench run hybrid --models mypackage.zoo:build --set epochs=5 --limit 100",
    "jembench run hybrid --dataset cifar10:root=/data --dry-run",
    "jembench run hybrid --format csv > results.csv",
    "jembench run experiment.toml",
)


NAMED = 3
"""The largest number of variants of a metric that are listed by name."""


@click.command("run", epilog=EXAMPLES)
@click.argument("suite", metavar="SUITE|FILE", type=SUITE, callback=options.defaults_of_file)
@click.option(
    "--models",
    type=MODELS,
    help="Models instead of the suite's own: jem,baseline:norm=batch, mypackage.zoo:build for "
    "your own, or the name of an imported one.",
)
@click.option(
    "--metrics",
    type=METRICS,
    help="Metrics instead of the suite's own and its grids: accuracy,ece:bins=15.",
)
@click.option(
    "--dataset",
    type=DATASETS,
    envvar="JEMBENCH_DATASET",
    help="Datasets instead of the suite's own: digits,cifar10:root=/data.",
)
@click.option("--seeds", type=SEEDS, help="Seeds instead of the suite's own: 0,1,2.")
@options.recipe
@options.recipe_settings
@options.names
@options.sampler
@options.limit
@options.split
@options.running
@options.reference
@click.pass_context
def run(
    ctx: click.Context,
    /,
    suite: str,
    dataset: list[str] | None,
    reference: list[str] | None,
    **given: Any,
) -> int:
    """Train and evaluate models of a suite or file; print the table.

    `jembench list` shows the available suites, models, metrics and datasets. Options of the command
    line and environment variables override the file. Finished work is kept in the store: the same
    command resumes a stopped run, or prints the table of a finished one.
    """
    command = options.run_command(given)
    with plugins_aside():
        plan = runs.plan_run(suites.load(suite), Store(command.store), datasets=dataset, **given)
        published = published_numbers(reference, plan.suite.references, plan.suite.split)
    return run_and_show(ctx, plan, published, command)


def run_and_show(
    ctx: click.Context, plan: Plan, published: Sequence[Published], command: RunCommand
) -> int:
    """Carry out the unfinished part of a plan and print its results.

    With ``--dry-run``, only print the planned work.

    Returns:
        the exit code.

    Raises:
        OutOfTime: if the time ran out, after the available results are printed.
    """
    place, how = Store(command.store), command.how
    show.twins(plan.fits, place)
    if command.dry_run:
        return _preview(plan, place, how, command.format)
    if command.detach:
        session.check_options(how)  # refuses options that do not fit together
        return _detach(place, ctx.obj.arguments)
    with plugins_aside():
        results = runs.results_of(plan, place, how, published)
    code = show.results(ctx, plan, place, results, command.format)
    if results.stopped:
        raise results.stopped
    return code


def _detach(store: Store, arguments: Sequence[str]) -> int:
    """Start the same command in a new session in the background."""
    log = store.works.folder / f"run-{time.time_ns():x}.log"
    write_atomically(log, b"", durable=False)  # its error says why nothing can be written
    words = [word for word in arguments if word != "--detach"]
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_DETACH")
    }
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jembench", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    process.returncode = 0  # prevents a ResourceWarning: the process goes on unattended
    say(f"The run goes on in the background, as process {process.pid}. Its output: {log}")
    say(f"{'next':>8}  jembench status --store {shlex.quote(str(store.root))}")
    say(f"{'stop':>8}  kill {process.pid}")
    return 0


def _preview(plan: Plan, store: Store, how: RunOptions, format: str) -> int:
    """Print the work of a plan.

    Raises:
        SpecError: if the format is not one of plans.
        Unavailable: after printing, if something that the plan needs is missing.
    """
    from jembench.models import devices
    from jembench.running.estimate import preview, readings

    session.check_options(how)
    device = devices.resolve(how.device)
    if format not in ("table", "json"):
        raise SpecError(
            f"--dry-run prints a plan, and --format {format} is for results. Use --format table "
            "or json."
        )
    fits, outlook = preview(plan, store, device)
    if format == "json":
        print_json([fit._asdict() for fit in fits])
    else:
        _print_preview(plan, fits)
        for text in readings(outlook):
            say(text)
    outlook.refuse_missing(skip_missing=how.skip_missing)
    return 0


def _print_preview(plan: Plan, fits: Sequence[FitPreview]) -> None:
    """Print a row for each fit, and the sums of the work."""
    rows, trainings, metrics = [], 0, 0
    for fit in fits:
        name = plan.names.model(fit.model, fit.recipe)
        work = (_training(fit), _measuring(fit))
        rows.append((name, fit.dataset, fit.recipe, str(fit.seed), *work))
        trainings += fit.iterations != 0
        metrics += len(fit.to_do)
    print_table(("model", "dataset", "recipe", "seed", "training", "metrics"), rows)
    say(
        f"\n{trainings} of {len(fits)} models are still to be trained, and {metrics} metrics to be "
        "computed. `jembench estimate MODEL` estimates the time of a training."
    )
    if any(fit.passes for fit in fits):
        say(
            "The passes of attacks are images x restarts x steps (or queries) x chains x (steps "
            "of refinement + 1), for one size of the change. A search of the smallest size tries "
            "several; attacks that end early make fewer."
        )


def _training(fit: FitPreview) -> str:
    if fit.iterations is None:
        return "not known"
    if fit.iterations:
        lines = [f"{fit.iterations:,} iterations"]
        if fit.memory:
            lines.append(fit.memory)
        return "\n".join(lines)
    return "done" if fit.trained else "not needed"


def _measuring(fit: FitPreview) -> str:
    """Return the metrics by their states and reasons."""
    lines = []
    for state, metrics in (("to do", fit.to_do), ("done", fit.done)):
        if metrics:
            lines.append(f"{state}: {_counted(metrics)}")
    for state, reasons in (("N/A", fit.not_applicable), ("missing", fit.missing)):
        groups = defaultdict[str, list[Spec]](list)
        for metric, reason in reasons.items():
            groups[reason].append(metric)
        for reason, metrics in groups.items():
            lines.append(f"{state}: {_counted(metrics)} ({reason})")
    if fit.passes:
        lines.append(f"attacks: {sum(fit.passes.values()):,} network passes")
    return "\n".join(lines)


def _counted(metrics: Sequence[Spec]) -> str:
    """Return metrics in words, many variants of one as ``42 of ood``."""
    counts = Counter(metric.bare for metric in metrics)
    words = dict[str, None]()
    for metric in metrics:
        count, word = counts[metric.bare], str(metric)
        if count > NAMED:
            word = f"{count} of {metric.bare}"
        words[word] = None
    return ", ".join(words)


# --- reproduce ------------------------------------------------------------------------------------

REPRODUCE_EXAMPLES = options.examples(
    "jembench reproduce shared --dry-run",
    "jembench reproduce shared --store again",
    "jembench reproduce shared --dataset cifar10:root=/data",
)


@click.command("reproduce", epilog=REPRODUCE_EXAMPLES)
@click.argument("source", metavar="STORE", type=PATH)
@click.option(
    "--dataset",
    type=DATASETS,
    help="Datasets whose folder differs on this machine: cifar10:root=/data.",
)
@options.measuring
@click.pass_context
def reproduce(ctx: click.Context, /, source: Path, dataset: list[str] | None, **given: Any) -> int:
    """Measure the results of a store again and compare them.

    Everything that the store holds is trained and measured in a new store by the recipes of its
    records. The exit code is 0 if every value is the same or within the intervals, else 1. The same
    command resumes a stopped one.
    """
    from jembench.api.reproduction import plan_reproduction
    from jembench.report import formats, reproduction
    from jembench.report.formats import TERMINAL

    command = options.run_command(given)
    store = command.store
    if store.exists() and source.exists() and store.samefile(source):
        raise SpecError(f"--store is {store}, the store that is reproduced. Name another folder.")
    with plugins_aside():
        planned = plan_reproduction(source, dataset or ())
    if command.dry_run:
        return run_and_show(ctx, planned.plan, (), command)
    place = Store(store)
    with plugins_aside():
        done = session.run_plan(planned.plan, place, command.how, Display)
    if done.stopped:
        raise done.stopped
    rows = reproduction.compare(planned.pairs(place))
    document = reproduction.document(rows, planned.differing)
    emit(formats.render(document, command.format), None, force=False)
    whole = reproduction.is_reproduced(rows)
    if command.format == TERMINAL:
        answer = "yes" if whole else "no"
        say(f"\nReproduced: {answer}. The new results are in {store}.")
    return int(not whole)
