"""Commands that a user may want next, complete enough to be pasted."""

from __future__ import annotations

import shlex
from typing import Any

import click
from click.core import ParameterSource

from jembench.cli import options
from jembench.experiment.plan import FitPlan


def again(ctx: click.Context, *, debug: bool = False, **changes: Any) -> str:
    """The command of ``ctx`` as it was given, with some options changed."""
    kept = [name for name in ctx.params if name not in ("format", "dry_run")]
    return _line(
        "--debug" if debug else "", ctx.info_name, *_positional(ctx), *_given(ctx, kept, changes), *plugins(ctx)
    )


def sample(ctx: click.Context, fit: FitPlan) -> str:
    """Samples of one of the fits that a run has trained: fresh ones, if it has chains."""
    key = fit.key
    dataset = [] if key.dataset == "digits" else ["--dataset", fit.dataset.bound.in_full]
    seed = ["--seed", str(key.seed)] if key.seed else []
    overrides = [word for override in fit.recipe.overrides for word in ("--set", override)]
    shared = _given(ctx, ["recipe", "device", "store"])
    steps = ["--steps", "100"] if fit.sampler and not fit.model.is_pretrained else []
    return _line("", "sample", key.model, *dataset, *seed, *overrides, *shared, *steps, *plugins(ctx))


def report(ctx: click.Context, suite: str) -> str:
    """The results of a run, for a page of text."""
    # metrics that are not the suite's are shown only where the whole store is
    chosen = [] if ctx.params.get("metrics") else [suite]
    return _line("", "report", *chosen, *_given(ctx, ["limit", "store"]), "--format", "markdown", *plugins(ctx))


def plugins(ctx: click.Context) -> list[str]:
    """The options ``--plugin`` of a command."""
    return [word for path in ctx.meta.get(options.PLUGINS, ()) for word in ("--plugin", str(path))]


def _line(root_option: str, *words: str | None) -> str:
    return shlex.join(filter(None, ["jembench", root_option, *words]))


def _positional(ctx: click.Context) -> list[str]:
    names = [parameter.name for parameter in ctx.command.params if isinstance(parameter, click.Argument)]
    return [str(value) for name in names if (value := ctx.params[name or ""]) is not None]


def _given(ctx: click.Context, names: list[str], changes: dict[str, Any] | None = None) -> list[str]:
    """The options of those names that stood on the command line (what the environment says, it goes on saying)."""
    values = {name: ctx.params[name] for name in names if _on_command_line(ctx, name)} | (changes or {})
    words: list[str] = []
    for parameter in ctx.command.params:
        if isinstance(parameter, click.Option) and parameter.name in values:
            value = values[parameter.name]
            for item in value if parameter.multiple else [value]:
                words += [parameter.opts[0], str(item)]
    return words


def _on_command_line(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
