"""``jembench train``: train one model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench import registry
from jembench.cli import options
from jembench.store import Store
from jembench.suite import FitPlan
from jembench.training import recipe as recipes

if TYPE_CHECKING:
    from jembench.evaluate import FitEvaluation


@click.command("train")
@click.argument("model", metavar="MODEL")
@options.dataset
@options.recipe
@options.settings
@options.seed
@options.device
@options.store
def train(
    model: str, dataset: str, recipe: str | None, settings: tuple[str, ...], seed: int, device: str, store: Path
) -> None:
    """Train MODEL, or go on with its training, and say where it lies. `run` and `sample` find it there."""
    fit = plan_fit(model, dataset, recipe, settings, seed)
    place = Store(store)
    train_or_load(fit, place, device)
    click.echo(place.fit_folder(fit.key))


def plan_fit(model: str, dataset: str, recipe: str | None, settings: tuple[str, ...], seed: int) -> FitPlan:
    """The fit that the options name.

    Raises:
        SpecError: for a name or an option that does not exist.
    """
    data = registry.resolve("datasets", dataset)
    chosen = recipes.load(recipe or recipes.default_for(data.component.name), settings)
    return FitPlan(model=registry.resolve("models", model), dataset=data, recipe=chosen, seed=seed)


def train_or_load(fit: FitPlan, store: Store, device: str) -> FitEvaluation:
    """The fit, ready for evaluation."""
    from jembench import devices, work
    from jembench.cli.progress import monitor

    store.check_writable()
    dataset = fit.dataset.make()
    where = devices.resolve(device)
    with monitor() as watching, work.waiting_lease(store, fit), devices.threads_for(dataset.spec, where):
        return work.trained(fit, dataset, store, where, watching)
