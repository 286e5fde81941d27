"""Showing results: what ``run`` and ``report`` print."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from jembench.api.results import Results
from jembench.cli import options
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.twins import differences
from jembench.report.formats import TERMINAL
from jembench.report.references import PublishedTable
from jembench.report.selection import outcomes
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.running.session import Finished, RunOptions

PICTURES = 3
"""Up to this number, pictures are listed one by one."""


# --- results ----------------------------------------------------------------------------------------------------------


def results(
    ctx: click.Context,
    plan: Plan,
    store: Store,
    published: Sequence[PublishedTable],
    format: str,
    done: Finished,
) -> int:
    """Print the tables of a plan's cells, and where everything lies.

    Returns:
        the exit code.
    """
    click.echo(Results.of_plan(plan, done.cells, published, store).table(format), nl=False)
    if format == TERMINAL:
        click.echo()
        for name, text in _whereabouts(ctx, plan, store, done):
            click.echo(f"{name:>8}  {text}")
    return exit_code(ctx, done.cells)


def exit_code(ctx: click.Context, cells: Iterable[Cell]) -> int:
    """1 if a cell failed, else 0. With ``--debug`` the tracebacks are printed, each once."""
    failed = [cell for cell in cells if cell.outcome.status == "failed"]
    if ctx.obj.debug:
        for traceback in dict.fromkeys(cell.outcome.traceback for cell in failed):
            click.echo(traceback, err=True)
    return int(bool(failed))


def _whereabouts(ctx: click.Context, plan: Plan, store: Store, done: Finished) -> list[tuple[str, str]]:
    drawn = [fit for fit in plan.fits if (store.fit_folder(fit.key) / "samples.png").exists()]
    pictures = [str(store.fit_folder(fit.key) / "samples.png") for fit in drawn]
    if len(pictures) > PICTURES:
        pictures = [f"{store.root / 'fits'}: samples.png of {len(pictures)} trained models"]
    lines = [("samples", picture) for picture in pictures]
    lines.append(("results", f"{store.root / 'cells'}: {outcomes(len(done.cells))} with provenance"))
    if failures := [cell for cell in done.cells if cell.outcome.status == "failed"]:
        count = f"{len(failures)} of {outcomes(len(done.cells))}"
        lines.append(("failed", f"{count}; this tries them again and shows tracebacks:"))
        lines.append(("", again(ctx, debug=True)))
    elif done.stopped:  # the next command is the same
        lines.append(("next", again(ctx)))
    else:
        seeds = {fit.seed for fit in plan.fits}
        three = ",".join(str(min(seeds) + number) for number in range(3))
        following = [again(ctx, seeds=three)] if len(seeds) == 1 else []
        following += [_sample(ctx, fit) for fit in drawn[:1]]
        following.append(_report(ctx, plan))
        lines += [("next", command) for command in following]
    return lines


def twins(fits: Sequence[FitPlan], store: Store, how: RunOptions) -> None:
    """Say before training which models of the store have the same names as the fits, and how they differ."""
    from jembench.running import session

    session.check(fits, how)
    if not how.place.rank:
        for line in differences(fits, store):
            click.echo(line, err=True)


# --- the next commands, complete enough to be pasted ------------------------------------------------------------------


def again(ctx: click.Context, *, debug: bool = False, **changes: Any) -> str:
    """The command of ``ctx`` as it was given, with some options changed."""
    arguments = [ctx.params[p.name or ""] for p in ctx.command.params if isinstance(p, click.Argument)]
    kept = [name for name in ctx.params if name not in ("format", "dry_run")]
    words = [ctx.info_name, *(str(value) for value in arguments if value is not None), *_given(ctx, kept, changes)]
    return _line("--debug" if debug else "", *words, *plugins(ctx))


def _sample(ctx: click.Context, fit: FitPlan) -> str:
    """Samples of one of the fits that a run has trained: fresh ones, if it has chains."""
    key = fit.key
    dataset = [] if key.dataset == "digits" else ["--dataset", fit.dataset.bound.in_full]
    seed = ["--seed", str(key.seed)] if key.seed else []
    settings = [*fit.recipe.overrides, *([f"processes={fit.recipe.processes}"] if fit.recipe.processes > 1 else [])]
    overrides = [word for setting in settings for word in ("--set", setting)]
    shared = _given(ctx, ["recipe", "device", "store"], of_file=True)
    steps = ["--steps", "100"] if fit.sampler and not fit.model.is_pretrained else []
    return _line("", "sample", key.model, *dataset, *seed, *overrides, *shared, *steps, *plugins(ctx))


def _report(ctx: click.Context, plan: Plan) -> str:
    """The results of a run, for a page of text."""
    # metrics that are not the suite's are shown only where the whole store is
    chosen = [] if ctx.params.get("metrics") else [ctx.params.get("suite", plan.suite.name)]
    asked = ctx.params.get("settings") and set.intersection(*(set(fit.recipe.overrides) for fit in plan.fits))
    changes = [word for change in sorted(asked or ()) for word in ("--set", change)]
    shared = _given(ctx, ["limit", "store"])
    return _line("", "report", *chosen, *changes, *shared, "--format", "markdown", *plugins(ctx))


def plugins(ctx: click.Context) -> list[str]:
    """The options ``--plugin`` of a command."""
    return [word for path in ctx.meta.get(options.PLUGINS, ()) for word in ("--plugin", str(path))]


def _line(root_option: str, *words: str | None) -> str:
    return shlex.join(filter(None, ["jembench", root_option, *words]))


def _given(
    ctx: click.Context, names: list[str], changes: dict[str, Any] | None = None, *, of_file: bool = False
) -> list[str]:
    """The options of those names that stood on the command line (what the environment says, it goes on saying).

    Those ``of_file`` are for a command that does not name the file of the experiment.
    """
    sources = (ParameterSource.COMMANDLINE, *([ParameterSource.DEFAULT_MAP] if of_file else []))
    given = [name for name in names if ctx.get_parameter_source(name) in sources]
    values = {name: ctx.params[name] for name in given} | (changes or {})
    words: list[str] = []
    for parameter in ctx.command.params:
        if isinstance(parameter, click.Option) and parameter.name in values:
            value = values[parameter.name]
            for item in value if parameter.multiple else [value]:
                words += [parameter.opts[0], ",".join(map(str, item)) if isinstance(item, list | tuple) else str(item)]
    return words
