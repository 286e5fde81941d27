"""``jembench train``: train one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.cli import options, show
from jembench.cli.output import plugins_aside
from jembench.experiment.plan import FitPlan, plan_fit
from jembench.store.store import Store
from jembench.training.launch import Joined, joined, placement

if TYPE_CHECKING:
    from jembench.cli.main import Settings
    from jembench.interfaces import Dataset
    from jembench.running.evaluation import FitEvaluation

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
    """Train one model and print the folder that it lies in.

    A training that was stopped goes on from its last checkpoint; one that is finished is not repeated. `run` and
    `sample` find the model there when they are given the same options.
    """
    place = Store(store)
    with plugins_aside():
        fit = plan_fit(model, dataset, recipe, settings, seed)
        company = placement(devices)
        fit.check_shares(company.size)
        if company.started or not place.is_trained(fit.key):
            with joined(company, device, main.arguments) as here:
                if company.rank:
                    assist([fit], here)
                    return
                with trained(fit, fit.dataset.make(), place, here, options.until(max_hours)):
                    pass
    click.echo(place.fit_folder(fit.key))


def assist(fits: Sequence[FitPlan], here: Joined) -> None:
    """Train with the process of rank 0 what it trains of these."""
    from jembench.running import work

    work.assist(fits, here.device, here.team)


@contextmanager
def trained(
    fit: FitPlan, dataset: Dataset, store: Store, here: Joined, until: float | None = None
) -> Iterator[FitEvaluation]:
    """The fit, trained first if the store does not have it; within the context it may be computed with."""
    from jembench.cli.progress import monitor
    from jembench.models import devices
    from jembench.running import fits
    from jembench.running.features import FeatureBank

    if not store.is_trained(fit.key):
        show.twins([fit], store)
        for split in ("train", "test"):  # missing or damaged images are an error before anything is trained
            dataset.split(split)
    store.sweep()
    store.check_writable()
    with devices.threads_for(dataset.spec, here.device):
        with monitor([fit]) as watching, fits.waiting_lease(store, fit, watching):
            bank = FeatureBank(dataset, store.features, here.device)
            evaluation = fits.trained(fit, bank, store, watching, until=until, team=here.team)
        yield evaluation
