"""``jembench attack``: attack trained models."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from jembench.catalog import registry
from jembench.catalog.spec import Spec, keyword_parameters, split_list
from jembench.cli import options, show
from jembench.cli.figures import draw
from jembench.cli.output import plugins_aside
from jembench.cli.run import carry_out
from jembench.errors import OutOfTime, SpecError, unknown
from jembench.experiment.plan import Plan, make_plan
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name
from jembench.metrics.budgets import BUDGETS
from jembench.report import claims, claims_table, judging
from jembench.stopping import Stopped
from jembench.store.outcome import Cell
from jembench.store.store import Store

ATTACKS = ("pgd", "boundary", "pointwise", "transfer", "distal", "ensemble", "gradient-checks")
"""Those of core; a plugin's attack is a metric that goes by its own name here."""

EXAMPLES = options.examples(
    "jembench attack pgd --norm l2 --refine 10",
    "jembench attack pgd --norm linf,l2 --refine 0,1,10 --models jem --dry-run",
    "jembench attack pgd --eps 2/255,8/255 --models jem,baseline --budget paper",
    "jembench attack boundary --query-limit 5000",
    "jembench attack transfer --refine 1,10 --models jem",
    "jembench attack gradient-checks --refine 10 --grad bpda --models jem",
)

CROSSED = ("norm", "eps", "refine", "eot", "smooth")
"""Options that take several values with commas between them: every combination is one attack."""


@click.command("attack", epilog=EXAMPLES)
@click.argument("attack", metavar="ATTACK")
@click.option("--models", metavar="SPECS", default="jem,baseline", show_default=True, help="Whom to attack.")
@click.option("--norm", metavar="LIST", help="Of the change: linf, l2 or both.")
@click.option(
    "--eps",
    metavar="LIST",
    help="Sizes of a change, of a pixel's range: 2/255,8/255. By default the smallest of each image is searched.",
)
@click.option("--refine", metavar="LIST", help="Steps of the model's own chain from each image (JEM-k): 0,1,10.")
@click.option("--eot", metavar="LIST", help="Chains whose mean answer counts: 5, or 1,5,10 for a study of it.")
@click.option(
    "--grad",
    type=click.Choice(["through", "bpda"]),
    help="The gradient of refinement: through the chain, in second order, or straight past it.",
)
@click.option(
    "--data-noise",
    type=click.FloatRange(min=0),
    metavar="STD",
    help="Of Gaussian noise on each image before its chain, on [-1, 1]: 0.03 in the reference code.",
)
@click.option(
    "--smooth",
    metavar="LIST",
    help="Randomised smoothing: of the noise on the copies whose mean answer counts, on [0, 1]: 0,0.25.",
)
@click.option(
    "--budget",
    type=click.Choice(list(BUDGETS)),
    help="What an attack may spend. By default quick on digits, else paper; the options below replace parts of it.",
)
@click.option("--images", type=click.IntRange(min=1), metavar="N", help="How many are attacked.")
@click.option("--restarts", type=click.IntRange(min=1), metavar="R", help="Of PGD, for each image.")
@click.option("--steps", type=click.IntRange(min=1), metavar="S", help="Of each restart.")
@click.option("--query-limit", "queries", type=click.IntRange(min=1), metavar="Q", help="Of boundary and pointwise.")
@click.option(
    "--dataset", metavar="SPECS", default="digits", show_default=True, envvar="JEMBENCH_DATASET", help="Of the models."
)
@click.option("--seeds", metavar="LIST", default="0", show_default=True, help="Of the models: 0,1,2.")
@options.recipe
@options.recipe_settings
@options.circumstances
@click.pass_context
def attack(
    ctx: click.Context,
    /,
    attack: str,
    models: str,
    dataset: str,
    seeds: str,
    recipe: str | None,
    settings: tuple[str, ...],
    budget: str | None,
    **given: Any,
) -> int:
    """Attack trained models, and print and draw how they stand it.

    ATTACK is pgd, boundary, pointwise, transfer, distal, ensemble or gradient-checks. Models that the store does not
    have are trained first. What is done is kept shard by shard: the same command again goes on where it was stopped.
    """
    how = options.RunOptions(**{name: given.pop(name) for name in options.RunOptions._fields})
    with plugins_aside():
        what = {name: value for name, value in given.items() if value is not None}
        plan = planned(attack, what, models, dataset, seeds, budget, recipe=recipe, settings=settings, limit=how.limit)
    if how.dry_run:
        return carry_out(ctx, plan, (), how)
    try:
        code = carry_out(ctx, plan, (), how)
    except (OutOfTime, Stopped):
        _show_more(plan, how)
        raise
    _show_more(plan, how)
    return code


def planned(
    attack: str,
    given: Mapping[str, Any],
    models: str,
    datasets: str,
    seeds: str,
    budget: str | None,
    **how: Any,
) -> Plan:
    """Every combination of the attack's options, on every model and dataset; ``how`` as for ``plan.make_plan``.

    Raises:
        SpecError: for any name or option that does not exist.
    """
    plans = []
    if not split_list(datasets):
        raise SpecError("--dataset names no dataset. `jembench list datasets` says what there is.")
    for dataset in split_list(datasets):
        combined = _combinations(attack, given, budget or default_budget(dataset))
        suite = Suite(
            name="robustness",
            title=f"Robustness: {attack}",
            models=tuple(split_list(models)),
            datasets=(dataset,),
            metrics=tuple(_specs(attack, combined)),
            seeds=options.seed_list(seeds),
        )
        plans.append(make_plan(suite, **how))
    return dataclasses.replace(
        plans[0],
        cells=[cell for plan in plans for cell in plan.cells],
        parts=tuple(part for plan in plans for part in plan.parts),
    )


def default_budget(dataset: str) -> str:
    """A look at digits, which are for a CPU; what the paper spends on all else."""
    return "quick" if bare_name(dataset) == "digits" else "paper"


def _combinations(attack: str, given: Mapping[str, Any], budget: str) -> dict[str, list[str]]:
    """The values of each option that was given, with a budget if the attack can be given one.

    A model that is refined is shown beside the same model as it is.

    Raises:
        SpecError: if there is no such attack.
    """
    known = {component.name for component in registry.components("metrics")}
    if bare_name(attack) not in known:
        raise unknown("attack", attack, ATTACKS, "jembench attack --help")
    takes = keyword_parameters(registry.load(registry.find("metrics", attack)))
    everything = ({"budget": budget} if "budget" in takes else {}) | dict(given)
    combined = {
        name: split_list(str(value)) if name in CROSSED else [str(value)] for name, value in sorted(everything.items())
    }
    if "refine" in combined and "refine" in takes and takes["refine"].default == 0:
        combined["refine"] = list(dict.fromkeys(["0", *combined["refine"]]))
    return combined


def _specs(attack: str, combined: Mapping[str, Sequence[str]]) -> list[str]:
    """Every combination; chains and their gradient are options of refined models alone."""
    found = [dict(zip(combined, values, strict=True)) for values in itertools.product(*combined.values())]
    for chosen in found:
        if chosen.get("refine", "0") == "0":
            chosen.pop("grad", None)
            if not {"smooth", "data_noise"} & chosen.keys():
                chosen.pop("eot", None)
    return list(dict.fromkeys(str(Spec(attack, tuple(chosen.items()))) for chosen in found))


def _show_more(plan: Plan, how: options.RunOptions) -> None:
    """Draw the curves and say which claims of the papers hold, of what this plan has measured."""
    if how.format != "table":
        return
    store = Store(how.store)
    cells = show.outcomes(plan, store)
    folder = how.store / "figures"
    pictures = [path for path in draw(cells, store, folder, ["png", "svg"]) if path.suffix == ".png"]
    for path in (path for path in pictures if "-curves-" in path.name):
        click.echo(f"{'curves':>8}  {path}")
    if pictures:
        click.echo(f"{'figures':>8}  {folder}: {len(pictures)} as PNG and SVG, each with its numbers as CSV")
    of_these = [claim for claim in claims.load() if claim.metric and bare_name(claim.metric) in _names(cells)]
    findings = judging.judge(of_these, cells, store.read_arrays)
    measured = [finding for finding in findings if finding.verdict != "not measured"]
    if measured:
        click.echo()
        show.print_findings(claims_table.findings(measured), how.format)


def _names(cells: Sequence[Cell]) -> set[str]:
    return {bare_name(cell.metric) for cell in cells}
