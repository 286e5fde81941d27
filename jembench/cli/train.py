"""``jembench train``, ``estimate`` and ``sample``: a model, its cost, its images."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from jembench.cli import options, show
from jembench.cli.output import check_file, plugins_aside, print_json, print_table, say
from jembench.cli.parameters import COUNT, PATH, RECIPES
from jembench.experiment.plan import plan_fit
from jembench.experiment.stored import plan_named
from jembench.files import sweep
from jembench.progress import duration
from jembench.running import session
from jembench.running.display import Display
from jembench.running.driver import RunOptions
from jembench.store.store import Store

TRAIN_EXAMPLES = options.examples(
    "jembench train jem",
    "jembench train jem:net=wrn-28-10 --dataset cifar10 --device cuda",
    "jembench train mypackage.zoo:build --set epochs=5 --seed 1",
)


@click.command("train", epilog=TRAIN_EXAMPLES)
@options.training
@options.device
@options.max_hours
@options.trackers
@options.store
def train(
    store: Path, device: str, max_hours: float | None, trackers: list[str] | None, **which: Any
) -> None:
    """Train one model and print its folder.

    A stopped training resumes from its last checkpoint; a finished one is not repeated. `run` and
    `sample` find the model if they are given the same options.
    """
    place = Store(store)
    with plugins_aside():
        fit = plan_named(**which, store=place)
        show.twins([fit], place)
        how = RunOptions(device, max_hours, trackers=trackers)
        if not place.is_trained(fit.key):
            with session.open_fit(fit, place, how, partial(Display, fit.display)):
                pass
    say(place.fit_folder(fit.key))


# --- estimate -------------------------------------------------------------------------------------

ESTIMATE_EXAMPLES = options.examples(
    "jembench estimate jem",
    "jembench estimate jem --dataset cifar10 --recipe paper",
    "jembench estimate jem:net=wrn-16-4 --dataset cifar10 --recipe paper --against fast,sada",
)


@click.command("estimate", epilog=ESTIMATE_EXAMPLES)
@options.model
@options.dataset
@options.recipe
@options.recipe_settings
@click.option(
    "--against", type=RECIPES, default=(), help="Other recipes to compare with: fast,sada."
)
@options.device
@options.listing_format
def estimate(
    model: str, dataset: str, against: Sequence[str], device: str, format: str, **how: Any
) -> None:
    """Estimate the time and memory that a training takes.

    It times a few iterations with chains of one and of three steps. The images are blank, so the
    dataset need not be available.
    """
    from jembench.models import devices
    from jembench.running import estimate as estimating

    costs = []
    with plugins_aside():
        where = devices.resolve(device)
        fits = [plan_fit(model, dataset, **how)]
        fits += [plan_fit(model, dataset, recipe) for recipe in against]
        for fit in fits:
            say(f"timing {fit.key.recipe} ...", err=True)
            costs.append(estimating.estimate(fit, where))
    if format == "json":
        print_json([cost._asdict() for cost in costs])
        return
    say(f"{model} on {dataset}, {devices.name(where)}")
    columns = ("recipe", "model", "s/iteration", "iterations", "training time", "peak memory")
    rows = []
    for cost in costs:
        seconds, iterations = f"{cost.seconds:.3g}", f"{cost.iterations:,}"
        time, memory = duration(3600 * cost.hours), f"{cost.memory / 2**30:.1f} GiB"
        rows.append((cost.recipe, cost.model, seconds, iterations, time, memory))
    print_table(columns, rows)


# --- sample ---------------------------------------------------------------------------------------

SAMPLE_EXAMPLES = options.examples(
    "jembench sample jem",
    "jembench sample jem --steps 200 --output fresh.png",
    "jembench sample baseline --sampler sgld:steps=200 --columns 20",
)

SOURCES = {"buffer": "from the chains that training kept", "direct": "drawn directly"}


@click.command("sample", epilog=SAMPLE_EXAMPLES)
@options.training
@click.option(
    "--steps",
    type=COUNT,
    metavar="K",
    help="Run new chains of K steps instead of showing the images kept by training.",
)
@options.sampler
@click.option("--columns", type=COUNT, default=10, help="Images per row.")
@click.option("--output", type=PATH, default="samples.png", help="Output file (PNG).")
@options.force
@options.device
@options.store
def sample(columns: int, output: Path, force: bool, device: str, store: Path, **which: Any) -> None:
    """Draw images from a trained model as a PNG: one row per class.

    MODEL is the model that `run` and `train` train with the same options. If it is not in the
    store, it is trained first. The images shown are chosen at random.
    """
    from jembench.running import fit_samples
    from jembench.running.building import make_model

    place = Store(store)
    with plugins_aside():
        new = which.pop("steps"), which.pop("sampler")
        fit = plan_named(**which, store=place)
        # refused before training
        source = fit_samples.source_of(make_model(fit, fit.dataset.make()), fit, *new)
        check_file(output, ".png", force=force)
        sweep(output.parent, below=False)
        show.twins([fit], place)
        options_of_run = RunOptions(device, trackers=())
        display = partial(Display, fit.display)
        with session.open_fit(fit, place, options_of_run, display) as evaluation:
            print(f"drawing images of {fit} ...", file=sys.stderr)  # above live bars
            samples = evaluation.samples(source)
            check_file(output, ".png", force=force)  # a file may have appeared meanwhile
            how = source.sampler or f"{samples.source.rpartition('=')[2]} steps"
            title = f"{fit}, {SOURCES.get(samples.source, f'from new chains of {how}')}"
            by_class = fit_samples.write_samples(
                evaluation, samples, output, columns, "--output", title
            )
    order = "a row for each class" if by_class else "in no order"
    say(f"{output}: images of {title}, {order}")
