"""``jembench run``: train and evaluate models on a suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from jembench.catalog import registry
from jembench.catalog.spec import split_list
from jembench.cli import options, show
from jembench.cli.output import plugins_aside
from jembench.cli.show_plan import show_plan
from jembench.cli.train import assist
from jembench.errors import OutOfTime, SpecError
from jembench.experiment import suite as suites
from jembench.experiment.plan import Plan, make_plan
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import Variant, bare_name
from jembench.report import references
from jembench.report.references import PublishedTable
from jembench.stopping import Stopped
from jembench.store.latest import mark_latest
from jembench.store.store import Store
from jembench.training.launch import Joined, Placement, check, joined, placement

if TYPE_CHECKING:
    from jembench.interfaces import Executor

EXAMPLES = options.examples(
    "jembench run hybrid",
    "jembench run hybrid --models jem,jem-factored,baseline --seeds 0,1,2",
    "jembench run hybrid --models mypackage.zoo:build --set epochs=5 --limit 100",
    "jembench run hybrid --dataset cifar10:root=/data --dry-run",
    "jembench run hybrid --format csv > results.csv",
)


@click.command("run", epilog=EXAMPLES)
@click.argument("suite", metavar="SUITE")
@click.option(
    "--models",
    metavar="SPECS",
    help="Models in place of the suite's own: jem,baseline:norm=batch. A model of yours is mypackage.zoo:build.",
)
@click.option(
    "--metrics", metavar="SPECS", help="Metrics in place of the suite's own and of its grids: accuracy,ece:bins=15."
)
@click.option(
    "--dataset",
    metavar="SPECS",
    envvar="JEMBENCH_DATASET",
    help="Datasets in place of the suite's own: digits,cifar10:root=/data.",
)
@click.option("--seeds", metavar="LIST", help="Seeds in place of the suite's own: 0,1,2.")
@options.recipe
@options.settings(
    "Change a field of the recipe (epochs=5, optimizer.learning_rate=1e-3) or an option of a metric (ece.bins=15)."
)
@options.circumstances
@options.reference
@click.pass_context
def run(
    ctx: click.Context,
    /,
    suite: str,
    models: str | None,
    metrics: str | None,
    dataset: str | None,
    seeds: str | None,
    reference: str | None,
    recipe: str | None,
    settings: tuple[str, ...],
    **circumstances: Any,
) -> int:
    """Train and evaluate models on a suite and print the table.

    `jembench list` shows the suites, models, metrics and datasets that there are. Finished work is kept in the store:
    the same command again goes on where it was stopped, or prints the table.
    """
    how = options.RunOptions(**circumstances)
    with plugins_aside():
        chosen = choose(suites.load(suite), models=models, metrics=metrics, datasets=dataset, seeds=seeds)
        published = references.load(options.published_tables(reference, chosen.references))
        plan = make_plan(chosen, recipe=recipe, settings=settings, limit=how.limit)
    return carry_out(ctx, plan, published, how)


def carry_out(ctx: click.Context, plan: Plan, published: Sequence[PublishedTable], how: options.RunOptions) -> int:
    """Do what of a plan is not done yet, and print its results; or, if that is asked for, what would be done.

    Returns:
        the exit code.

    Raises:
        OutOfTime: after the results that there are, if the time was over.
    """
    place = Store(how.store)
    company = placement(how.devices)
    for fit in plan.fits:
        fit.check_shares(company.size)
    if company.size > 1 and how.executor != "local":
        raise SpecError(f"--devices trains here, and the executor {how.executor} elsewhere. Leave one of them out.")
    runner: Executor = registry.resolve("executors", how.executor).make()
    if not company.rank:
        show.twins(plan.fits, place)
    if how.dry_run:
        device = check(company, how.device)
        if not company.rank:
            show_plan(plan, place, how.format, device, skip_missing=how.skip_missing)
        return 0
    if not company.rank:
        place.sweep()
    cells = [] if company.rank else show.outcomes(plan, place)
    pending, over = show.unfinished(plan, cells), None
    if company.started or pending:
        cells.clear()  # there may be tens of thousands, and training takes long
        over = _work(ctx, plan, Plan(plan.suite, pending), place, runner, how, company)
    if company.rank:
        return 0
    # after the work: a command that finds everything done has nothing to add to what this one says
    mark_latest(place, {fit.key.family for fit in plan.fits}, {cell.metric.id for cell in plan.cells})
    found = cells or show.outcomes(plan, place)
    code = show.results(ctx, plan, place, published, how.format, found, stopped=over is not None)
    if over:
        raise over
    return code


def _work(
    ctx: click.Context,
    plan: Plan,
    pending: Plan,
    store: Store,
    runner: Executor,
    how: options.RunOptions,
    company: Placement,
) -> OutOfTime | Stopped | None:
    """Do what of a plan is pending; gives the error if the time was over first, or a signal asked to end."""
    with plugins_aside(), joined(company, how.device, ctx.obj.arguments) as here:
        if company.rank:
            assist(plan.fits, here)
            return None
        try:
            _conduct(pending, store, runner, how, here)
        except (OutOfTime, Stopped) as error:
            return error
    return None


def choose(suite: Suite, *, models: str | None, metrics: str | None, datasets: str | None, seeds: str | None) -> Suite:
    """The suite, or each that it includes, with the command line's choices in place of its own.

    Metrics take the place of grids too. Of variants with models of their own, those are left that are also asked for.
    """
    if suite.included:
        included = (
            choose(one, models=models, metrics=metrics, datasets=datasets, seeds=seeds) for one in suite.included
        )
        return dataclasses.replace(suite, included=tuple(included))
    return dataclasses.replace(
        suite,
        models=suite.models if models is None else tuple(split_list(models)),
        metrics=suite.metrics if metrics is None else tuple(split_list(metrics)),
        grid=suite.grid if metrics is None else (),
        datasets=suite.datasets if datasets is None else tuple(split_list(datasets)),
        seeds=suite.seeds if seeds is None else options.seed_list(seeds),
        variant=suite.variant if models is None else _of_models(suite.variant, split_list(models)),
    )


def _of_models(variants: Sequence[Variant], models: Sequence[str]) -> tuple[Variant, ...]:
    names = {bare_name(model) for model in models}
    found = (
        dataclasses.replace(variant, models=tuple(model for model in variant.models if bare_name(model) in names))
        for variant in variants
    )
    return tuple(new for old, new in zip(variants, found, strict=True) if new.models or not old.models)


def _conduct(plan: Plan, store: Store, runner: Executor, how: options.RunOptions, here: Joined) -> None:
    from jembench.cli.progress import monitor
    from jembench.running import work

    until = options.until(how.max_hours)
    with monitor(plan.fits) as watching:
        work.carry_out(plan, store, runner, here.device, watching, until, here.team, skip_missing=how.skip_missing)
