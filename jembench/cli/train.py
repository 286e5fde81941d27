"""``jembench train`` and ``jembench estimate``: the training of one model, and its cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.cli import options, show
from jembench.cli.output import plugins_aside, print_json, print_table
from jembench.cli.parameters import RECIPES
from jembench.running import session
from jembench.running.display import display
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.cli.main import Settings
    from jembench.experiment.plan import FitPlan
    from jembench.running.estimate import Estimate
    from jembench.running.session import RunOptions

TRAIN_EXAMPLES = options.examples(
    "jembench train jem",
    "jembench train jem:net=wrn-28-10 --dataset cifar10 --device cuda",
    "jembench train jem:net=wrn-28-10 --dataset cifar10 --devices 4",
    "jembench train mypackage.zoo:build --set epochs=5 --seed 1",
)


@click.command("train", epilog=TRAIN_EXAMPLES)
@options.planned_fit
@options.training
@options.store
@click.pass_obj
def train(main: Settings, fit: FitPlan, how: RunOptions, store: Path) -> None:
    """Train one model and print its folder.

    A stopped training resumes from its last checkpoint; a finished one is not repeated. `run` and `sample` find the
    model if they are given the same options.
    """
    place = Store(store)
    with plugins_aside():
        show.twins([fit], place, how)
        done = session.train(fit, place, how, display, main.arguments)
    if done:
        click.echo(place.fit_folder(fit.key))


ESTIMATE_EXAMPLES = options.examples(
    "jembench estimate jem",
    "jembench estimate jem --dataset cifar10 --recipe paper",
    "jembench estimate jem:net=wrn-16-4 --dataset cifar10 --recipe paper --against fast,sada",
    "jembench estimate jem --dataset cifar10 --recipe paper --rate 300",
)


@click.command("estimate", epilog=ESTIMATE_EXAMPLES)
@options.model
@options.dataset
@options.recipe
@options.recipe_settings
@click.option(
    "--against",
    type=RECIPES,
    help="Other recipes to compare with: fast,sada. By default all recipes that fit the model and the dataset.",
)
@options.device
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TFLOPS",
    help="Time nothing: count operations and memory, and estimate hours at this rate, in 10^12 operations a second.",
)
@options.listing_format
def estimate(
    model: str,
    dataset: str,
    recipe: str | None,
    settings: tuple[str, ...],
    against: list[str] | None,
    device: str,
    rate: float | None,
    format: str,
) -> None:
    """Estimate the time and memory that a training takes.

    It runs a few iterations. A first estimate appears after seconds; better ones follow. If whole batches take too
    long, only some of their images are timed, and the last column says so.

    The estimates are for this machine, for the given recipe and for others; a star marks the one that is used by
    default. The images are random, so the dataset need not be available. The second row is the same recipe without
    mixed precision, channels-last layout and compilation. A recipe that cannot be used has the reason in the last
    column. The operations are those of convolutions and matrix products.

    With --rate nothing is run, and the estimates are for hardware that need not be here. The memory is that of tensors,
    in bfloat16 unless the images are small.
    """
    from jembench.models import devices
    from jembench.running.estimate import compare_recipes

    def say(text: str) -> None:
        click.echo(text, err=True)

    with plugins_aside():
        where = devices.resolve("cpu" if rate else device)
        a_second = None if rate is None else rate * 1e12
        found = compare_recipes(model, dataset, recipe, settings, against, where, say, rate=a_second)
    if format == "json":
        print_json([row._asdict() for row in found])
        return
    click.echo(f"{model} on {dataset}, {f'{rate:g} TFLOP/s' if rate else devices.name(where)}")
    columns = ("recipe", "model", "TFLOP/iteration", "s/iteration", "iterations", "hours", "peak memory", "timed")
    print_table(columns, [_texts(row) for row in found])
    if any(row.chosen for row in found):
        click.echo("* the default for this model and dataset")


def _texts(row: Estimate) -> tuple[str, ...]:
    name = f"{row.recipe} *" if row.chosen else row.recipe
    if row.reason:
        return name, row.model, *[""] * 5, f"cannot be used: {row.reason}"
    operations = f"{row.operations / 1e12:.3g}" if row.operations else "not known"
    memory = f"{row.memory / 2**30:.1f} GiB" if row.memory else "not known"
    numbers = f"{row.seconds:.3g}", str(row.iterations), f"{row.hours:.3g}"
    return name, row.model, operations, *numbers, memory, row.timed
