"""``jembench train``: train one model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.cli import options, show
from jembench.cli.output import plugins_aside
from jembench.experiment.plan import plan_fit
from jembench.running import session
from jembench.running.display import display
from jembench.running.session import RunOptions
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.cli.main import Settings

EXAMPLES = options.examples(
    "jembench train jem",
    "jembench train jem:net=wrn-28-10 --dataset cifar10 --device cuda",
    "jembench train jem:net=wrn-28-10 --dataset cifar10 --devices 4",
    "jembench train mypackage.zoo:build --set epochs=5 --seed 1",
)


@click.command("train", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL")
@options.dataset
@options.recipe
@options.recipe_settings
@options.seed
@options.device
@options.devices
@options.max_hours
@options.store
@click.pass_obj
def train(
    main: Settings,
    model: str,
    dataset: str,
    recipe: str | None,
    settings: tuple[str, ...],
    seed: int,
    device: str,
    devices: int | None,
    max_hours: float | None,
    store: Path,
) -> None:
    """Train one model and print its folder.

    A stopped training resumes from its last checkpoint; a finished one is not repeated. `run` and `sample` find the
    model if they are given the same options.
    """
    place, how = Store(store), RunOptions(device, devices, max_hours)
    with plugins_aside():
        fit = plan_fit(model, dataset, recipe, settings, seed)
        show.twins([fit], place, how)
        done = session.train(fit, place, how, display, main.arguments)
    if done:
        click.echo(place.fit_folder(fit.key))
