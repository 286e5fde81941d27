"""``jembench sample``: draw images from a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.cli import options, show
from jembench.cli.output import check_file, plugins_aside
from jembench.errors import SpecError
from jembench.files import sweep_beside
from jembench.running import session
from jembench.running.display import display
from jembench.running.session import RunOptions
from jembench.store.store import Store
from jembench.training.launch import Placement, joined

if TYPE_CHECKING:
    from jembench.experiment.plan import FitPlan
    from jembench.interfaces import Dataset

EXAMPLES = options.examples(
    "jembench sample jem",
    "jembench sample jem --steps 200 --output fresh.png",
    "jembench sample jem-factored --seed 1 --columns 20",
)

_SOURCES = {"buffer": "from the chains that training kept", "direct": "drawn directly"}


@click.command("sample", epilog=EXAMPLES)
@options.planned_fit
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="K",
    help="Run new chains of K steps instead of showing the images kept by training.",
)
@click.option("--columns", type=click.IntRange(min=1), metavar="N", default=10, help="Images per row.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default="samples.png",
    help="Output file (PNG).",
)
@options.force
@options.device
@options.store
def sample(
    fit: FitPlan,
    steps: int | None,
    columns: int,
    output: Path,
    force: bool,
    device: str,
    store: Path,
) -> None:
    """Draw images from a trained model as a PNG: one row per class.

    MODEL is the model that `run` and `train` train with the same options. If it is not in the store, it is trained
    first. The images shown are chosen at random.
    """
    from jembench.running import fit_samples

    with plugins_aside():
        data = fit.dataset.make()
        _check_model(fit, data, steps)
        check_file(output, ".png", force=force)
        sweep_beside(output)
        place = Store(store)
        show.twins([fit], place, RunOptions(devices=1))
        with joined(Placement(), device, ()) as here, session.open_fit(fit, data, place, here, display) as evaluation:
            samples = fit_samples.samples_of(evaluation, fit, steps)
            check_file(output, ".png", force=force)  # again, for training took its time
            by_class = fit_samples.write_samples(evaluation, samples, output, columns, "--output")
    source = _SOURCES.get(samples.source) or f"from new chains of {samples.source.rpartition('=')[2]} steps"
    click.echo(f"{output}: images of {fit}, {source}, {'a row for each class' if by_class else 'in no order'}")


def _check_model(fit: FitPlan, data: Dataset, steps: int | None) -> None:
    """Check before training that the model can generate the images."""
    from jembench.models.capabilities import capabilities
    from jembench.running import fit_samples
    from jembench.running.fits import make_model

    model = make_model(fit, data)
    if "samples" not in capabilities(model):
        raise fit_samples.generates_nothing(fit)
    if steps is not None and getattr(model, "chains", "none") == "none":
        raise SpecError(f"{fit.key.model} draws its images directly, without a chain. Leave --steps out.")
