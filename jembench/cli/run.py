"""``jembench run``: train and evaluate models on a suite."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from jembench import registry
from jembench import suite as suites
from jembench.cli import options, show
from jembench.spec import split_list
from jembench.store import Store
from jembench.suite import Plan, Suite


@click.command("run")
@click.argument("suite", metavar="SUITE")
@click.option("--models", metavar="SPECS", help="Models in place of the suite's own: jem,baseline:norm=batch")
@click.option("--metrics", metavar="SPECS", help="Metrics in place of the suite's own: accuracy,ece:bins=15")
@click.option("--dataset", "datasets", metavar="SPECS", envvar="JEMBENCH_DATASET", help="Datasets in place of its own.")
@click.option("--seeds", metavar="LIST", help="Seeds in place of its own: 0,1,2")
@options.recipe
@options.settings
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Evaluate the first N test images alone.")
@options.device
@options.store
@click.option("--executor", default="local", show_default=True, help="Where the work is done.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and what it costs, and stop.")
@options.report_format
def run(
    suite: str,
    models: str | None,
    metrics: str | None,
    datasets: str | None,
    seeds: str | None,
    recipe: str | None,
    settings: tuple[str, ...],
    limit: int | None,
    device: str,
    store: Path,
    executor: str,
    dry_run: bool,
    format: str,
) -> int:
    """Train and evaluate models on SUITE and print the table.

    Finished work is kept in the store: the same command again goes on where it was stopped, or prints the table.
    """
    chosen = choose(suites.load(suite), models=models, metrics=metrics, datasets=datasets, seeds=seeds)
    plan = suites.make_plan(chosen, recipe=recipe, settings=settings, limit=limit)
    place = Store(store)
    if dry_run:
        show.plan(plan, place, format)
        return 0
    if show.unfinished(plan, place):
        _carry_out(plan, place, executor, device)
    return show.results(plan, place, format)


def choose(suite: Suite, *, models: str | None, metrics: str | None, datasets: str | None, seeds: str | None) -> Suite:
    """The suite with the command line's choices in place of its own."""
    return dataclasses.replace(
        suite,
        models=tuple(split_list(models)) if models else suite.models,
        metrics=tuple(split_list(metrics)) if metrics else suite.metrics,
        datasets=tuple(split_list(datasets)) if datasets else suite.datasets,
        seeds=options.seed_list(seeds) if seeds else suite.seeds,
    )


def _carry_out(plan: Plan, store: Store, executor: str, device: str) -> None:
    from jembench import devices, work
    from jembench.cli.progress import monitor

    runner = registry.resolve("executors", executor).make()
    with monitor() as watching:
        work.carry_out(plan, store, runner, devices.resolve(device), watching)
