"""``jembench sample``: draw images from a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jembench.cli import options, show
from jembench.cli.output import check_file, plugins_aside
from jembench.cli.parameters import COUNT, PATH
from jembench.experiment.imports import plan_named
from jembench.files import sweep
from jembench.running import session
from jembench.running.display import Display
from jembench.running.driver import RunOptions
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench sample jem",
    "jembench sample jem --steps 200 --output fresh.png",
    "jembench sample jem-factored --seed 1 --columns 20",
)

_SOURCES = {"buffer": "from the chains that training kept", "direct": "drawn directly"}


@click.command("sample", epilog=EXAMPLES)
@options.training
@click.option(
    "--steps",
    type=COUNT,
    metavar="K",
    help="Run new chains of K steps instead of showing the images kept by training.",
)
@click.option("--columns", type=COUNT, default=10, help="Images per row.")
@click.option("--output", type=PATH, default="samples.png", help="Output file (PNG).")
@options.force
@options.device
@options.store
def sample(steps: int | None, columns: int, output: Path, force: bool, device: str, store: Path, **which: Any) -> None:
    """Draw images from a trained model as a PNG: one row per class.

    MODEL is the model that `run` and `train` train with the same options. If it is not in the store, it is trained
    first. The images shown are chosen at random.
    """
    from jembench.running import fit_samples
    from jembench.running.fits import make_model

    place = Store(store)
    with plugins_aside():
        fit = plan_named(**which, store=place)
        fit_samples.check_generative(make_model(fit, fit.dataset.make()), fit, steps)  # before training
        check_file(output, ".png", force=force)
        sweep(output.parent, below=False)
        show.twins([fit], place)
        with session.open_fit(fit, place, RunOptions(device, trackers=()), Display) as evaluation:
            samples = fit_samples.samples_of(evaluation, fit, steps)
            check_file(output, ".png", force=force)  # again, for training took its time
            by_class = fit_samples.write_samples(evaluation, samples, output, columns, "--output")
    source = _SOURCES.get(samples.source) or f"from new chains of {samples.source.rpartition('=')[2]} steps"
    click.echo(f"{output}: images of {fit}, {source}, {'a row for each class' if by_class else 'in no order'}")
