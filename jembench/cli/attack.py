"""``jembench attack``: attack trained models."""

from typing import Any

import click

from jembench.api.runs import plan_run
from jembench.cli import options
from jembench.cli.output import plugins_aside
from jembench.cli.parameters import ATTACK, COUNT, DATASETS, LIST, MODELS, SEEDS
from jembench.cli.run import run_and_show
from jembench.experiment.attacks import attack_suite
from jembench.metrics.attacks import BUDGETS
from jembench.store.store import Store

EXAMPLES = options.examples(
    "jembench attack pgd --norm l2 --refine 10",
    "jembench attack pgd --norm linf,l2 --refine 0,1,10 --models jem --dry-run",
    "jembench attack pgd --eps 2/255,8/255 --models jem,baseline --budget paper",
    "jembench attack boundary --query-limit 5000",
    "jembench attack transfer --refine 1,10 --models jem",
)


@click.command("attack", epilog=EXAMPLES)
@click.argument("attack", metavar="ATTACK", type=ATTACK)
@click.option("--models", type=MODELS, default="jem,baseline", help="Models to attack.")
@click.option("--norm", type=LIST, help="Norm of the perturbation: linf, l2 or both.")
@click.option(
    "--eps",
    type=LIST,
    help="Sizes of the perturbation, relative to the pixel range: 2/255,8/255. By default the "
    "smallest one is searched for each image.",
)
@click.option(
    "--refine",
    type=LIST,
    help="Steps of the model's own chain before it classifies (JEM-k): 0,1,10.",
)
@click.option(
    "--eot",
    type=LIST,
    help="Chains over which the logits are averaged: 5, or a sweep such as 1,5,10.",
)
@click.option(
    "--grad",
    type=click.Choice(["through", "bpda"]),
    help="Gradients of the refinement chain: through it (second order), or those of the identity "
    "(bpda).",
)
@click.option(
    "--data-noise",
    type=click.FloatRange(min=0),
    metavar="STD",
    help="Standard deviation of the Gaussian noise added to each image before its chain, for "
    "pixels in [-1, 1]. The reference code uses 0.03.",
)
@click.option(
    "--smooth",
    type=LIST,
    help="Standard deviations of the noise of randomised smoothing, for pixels in [0, 1]: 0,0.25.",
)
@click.option(
    "--budget",
    type=click.Choice(list(BUDGETS)),
    help="Budget of the attack. By default quick on digits, else paper. The options below "
    "override parts of it.",
)
@click.option("--images", type=COUNT, help="Number of images to attack.")
@click.option("--restarts", type=COUNT, metavar="R", help="Restarts of PGD per image.")
@click.option("--steps", type=COUNT, metavar="S", help="Steps per restart.")
@click.option(
    "--query-limit",
    "queries",
    type=COUNT,
    metavar="Q",
    help="Queries per image of boundary and pointwise.",
)
@click.option(
    "--dataset",
    type=DATASETS,
    envvar="JEMBENCH_DATASET",
    default="digits",
    help="Datasets of the models.",
)
@click.option("--seeds", type=SEEDS, default="0", help="Seeds of the models: 0,1,2.")
@options.recipe
@options.recipe_settings
@options.names
@options.limit
@options.split
@options.running
@click.pass_context
def attack(ctx: click.Context, /, attack: str, dataset: list[str], **given: Any) -> int:
    """Attack trained models, and print how robust they are.

    ATTACK is pgd, boundary, pointwise, transfer, distal, or an attack of a plugin. Models that the
    store does not have are trained first. Results are saved shard by shard: the same command
    resumes a stopped attack. `jembench figures` draws the curves.
    """
    command = options.run_command(given)
    of_plan = ("models", "seeds", "recipe", "settings", "names", "limit", "split")
    how = {key: given.pop(key) for key in of_plan}
    with plugins_aside():
        plan = plan_run(attack_suite(attack, given, dataset), Store(command.store), **how)
    return run_and_show(ctx, plan, (), command)
