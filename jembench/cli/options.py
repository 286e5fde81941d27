"""The options that several commands share, each defined once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

import click
from click.core import ParameterSource

from jembench.api.arguments import Loss
from jembench.catalog import plugin_files
from jembench.catalog.spec import Spec, slug
from jembench.catalog.validation import read_text
from jembench.cli import parameters
from jembench.cli.output import plugins_aside
from jembench.store.outcome import Evaluated

if TYPE_CHECKING:
    from jembench.running.driver import RunOptions

Command = TypeVar("Command", bound=Callable[..., Any])


store = click.option(
    "--store",
    type=parameters.PATH,
    envvar="JEMBENCH_STORE",
    default="runs",
    help="Folder of trained models and results.",
)
dataset = click.option(
    "--dataset",
    type=parameters.DATASET,
    envvar="JEMBENCH_DATASET",
    default="digits",
    help="Dataset; `jembench list datasets` lists them.",
)
recipe = click.option(
    "--recipe",
    type=parameters.RECIPE,
    envvar="JEMBENCH_RECIPE",
    help="Training recipe: a TOML file, or a name of `jembench list recipes`. By default the one "
    "for the dataset.",
)
device = click.option(
    "--device",
    metavar="DEVICE",
    envvar="JEMBENCH_DEVICE",
    default="auto",
    help="Device: cpu, cuda, cuda:1 ..., or mps, which is untested; auto selects the first CUDA "
    "device, or the CPU if there is none.",
)
max_hours = click.option(
    "--max-hours",
    type=parameters.HOURS,
    help="Stop training, or an attack, cleanly after H hours (exit code 3). The same command "
    "resumes it.",
)

seed = click.option("--seed", type=parameters.SEED, default=0, help="Random seed.")


report_format = click.option(
    "--format",
    type=parameters.FORMAT,
    default="table",
    help="Output format: table, json, markdown, latex, csv, or another of `jembench list "
    "formats`. Progress is printed to stderr.",
)

output = click.option(
    "--output", type=parameters.PATH, metavar="FILE", help="Write to FILE instead of printing."
)

label = click.option(
    "--label", metavar="LABEL", help="Label of a LaTeX table. By default from the name of its file."
)


def labelled(format: str, label: str | None, output: Path | None = None) -> str:
    """Return the spec of a format, for LaTeX with a label.

    The label is ``--label``, the format's own, or the file's name.

    Raises:
        UsageError: if ``label`` is given for another format.
    """
    spec = Spec(format)
    if spec.name != "latex":
        if label:
            raise click.UsageError("--label is for LaTeX. Add --format latex, or leave it out.")
        return spec
    default = slug(output.stem) if output else ""
    label = label or spec.options.get("label", default)
    return spec.with_(label=label) if label else spec


reference = click.option(
    "--reference",
    type=parameters.TABLES,
    help="Published tables to show instead of the suite's own: "
    "jem-iclr2020/table1,later-work/hybrid, or none.",
)

listing_format = click.option(
    "--format", type=click.Choice(["table", "json"]), default="table", help="Output format."
)

_SAMPLER = (
    "Draw the samples of every model with a differentiable energy by this sampler, such as "
    "sgld:steps=100."
)
sampler = click.option("--sampler", type=parameters.Text("SPEC", "samplers"), help=_SAMPLER)

limit = click.option(
    "--limit", type=parameters.COUNT, help="Evaluate on only N of the test images."
)

_SPLIT = click.Choice(get_args(Evaluated))
split = click.option(
    "--split",
    type=_SPLIT,
    default="test",
    help="Evaluate on the test images, or on the validation images that the recipe holds out.",
)
shown_split = click.option(
    "--split", type=_SPLIT, default="test", help="Show the results of `run --split SPLIT`."
)

force = click.option("--force", is_flag=True, help="Replace files that exist.")


def defaults_of_file(
    ctx: click.Context, parameter: click.Parameter, suite: str | None
) -> str | None:
    """Use the options in an experiment's file as defaults."""
    if suite and Path(suite).is_file() and not ctx.resilient_parsing:
        from jembench.experiment import suite as suites

        with plugins_aside():
            ctx.default_map = suites.load(suite).execution.stated
    return suite


jobs = click.option(
    "--jobs",
    "-j",
    type=parameters.JOBS,
    help="Number of worker processes on this machine; auto: one for each GPU, or for each core of "
    "the CPU.",
)

executor = click.option(
    "--executor",
    type=parameters.EXECUTOR,
    default="auto",
    help="Where the work runs: local (in this process), processes:jobs=4, or an executor of a "
    "plugin, such as slurm:partition=gpu,time=8h. auto: processes for several GPUs, or for "
    "several trainings on the CPU, else local.",
)

detach = click.option(
    "--detach",
    is_flag=True,
    help="Go on in the background; `jembench status` shows how far the run is.",
)

skip_missing = click.option(
    "--skip-missing",
    is_flag=True,
    help="Start even if weights, other images or an extra are missing. Results that need them are "
    "N/A until they are available.",
)


trackers = click.option(
    "--trackers",
    type=parameters.TRACKERS,
    envvar="JEMBENCH_TRACKERS",
    help="Trackers of the events of a run, such as tensorboard, mlflow, wandb or "
    "tensorboard:folder=logs.",
)

dry_run = click.option(
    "--dry-run",
    is_flag=True,
    help="Print the plan and its cost, and run nothing. The exit code is 2 if the plan needs "
    "something that is missing.",
)


def grouped(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class RunCommand(NamedTuple):
    """The arguments of a command that carries out a plan."""

    how: RunOptions
    store: Path
    format: str
    dry_run: bool = False
    detach: bool = False


def run_command(given: dict[str, Any]) -> RunCommand:
    """Remove and return the execution options among a command's options.

    Raises:
        UsageError: if both ``--executor`` and ``--jobs`` are given.
    """
    from jembench.running.driver import RunOptions

    executor, jobs = given.pop("executor"), given.pop("jobs")
    if jobs is not None:
        ctx = click.get_current_context()
        source = ctx.get_parameter_source("executor")
        if executor != "auto" and source is not ParameterSource.DEFAULT_MAP:
            raise click.UsageError(
                "--jobs starts workers on this machine, --executor may name others. Leave one out",
                ctx,
            )
        executor = "processes"
        if jobs != "auto":
            executor = f"processes:jobs={jobs}"
    how = RunOptions(executor=executor, **_taken(given, RunOptions._fields))
    return RunCommand(how, **_taken(given, RunCommand._fields))


def _taken(given: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Remove and return the named options of a command."""
    return {name: given.pop(name) for name in names if name in given}


_workers = (device, jobs, executor)

running = grouped(
    *_workers, detach, max_hours, store, skip_missing, trackers, dry_run, report_format
)
"""The options of the execution of a plan."""

workers = grouped(*_workers, max_hours, skip_missing)
"""The options of measuring without a plan to print."""

measuring = grouped(
    click.option(
        "--store",
        type=parameters.PATH,
        metavar="NEW",
        default="reproduced",
        help="Folder of the new results.",
    ),
    *(workers, dry_run, report_format),
)
"""The options of measuring results again, in a new store."""


PLUGINS = "jembench.plugins"
"""The key of ``--plugin`` files in a command's context."""


def _add_plugins(ctx: click.Context, parameter: click.Parameter, paths: Sequence[Path]) -> None:
    plugin_files.forget()  # those of an earlier command in this process
    if ctx.resilient_parsing:  # the Tab key runs no code
        return
    with plugins_aside():
        for path in paths:
            plugin_files.add(path)
    if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        ctx.meta[PLUGINS] = paths


plugin = click.option(
    "--plugin",
    type=parameters.PATH,
    metavar="FILE.py",
    envvar="JEMBENCH_PLUGIN",
    multiple=True,
    help="Python file with your own models, metrics or other components, named as FILE:build. May "
    "be repeated.",
    is_eager=True,
    expose_value=False,
    callback=_add_plugins,
)


recipe_settings = click.option(
    "--set",
    "settings",
    type=parameters.SETTING,
    envvar="JEMBENCH_SET",
    multiple=True,
    help="Change a field of the recipe (epochs=5, optimizer.learning_rate=1e-3) or, in a command "
    "that computes metrics, an option of one (ece.bins=15). May be repeated.",
)

columns = click.option(
    "--columns", metavar="LABELS", help="Columns, in this order: accuracy,fid-inception."
)


def _names(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Return display names by the specs of models, and headings by metrics."""
    names = {}
    for text in given:
        name, spec = parameters.pair("--name", text)
        names[spec] = name
    for text in ctx.params.pop("heading"):
        metric, heading = parameters.pair("--heading", text, last=True)
        names[metric] = heading
    return names


names = grouped(
    click.option(
        "--name",
        "names",
        metavar="NAME=SPEC",
        envvar="JEMBENCH_NAME",
        multiple=True,
        callback=_names,
        help="Name of a model in tables, figures and logs: GAN=gan:build. May be repeated.",
    ),
    click.option(  # read by the callback of --name
        "--heading",
        metavar="METRIC=TEXT",
        multiple=True,
        is_eager=True,
        help="Heading of a column: ece=Error.",
    ),
)

selected = grouped(
    click.argument(
        "suite",
        metavar="[SUITE|FILE]",
        type=parameters.SUITE,
        required=False,
        callback=defaults_of_file,
    ),
    click.option(
        "--models", type=parameters.MODELS, help="Models, in this order: jem,baseline:norm=batch."
    ),
    click.option("--dataset", type=parameters.DATASETS, help="Datasets, in this order."),
    click.option(
        "--recipe", metavar="LABELS", help="Recipes as tables name them: digits,digits+epochs=*."
    ),
    click.option("--seeds", type=parameters.SEEDS, help="Seeds: 0,1,2."),
    click.option(
        "--metrics",
        type=parameters.METRICS,
        help="Metrics, in this order. A bare name covers all its options.",
    ),
    columns,
    names,
    click.option("--limit", type=parameters.COUNT, help="Show the results of `run --limit N`."),
    shown_split,
)
"""The arguments of :func:`jembench.api.arguments.selection`: which results, under which names."""


def _losses(text: str) -> dict[str, Any]:
    """Return losses by columns.

    Raises:
        SpecError: if a part is not a name and a number from 0 on.
    """
    losses = {}
    for part in text.split(","):
        column, number = parameters.pair("--tolerance", part, last=True)
        losses[column] = read_text(number, Loss, f"--tolerance {column}")
    return losses


tolerance = click.option(
    "--tolerance",
    type=parameters.Text("LOSSES", read=_losses),
    help="Largest losses that pass, in the units of tables: accuracy=1,fid=0.5. By default every "
    "loss that is significant fails.",
)

strict = click.option(
    "--strict",
    is_flag=True,
    help="Fail also where a loss above the tolerance is not excluded, or a claim is undecided.",
)

model = click.argument("model", metavar="MODEL", type=parameters.MODEL)

training = grouped(model, dataset, recipe, recipe_settings, seed)
"""The argument MODEL, which may be the name of an imported fit, and the dataset, recipe and seed.
"""


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n  ".join(["\b\nExamples:", *commands])
