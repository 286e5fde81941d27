"""Reports and figures that an experiment's file requests after a run: ``[[report]]`` and
``[[figures]]``.
"""

from collections.abc import Mapping
from pathlib import Path

import click

from jembench.catalog import registry
from jembench.cli import show
from jembench.cli.figures import figures
from jembench.cli.report import report
from jembench.errors import SpecError, unknown
from jembench.experiment.plan import Plan
from jembench.experiment.suite import BELOW, Shown

COMMANDS: Mapping[str, click.Command] = {"report": report, "figures": figures}


def contexts(ctx: click.Context, plan: Plan, file: str, store: Path) -> list[click.Context]:
    """Return the commands that a file requests, parsed for the results of its plan, before the
    work.

    Raises:
        SpecError: if a key is no option, or the output is not below the current folder.
        UsageError: for a value that the option cannot have.
    """
    fits, limit = [fit.key for fit in plan.fits], plan.cells[0].limit
    of_plan: Shown = {
        "store": str(store),
        "models": tuple(dict.fromkeys(fit.model for fit in fits)),
        "dataset": tuple(dict.fromkeys(fit.dataset for fit in fits)),
        "recipe": tuple(dict.fromkeys(fit.recipe for fit in fits)),
        "seeds": tuple(dict.fromkeys(str(fit.seed) for fit in fits)),
        **({"limit": str(limit)} if limit else {}),
    }
    found = []
    for name, tables in (("report", plan.suite.report), ("figures", plan.suite.figures)):
        for number, table in enumerate(tables):
            if other := table.keys() - _options(name).keys():
                where = f"key in {name}[{number}] of {file}"
                raise unknown(where, min(other), _options(name), f"jembench {name} --help")
            _check_place(table, f"{name}[{number}] of {file}")
            # those of papers are judged by all that the store holds
            if "claims" in table and not plan.suite.claims:
                words = _words(name, {"store": of_plan["store"], **table})
            else:
                # of all that is shown
                names = [] if {"models", "metrics"} & table.keys() else show.named(ctx, plan)
                words = [file, *names, *_words(name, {**of_plan, **table})]
            found.append(COMMANDS[name].make_context(name, words, parent=ctx.parent))
    return found


def _check_place(table: Shown, where: str) -> None:
    """Check that a file replaces no file, reads no other store, and writes below the current
    folder.

    Raises:
        SpecError: if it does not.
    """
    for key in ("force", "store"):
        if key in table:
            raise SpecError(
                f"{where} has {key}, which a file may not set. Leave it out, or use the command "
                "itself."
            )
    output = str(table.get("output", "."))
    here = Path.cwd().resolve()
    if not BELOW.holds(output) or not Path(output).resolve().is_relative_to(here):
        raise SpecError(
            f"The output of {where} is {output!r}; it must be {BELOW.wanted}, also where links "
            "lead. Use the command itself to write elsewhere."
        )
    if "format" in table:
        registry.check_of_file("formats", str(table["format"]), where)


def _options(name: str) -> dict[str, click.Option]:
    """Return the options of a command, by their keys in a file: ``per_seed`` for ``--per-seed``."""
    found = (
        option
        for option in COMMANDS[name].params
        if isinstance(option, click.Option) and option.expose_value
    )
    return {option.opts[0].removeprefix("--").replace("-", "_"): option for option in found}


def _words(name: str, table: Shown) -> list[str]:
    words: list[str] = []
    for key, values in table.items():
        option = _options(name)[key]
        if option.is_flag:
            words += [option.opts[0]] * (values == "true")
        else:
            several = (values,) if isinstance(values, str) else values
            for value in several if option.multiple else [",".join(several)]:
                words += [option.opts[0], value]
    return words
