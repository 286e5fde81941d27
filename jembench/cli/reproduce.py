"""``jembench reproduce``: measure a shared result again and compare."""

from pathlib import Path
from typing import Any

import click

from jembench.api.reproduction import plan_reproduction
from jembench.cli import options
from jembench.cli.output import emit, plugins_aside
from jembench.cli.parameters import DATASETS, PATH
from jembench.cli.run import carry_out
from jembench.errors import SpecError
from jembench.report import formats, reproduction
from jembench.report.formats import TERMINAL
from jembench.running import session
from jembench.running.display import Display
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench reproduce shared --dry-run",
    "jembench reproduce shared --store again",
    "jembench reproduce shared --dataset cifar10:root=/data",
)


@click.command("reproduce", epilog=EXAMPLES)
@click.argument("source", metavar="STORE", type=PATH)
@click.option("--dataset", type=DATASETS, help="Datasets whose folder differs on this machine: cifar10:root=/data.")
@options.measuring
@click.pass_context
def reproduce(ctx: click.Context, /, source: Path, dataset: list[str] | None, **given: Any) -> int:
    """Measure the results of a store again and compare them.

    Everything that the store holds is trained and measured in a new store by the recipes of its records. The exit code
    is 0 if every value is the same or within the intervals, else 1. The same command resumes a stopped one.
    """
    command = options.run_command(given)
    store = command.store
    if store.exists() and source.exists() and store.samefile(source):
        raise SpecError(f"--store is {store}, the store that is reproduced. Name another folder.")
    with plugins_aside():
        found = plan_reproduction(source, dataset or ())
    if command.dry_run:
        return carry_out(ctx, found.plan, (), command)
    place = Store(store)
    with plugins_aside():
        done = session.run_plan(found.plan, place, command.how, Display)
    if done.stopped:
        raise done.stopped
    rows = reproduction.compare(found.pairs(place))
    emit(formats.render(reproduction.document(rows, found.differing), command.format), None, force=False)
    whole = reproduction.is_reproduced(rows)
    if command.format == TERMINAL:
        click.echo(f"\nReproduced: {'yes' if whole else 'no'}. The new results are in {store}.")
    return int(not whole)
