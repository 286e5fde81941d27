"""The options that several commands share, each defined once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from jembench.catalog import plugin_files
from jembench.catalog.spec import split_list
from jembench.cli import completion
from jembench.cli.output import plugins_aside
from jembench.errors import SpecError

Command = TypeVar("Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)


def shared(flag: str, help: str, *name: str, **given: Any) -> Callable[[Command], Command]:
    """An option with an environment variable for all commands: ``JEMBENCH_STORE`` for ``--store``.

    Its parameter may have another name than the flag.
    """
    return click.option(flag, *name, envvar=f"JEMBENCH_{flag.removeprefix('--').upper()}", help=help, **given)


store = shared("--store", "Folder of trained models and results.", type=PATH, default="runs")
dataset = shared(
    "--dataset",
    "Dataset; `jembench list datasets` lists them.",
    metavar="SPEC",
    type=completion.DATASET,
    default="digits",
)
recipe = shared(
    "--recipe",
    "Training recipe: a TOML file, or a name of `jembench list recipes`. By default the one for the dataset.",
    metavar="NAME",
    type=completion.RECIPE,
)
device = shared(
    "--device",
    "Device: cpu, cuda, cuda:1 ...; auto selects the first GPU, or the CPU if there is none.",
    metavar="DEVICE",
    default="auto",
)
devices = shared(
    "--devices",
    "Train each model on N GPUs, or in N processes on the CPU. Under torchrun or srun, use all their processes.",
    type=COUNT,
    metavar="N",
)


DIGITS = 18
"""The most digits of a seed: PyTorch's seeds have 64 bits."""


class _Hours(click.FloatRange):
    """A number above 0; unlike click's own range, not infinite and not "nan"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        hours: float = super().convert(value, param, ctx)
        if not math.isfinite(hours):
            self.fail(f"{value} is not a number of hours.", param, ctx)
        return hours


max_hours = click.option(
    "--max-hours",
    type=_Hours(min=0, min_open=True),
    metavar="H",
    help="Stop training, or an attack, cleanly after H hours (exit code 3). The same command resumes it.",
)

seed = click.option("--seed", type=click.IntRange(min=0), metavar="N", default=0, help="Random seed.")


def _known_format(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from jembench.catalog import registry

    registry.resolve("formats", value)  # before anything is computed
    return value


report_format = click.option(
    "--format",
    metavar="FORMAT",
    default="table",
    type=completion.FORMAT,
    callback=_known_format,
    help="Output format: table, json, markdown, latex, csv, or another of `jembench list formats`. Progress is "
    "printed to stderr.",
)

width = click.option(
    "--width",
    metavar="WIDTH",
    help="Width of LaTeX tables and of figures: column or page of a paper in two columns, or a length (5.5in).",
)

output = click.option("--output", type=PATH, metavar="FILE", help="Write to FILE instead of printing.")

reference = click.option(
    "--reference",
    metavar="NAMES",
    help="Published tables to show instead of the suite's own: jem-iclr2020/table1,later-work/hybrid, or none.",
)

listing_format = click.option("--format", type=click.Choice(["table", "json"]), default="table", help="Output format.")

limit = click.option("--limit", type=COUNT, metavar="N", help="Evaluate on only N of the test images.")

force = click.option("--force", is_flag=True, help="Overwrite files that jembench did not write.")


def defaults_of_file(ctx: click.Context, parameter: click.Parameter, suite: str | None) -> str | None:
    """What an experiment's file says of options, where neither the command line nor the environment does."""
    if suite and Path(suite).is_file() and not ctx.resilient_parsing:
        from jembench.experiment import suite_files as suites

        with plugins_aside():
            said = suites.load(suite).run.stated
        ctx.default_map = {name: ",".join(value) if name == "trackers" else value for name, value in said.items()}
    return suite


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    ctx.meta[f"jembench.{parameter.name}"] = value


def _number_of_jobs(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and value != "auto" and not (value.isdecimal() and 0 < int(value[:6]) < 10**5):
        raise click.BadParameter(f"{value!r} is neither a whole number above 0 nor auto.", ctx, parameter)
    _keep(ctx, parameter, value)


def _executor(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """The executor, which ``--jobs`` names too."""
    jobs, per_gpu = ctx.meta["jembench.jobs"], ctx.meta["jembench.jobs_per_gpu"]
    if jobs is None and per_gpu is None:
        return value
    in_file = ctx.get_parameter_source(parameter.name or "") is ParameterSource.DEFAULT_MAP
    if value != "auto" and not in_file:
        raise click.UsageError("--jobs starts workers on this machine, --executor may name others. Leave one out", ctx)
    given = {"jobs": None if jobs in (None, "auto") else jobs, "per_gpu": per_gpu}
    chosen = ",".join(f"{name}={number}" for name, number in given.items() if number is not None)
    ctx.set_parameter_source(parameter.name or "", ParameterSource.COMMANDLINE)  # the next command repeats it
    return f"processes:{chosen}" if chosen else "processes"


jobs = click.option(
    "--jobs",
    "-j",
    metavar="N|auto",
    is_eager=True,
    expose_value=False,
    callback=_number_of_jobs,
    help="Number of worker processes on this machine; auto: one for each GPU, or for each core of the CPU.",
)

jobs_per_gpu = click.option(
    "--jobs-per-gpu",
    type=COUNT,
    metavar="N",
    is_eager=True,
    expose_value=False,
    callback=_keep,
    help="Number of worker processes that share a GPU.",
)

executor = click.option(
    "--executor",
    metavar="SPEC",
    type=completion.EXECUTOR,
    default="auto",
    callback=_executor,
    help="Where the work runs: local (in this process), processes:jobs=4, or an executor of a plugin, such as "
    "slurm:partition=gpu,time=8h. auto: processes for several GPUs, or for several trainings on small images by the "
    "CPU, else local.",
)

detach = click.option(
    "--detach", is_flag=True, help="Go on in the background; `jembench status` shows how far the run is."
)

skip_missing = click.option(
    "--skip-missing",
    is_flag=True,
    help="Start even if weights, other images or an extra are missing. Results that need them are N/A until they are "
    "available.",
)


def _specs(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else split_list(value)


trackers = shared(
    "--trackers",
    "Trackers that get what happens, such as tensorboard, mlflow, wandb or tensorboard:folder=logs.",
    metavar="SPECS",
    callback=_specs,
)

dry_run = click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be done and its cost, and do nothing. The exit code is 2 if the plan needs something that "
    "is missing.",
)


RUN_OPTIONS = (
    *(limit, device, devices, jobs, jobs_per_gpu, executor, detach, max_hours, store, skip_missing, trackers, dry_run),
    report_format,
)


def run_options(command: Command) -> Command:
    """The options for carrying out a plan and showing its results."""
    for option in reversed(RUN_OPTIONS):
        command = option(command)
    return command


PLUGINS = "jembench.plugins"
"""Where a command's context keeps what ``--plugin`` named on the command line."""


def _add_plugins(ctx: click.Context, parameter: click.Parameter, paths: Sequence[Path]) -> None:
    plugin_files.forget()  # of a former command in the same process
    with plugins_aside():
        for path in paths:
            plugin_files.add(path)
    named_here = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ctx.meta[PLUGINS] = paths if named_here else ()


plugin = shared(
    "--plugin",
    "Python file with your own models, metrics or other components, named as FILE:build. May be repeated.",
    type=PATH,
    metavar="FILE.py",
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_add_plugins,
)


def settings(what: str) -> Callable[[Command], Command]:
    """``--set``, which may be repeated."""
    return shared("--set", f"{what} May be repeated.", "settings", metavar="KEY=VALUE", multiple=True)


recipe_settings = settings("Change a field of the recipe: epochs=5, optimizer.learning_rate=1e-3.")


columns = click.option("--columns", metavar="LABELS", help="Columns, in this order: accuracy,fid-inception.")

names = click.option(
    "--name",
    "names",
    metavar="NAME=SPEC",
    envvar="JEMBENCH_NAME",
    multiple=True,
    callback=lambda ctx, parameter, given: {spec: name for name, spec in (pair("--name", text) for text in given)},
    help="Show a model under another name: GAN=generator:module=... May be repeated.",
)

SELECTION = (
    click.option(
        "--models", metavar="SPECS", type=completion.MODELS, help="Models, in this order: jem,baseline:norm=batch."
    ),
    click.option("--dataset", metavar="SPECS", type=completion.DATASETS, help="Datasets, in this order."),
    click.option(
        "--recipe",
        metavar="LABELS",
        help="Recipes as tables name them: digits,digits+epochs=9. all: every one. By default, recipes that --set "
        "changed are left out.",
    ),
    click.option("--set", metavar="KEY=VALUE", multiple=True, help="Recipes that --set changed so."),
    click.option("--seeds", metavar="LIST", help="Seeds: 0,1,2."),
    click.option(
        "--metrics",
        metavar="SPECS",
        type=completion.METRICS,
        help="Metrics, in this order. A bare name covers all its options.",
    ),
    columns,
    names,
    click.option("--limit", type=COUNT, metavar="N", help="Show the results of `run --limit N`."),
)
"""Which results of a store are shown, and how their models are called."""


def selected(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select results of a store. The command gets them as ``chosen``, for the API's functions."""

    @functools.wraps(command)
    def given(*arguments: Any, **values: Any) -> Any:
        plain = ("models", "dataset", "recipe", "metrics", "columns", "names", "limit")
        chosen = {option: values.pop(option) for option in plain}
        chosen["settings"] = dict(pair("--set", setting) for setting in values.pop("set"))
        seeds = values.pop("seeds")
        chosen["seeds"] = None if seeds is None else seed_list(seeds)
        return command(*arguments, chosen=chosen, **values)

    for option in reversed(SELECTION):
        given = option(given)
    return given


def planned_fit(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name one model. The command gets its plan as ``fit``."""

    @functools.wraps(command)
    def planned(*arguments: Any, **given: Any) -> Any:
        from jembench.experiment.plan import plan_fit

        named = [given.pop(name) for name in ("model", "dataset", "recipe", "settings", "seed")]
        with plugins_aside():
            fit = plan_fit(*named)
        return command(*arguments, fit=fit, **given)

    for option in (
        seed,
        recipe_settings,
        recipe,
        dataset,
        click.argument("model", metavar="MODEL", type=completion.MODEL),
    ):
        planned = option(planned)
    return planned


def examples(*commands: str) -> str:
    """An epilogue for a command's help."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


def seed_list(text: str) -> tuple[int, ...]:
    """Seeds separated by commas.

    Raises:
        SpecError: if one is not a whole number from 0 up, of 18 digits at most.
    """
    seeds = [seed.strip() for seed in text.split(",")]
    if not all(seed.isdecimal() and len(seed) <= DIGITS for seed in seeds):
        raise SpecError(
            f"--seeds is {text[:80]!r}; it must be whole numbers with commas between them, for example 0,1,2. Each has "
            f"{DIGITS} digits at most."
        )
    return tuple(int(seed) for seed in seeds)


def pair(option: str, text: str) -> tuple[str, str]:
    """Both sides of the first ``=``.

    Raises:
        SpecError: if one is empty.
    """
    first, _, second = (part.strip() for part in text.partition("="))
    if not first or not second:
        raise SpecError(f"{option} is {text!r}; it must be two parts with = between them.")
    return first, second


def published_tables(names: str | None) -> list[str] | None:
    """The tables that ``--reference`` names; None if it was not given."""
    if names is None:
        return None
    return [] if names == "none" else [name.strip() for name in names.split(",")]
