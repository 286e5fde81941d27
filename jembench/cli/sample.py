"""``jembench sample``: draw images from a trained model."""

from __future__ import annotations

from pathlib import Path

import click

from jembench.cli import options
from jembench.cli.train import plan_fit, train_or_load
from jembench.store import Store


@click.command("sample")
@click.argument("model", metavar="MODEL")
@options.dataset
@options.recipe
@options.settings
@options.seed
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="K",
    help="Run new chains of K steps from the sampler's start, in place of the images that training kept.",
)
@click.option("--columns", type=click.IntRange(min=1), default=10, show_default=True, help="Images a class.")
@click.option("--output", type=click.Path(path_type=Path), default="samples.png", show_default=True, help="The PNG.")
@options.device
@options.store
def sample(
    model: str,
    dataset: str,
    recipe: str | None,
    settings: tuple[str, ...],
    seed: int,
    steps: int | None,
    columns: int,
    output: Path,
    device: str,
    store: Path,
) -> None:
    """Draw images from MODEL, trained first if the store does not have it, as a PNG: a row a class."""
    from jembench import work

    fit = plan_fit(model, dataset, recipe, settings, seed)
    evaluation = train_or_load(fit, Store(store), device)
    samples = work.samples_of(evaluation, fit, steps)
    work.write_samples(evaluation, samples, output, columns)
    click.echo(f"{output}: images of {fit} ({samples.source}), a row a class")
