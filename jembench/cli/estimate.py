"""``jembench estimate``: what a training would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jembench.catalog.spec import split_list
from jembench.cli import options
from jembench.cli.output import plugins_aside, print_json, print_table

if TYPE_CHECKING:
    from jembench.running.estimate import Row

EXAMPLES = options.examples(
    "jembench estimate jem",
    "jembench estimate jem --dataset cifar10 --recipe paper",
    "jembench estimate jem:net=wrn-16-4 --dataset cifar10 --recipe paper --against fast,sada",
)


@click.command("estimate", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL")
@options.dataset
@options.recipe
@options.recipe_settings
@click.option(
    "--against",
    metavar="RECIPES",
    help="Other recipes to compare with: fast,sada. By default all recipes that fit the model and the dataset.",
)
@options.device
@options.listing_format
def estimate(
    model: str,
    dataset: str,
    recipe: str | None,
    settings: tuple[str, ...],
    against: str | None,
    device: str,
    format: str,
) -> None:
    """Estimate the time and memory that a training takes.

    It runs a few iterations. A first estimate appears after seconds; better ones follow. If whole batches take too
    long, only some of their images are timed, and the last column says so.

    The estimates are for this machine, for the given recipe and for others. The images are random, so the dataset
    need not be available. The second row is the same recipe without mixed precision, channels-last layout and
    compilation.
    """
    from jembench.models import devices
    from jembench.running.estimate import compare_recipes

    def say(text: str) -> None:
        click.echo(text, err=True)

    with plugins_aside():
        where = devices.resolve(device)
        names = None if against is None else split_list(against)
        rows = compare_recipes(model, dataset, recipe, settings, names, where, say)
    if format == "json":
        print_json([row._asdict() for row in rows])
    else:
        click.echo(f"{model} on {dataset}, {devices.name(where)}")
        headings = ("recipe", "model", "s/iteration", "iterations", "hours", "peak memory", "timed")
        print_table(headings, [_texts(row) for row in rows])


def _texts(row: Row) -> tuple[str, ...]:
    memory = f"{row.memory / 2**30:.1f} GiB" if row.memory else "not known"
    return row.recipe, row.model, f"{row.seconds:.3g}", str(row.iterations), f"{row.hours:.3g}", memory, row.timed
