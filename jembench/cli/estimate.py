"""``jembench estimate``: what a training would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from jembench.catalog import registry
from jembench.catalog.spec import split_list
from jembench.cli import options
from jembench.cli.output import plugins_aside, print_json, print_table
from jembench.errors import JembenchError, SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit

if TYPE_CHECKING:
    import torch

    from jembench.interfaces import Dataset

EXAMPLES = options.examples(
    "jembench estimate jem",
    "jembench estimate jem --dataset cifar10 --recipe paper",
    "jembench estimate jem:net=wrn-16-4 --dataset cifar10 --recipe paper --against fast,sada",
)

PLAIN = ("compute.precision=float32", "compute.layout=contiguous", "compute.compile=off")


@click.command("estimate", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL")
@options.dataset
@options.recipe
@options.recipe_settings
@click.option(
    "--against",
    metavar="RECIPES",
    help="Other recipes to compare with: fast,sada. By default all that are for the same models, and for any dataset "
    "or this one.",
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
    """Run a few iterations and say what the whole training would take.

    A first answer comes after seconds; better ones follow. Where whole batches take too long, some of their images are
    timed, and the last column says so.

    It is said for this machine, for the recipe that is asked for and for others. The images are random, so the
    dataset need not be there. The second row is the same recipe without mixed precision, channels-last layout and
    compilation.
    """
    from jembench.data.datasets import unread
    from jembench.models import devices

    with plugins_aside():
        asked = plan_fit(model, dataset, recipe, settings, seed=0)
        if asked.model.pretrained:
            raise SpecError(f"{asked.key.model} was trained elsewhere: there is no training to estimate.")
        where = devices.resolve(device)
        data = unread(asked.dataset)
        rows = [_estimated(asked.key.recipe, asked, data, where)]
        plain = plan_fit(model, dataset, recipe, (*settings, *PLAIN), seed=0)
        rows.append(_estimated("the same in float32", plain, data, where))
        for name in _others(asked) if against is None else split_list(against):
            try:
                rows.append(_estimated(name, plan_fit(model, dataset, name, (), seed=0), data, where))
            except JembenchError as error:
                if against is not None:
                    raise
                click.echo(f"{name} is left out: {error}", err=True)
    if format == "json":
        print_json([row._asdict() for row in rows])
    else:
        click.echo(f"{model} on {dataset}, {devices.name(where)}")
        headings = ("recipe", "model", "s/iteration", "iterations", "hours", "peak memory", "timed")
        print_table(headings, [_texts(row) for row in rows])


class Row(NamedTuple):
    """What one training would cost."""

    recipe: str
    model: str
    seconds: float  # an iteration
    iterations: int
    hours: float
    memory: int  # bytes, 0: not known
    timed: str  # from what the time is known


def _estimated(name: str, fit: FitPlan, data: Dataset, device: torch.device) -> Row:
    from jembench.running.estimate import estimates

    click.echo(f"timing {name} ...", err=True)
    for found in estimates(fit, data, device):
        click.echo(f"{name}: about {found.hours:.3g} hours, from {found.how}", err=True)
    return Row(name, fit.key.model, found.seconds, found.iterations, found.hours, found.memory, found.how)


def _texts(row: Row) -> tuple[str, ...]:
    memory = f"{row.memory / 2**30:.1f} GiB" if row.memory else "not known"
    return row.recipe, row.model, f"{row.seconds:.3g}", str(row.iterations), f"{row.hours:.3g}", memory, row.timed


def _others(asked: FitPlan) -> list[str]:
    """Recipes for the same models, and for any dataset or this one.

    One that is nobody's default is for the dataset that its name begins with, if there is one of that name.
    """
    dataset = asked.dataset.component.name
    elsewhere = {component.name for component in registry.components("datasets")} - {dataset}
    known = [recipes.load(name) for name in recipes.names() if name not in (asked.recipe.name, PRETRAINED)]
    return [
        other.name
        for other in known
        if other.models == asked.recipe.models
        and (dataset in other.default_for if other.default_for else other.name.partition("-")[0] not in elsewhere)
    ]
