"""``jembench train``: train one model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench import registry
from jembench.cli import options
from jembench.cli.output import plugins_aside
from jembench.store import Store
from jembench.suite import FitPlan
from jembench.training import recipe as recipes

if TYPE_CHECKING:
    from jembench.evaluate import FitEvaluation
    from jembench.interfaces import Dataset

EXAMPLES = options.examples(
    "jembench train jem",
    "jembench train jem:net=wrn-28-10 --dataset cifar10 --device cuda",
    "jembench train mypackage.zoo:build --set epochs=5 --seed 1",
)


@click.command("train", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL")
@options.dataset
@options.recipe
@options.recipe_settings
@options.seed
@options.device
@options.store
def train(
    model: str, dataset: str, recipe: str | None, settings: tuple[str, ...], seed: int, device: str, store: Path
) -> None:
    """Train one model and print the folder that it lies in.

    A training that was stopped goes on from its last checkpoint; one that is finished is not repeated. `run` and
    `sample` find the model there when they are given the same options.
    """
    place = Store(store)
    with plugins_aside():
        fit = plan_fit(model, dataset, recipe, settings, seed)
        if not place.is_trained(fit.key):
            with trained(fit, fit.dataset.make(), place, device):
                pass
    click.echo(place.fit_folder(fit.key))


def plan_fit(model: str, dataset: str, recipe: str | None, settings: tuple[str, ...], seed: int) -> FitPlan:
    """The fit that the options name.

    Raises:
        SpecError: for a name or an option that does not exist.
    """
    data = registry.resolve("datasets", dataset)
    chosen = recipes.load(recipe or recipes.default_for(data.component.name), settings)
    return FitPlan(model=registry.resolve("models", model), dataset=data, recipe=chosen, seed=seed)


@contextmanager
def trained(fit: FitPlan, dataset: Dataset, store: Store, device: str) -> Iterator[FitEvaluation]:
    """The fit, trained first if the store does not have it; within the context it may be computed with."""
    from jembench import devices, work
    from jembench.cli.progress import monitor
    from jembench.features import FeatureBank

    where = devices.resolve(device)
    if not store.is_trained(fit.key):
        dataset.split("train")  # what is missing is told before anything is written
    store.check_writable()
    with devices.threads_for(dataset.spec, where):
        with monitor([fit]) as watching, work.waiting_lease(store, fit, watching):
            evaluation = work.trained(fit, FeatureBank(dataset, store.features, where), store, watching)
        yield evaluation
