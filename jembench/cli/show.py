"""The output of a run: tables, paths of files, and next commands."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from jembench.api.check import Check
from jembench.api.results import Results
from jembench.cli import options
from jembench.cli.output import emit, say
from jembench.experiment.plan import FitPlan, Plan
from jembench.experiment.twins import differences
from jembench.report.formats import TERMINAL
from jembench.report.select import outcomes
from jembench.store.outcome import Cell
from jembench.store.pictures import SAMPLES
from jembench.store.store import Store


def results(ctx: click.Context, plan: Plan, store: Store, results: Results, format: str) -> int:
    """Print the tables of a plan, and the paths of its files.

    Returns:
        the exit code.
    """
    click.echo(results.table(format), nl=False)
    if format == TERMINAL:
        sampled = [fit for fit in plan.fits if (store.fit_folder(fit.key) / SAMPLES).exists()]
        click.echo()
        if sampled:
            files = str(store.fit_folder(sampled[0].key) / SAMPLES)
            if len(sampled) > 1:
                files += f" and {len(sampled) - 1} more"
            say(f" samples  {files}")
        say(f" results  {store.root / 'cells'}: {outcomes(len(results.cells))} with provenance")
        for name, command in _following(ctx, plan, sampled, results):
            say(f"{name:>8}  {shlex.join(['jembench', *command])}")
    return exit_code(ctx, results.cells)


def check(checked: Check, format: str, output: Path | None = None, *, force: bool = False) -> int:
    """Print a check, or write it to a file, and return its exit code."""
    emit(checked.table(format), output, force=force)
    # a log has the summary even if stdout is redirected
    say(f"\n{checked.summary}", err=output is not None or format != TERMINAL)
    return checked.exit_code


def exit_code(ctx: click.Context, cells: Iterable[Cell]) -> int:
    """Return 1 if a cell failed, else 0.

    With ``--debug`` the tracebacks are printed, each once.
    """
    failed = [cell for cell in cells if cell.outcome.status == "failed"]
    if ctx.obj.debug:
        for traceback in dict.fromkeys(cell.outcome.traceback for cell in failed):
            say(traceback, err=True)
    return int(bool(failed))


def twins(fits: Sequence[FitPlan], store: Store) -> None:
    """Print how fits differ from stored models of the same names.

    This is called before training.
    """
    for line in differences(fits, store):
        say(line, err=True)


def _following(
    ctx: click.Context, plan: Plan, sampled: Sequence[FitPlan], results: Results
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the next commands, with all their options."""
    again = ctx.obj.arguments
    failed = sum(cell.outcome.status == "failed" for cell in results.cells)
    if failed:
        say(
            f"  failed  {failed} of {outcomes(len(results.cells))}; this tries them again and "
            "shows tracebacks:"
        )
        yield "", ["--debug", *again]
        return
    if results.stopped:
        yield "next", again
        return
    # more seeds, if there is only one, which the user has not chosen
    seeds = {fit.seed for fit in plan.fits}
    is_trained = not all(fit.is_pretrained for fit in plan.fits)
    if len(seeds) == 1 and is_trained and not _given(ctx, "seeds"):
        (seed,) = seeds
        yield "next", [*again, "--seeds", f"{seed},{seed + 1},{seed + 2}"]
    if sampled:
        yield "next", _sample_command(ctx, sampled[0])
    # tables for a paper
    report = ["report"]
    if not ctx.params.get("metrics"):
        report.append(ctx.params.get("suite", plan.suite.name))
    report += [*named(ctx, plan), *_given(ctx, "limit", "split", "store"), *plugins(ctx)]
    yield "next", [*report, "--format", "markdown"]


def _sample_command(ctx: click.Context, fit: FitPlan) -> list[str]:
    """Return the command that draws images of a fit."""
    words = ["sample", fit.asked, "--dataset", fit.dataset.text(), "--seed", str(fit.seed)]
    if not fit.imported:
        for change in fit.recipe.overrides:
            words += ["--set", change]
    return [*words, *_given(ctx, "recipe", "device", "store"), *plugins(ctx)]


def _given(ctx: click.Context, *names: str) -> list[str]:
    """Return options of the command or of the experiment's file as words.

    Options from the environment are left out.
    """
    sources = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    words = []
    for name in names:
        if ctx.get_parameter_source(name) in sources:
            words += [f"--{name}", str(ctx.params[name])]
    return words


def named(ctx: click.Context, plan: Plan) -> list[str]:
    """Return the options ``--name`` and ``--heading`` of a plan's command.

    Options from the environment are included.
    """
    words: list[str] = []
    for text, name in ctx.params.get("names", {}).items():
        if text in plan.names.headings:
            words += ["--heading", f"{text}={name}"]
        else:
            words += ["--name", f"{name}={text}"]
    return words


def plugins(ctx: click.Context) -> list[str]:
    """Return the options ``--plugin`` of a command."""
    words = []
    for path in ctx.meta.get(options.PLUGINS, ()):
        words += ["--plugin", str(path)]
    return words
