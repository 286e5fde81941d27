"""The entry point: the commands, and the report of errors."""

from __future__ import annotations

import io
import os
import pkgutil
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from jembench import __version__
from jembench.catalog import trust
from jembench.errors import JembenchError, OutOfTime, Remark, error_text, printable, unknown
from jembench.stopping import Stopped, listening


class LazyCommand(NamedTuple):
    """A command that is not imported yet, and its line in ``--help``."""

    target: str  # module:attribute
    help: str


class LazyGroup(click.Group):
    """A group that imports only the command that runs; ``--help`` imports none."""

    def __init__(self, *args: Any, late: Mapping[str, LazyCommand | LazyGroup], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.late = late

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of commands in their order."""
        return list(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        found = self.late.get(cmd_name)
        if not isinstance(found, LazyCommand):
            return found
        command: click.Command = pkgutil.resolve_name(found.target)
        if not any(known.name == "plugin" for known in command.params):
            from jembench.cli import options  # imports what --help need not wait for

            options.plugin(command)  # every command accepts a plugin file
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help or "") for name, command in self.late.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options. Without a command the help is printed."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of ``args``, and allow the code that its options name.

        Raises:
            SpecError: if there is no such command; the message has the nearest names.
        """
        if args[0] not in self.late and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown("command", args[0], self.late, f"{ctx.command_path} --help")
        found = super().resolve_command(ctx, args)
        trust.name(_specs(ctx, *found))
        return found


def _specs(ctx: click.Context, name: str | None, command: click.Command | None, args: list[str]) -> Iterator[str]:
    """Return the texts that the user gave for options of specs, before a callback reads a file that may name code."""
    if command is None or isinstance(command, click.Group):
        return
    with click.Context(command, parent=ctx, info_name=name) as inner, suppress(click.UsageError):
        given, _, _ = command.make_parser(inner).parse_args(list(args))
        for parameter in command.params:
            if getattr(parameter.type, "specs", False):
                value, source = parameter.consume_value(inner, given)
                if source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
                    yield from [value] if isinstance(value, str) else value


def _command(target: str, help: str) -> LazyCommand:
    return LazyCommand(f"jembench.cli.{target}", help)


COMMANDS: dict[str, LazyCommand | LazyGroup] = {
    "run": _command("run:run", "Train and evaluate models of a suite or file; print the table."),
    "init": _command("init:init", "Write an experiment's file on the basis of SUITE."),
    "reproduce": _command("reproduce:reproduce", "Measure the results of a store again and compare them."),
    "attack": _command("attack:attack", "Attack trained models, and print how robust they are."),
    "status": _command("status:status", "Show which work runs where, since when and how far it is."),
    "work": _command("work:work", "Carry out units of work of a run."),
    "train": _command("train:train", "Train one model and print its folder."),
    "estimate": _command("train:estimate", "Estimate the time and memory that a training takes."),
    "import": _command("import_:import_", "Import weights that were trained elsewhere into the store."),
    "sample": _command("sample:sample", "Draw images from a trained model as a PNG: one row per class."),
    "report": _command("report:report", "Print the results of a store, or write them to a file."),
    "view": _command("view:view", "Show a store in a browser."),
    "compare": _command("report:compare", "Compare two models of a store, image by image and seed by seed."),
    "figures": _command("figures:figures", "Draw the results of a store, each figure with its numbers as CSV."),
    "list": _command("list_:list_", "List what is installed, and whether it works."),
    "plugin": LazyGroup(
        "plugin",
        help="Check and create plugins.",
        late={
            "check": _command("plugin:check", "Run the conformance checks of components."),
            "new": _command("plugin:new", "Write a new plugin distribution: model, sampler, metric, dataset ..."),
        },
    ),
    "store": LazyGroup(
        "store",
        help="List, check, merge and clean stores.",
        late={
            "list": _command("store:list_", "List the trained models of a store and their sizes."),
            "verify": _command("store:verify", "Read every file of a store and check its digest."),
            "merge": _command("store:merge", "Copy what a store lacks from other stores."),
            "gc": _command("store:gc", "List or remove the files that nothing needs any more."),
        },
    ),
    "push": _command("store:push", "Share a trained model: weights, chains, recipe, results and a model card."),
    "fetch": _command(
        "store:fetch", "Copy a shared model into a store, where it counts as if it had been trained there."
    ),
    "doctor": _command(
        "doctor:doctor",
        "Report the versions, the devices and the store of a machine.",
    ),
}


@dataclass
class Settings:
    """The options of ``jembench`` itself."""

    arguments: Sequence[str] = ()  # the whole command line, repeated in other processes
    debug: bool = False


@click.group(
    cls=LazyGroup,
    late=COMMANDS,
    context_settings={"show_default": True},
    epilog="Every option has an environment variable, for example JEMBENCH_RUN_MODELS for --models of run. "
    "The options that several commands share have JEMBENCH_STORE, JEMBENCH_DATASET, JEMBENCH_DEVICE, "
    "JEMBENCH_RECIPE, JEMBENCH_SET and JEMBENCH_PLUGIN.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="jembench")
@click.pass_obj
def cli(settings: Settings, debug: bool) -> None:
    """Measure hybrid models: networks that classify, score density and generate at once."""
    settings.debug = debug


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; ``argv`` is what follows ``jembench`` (by default that of this process).

    Returns:
        The exit code: 0 fine, 1 something failed, 2 wrong usage or something missing, 3 the time was up or a signal
        asked to end, 130 interrupted.
    """
    settings = Settings(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file need not be text in this locale
    stdout = sys.stdout
    try:
        with listening(), warnings.catch_warnings(), trust.command():
            warnings.showwarning = _note(warnings.showwarning)
            warnings.simplefilter("always", Remark)  # each text is printed once
            return _invoke(settings)
    except JembenchError as error:
        return _tell(str(error), error.exit_code, settings)
    except Stopped as error:
        return _tell(str(error), OutOfTime.exit_code, settings)
    except click.UsageError as error:
        return _tell(_usage(error), error.exit_code, settings)
    except BrokenPipeError:  # the reader has closed the pipe, as in `jembench list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            return _bug(error, settings)
        return _tell(
            f"Cannot use {error.filename}: {error.strerror}. Check the path, its length and its permissions.",
            2,
            settings,
        )
    except BaseException as error:  # also of a plugin that ends the program
        if isinstance(error, KeyboardInterrupt) or sys.stdout is not stdout:
            raise  # click puts another stdout in the place of one whose reader has gone, and exits
        return _bug(error, settings)


def _bug(error: BaseException, settings: Settings) -> int:
    """Report an error that the user cannot fix."""
    cause = error_text(error).rstrip(".: ")
    return _tell(
        f"This is a bug in jembench or in a plugin: {cause}. "
        "Run the command again as `jembench --debug ...` to see where it comes from, and report what that prints.",
        1,
        settings,
    )


def _note(show: Callable[..., None]) -> Callable[..., None]:
    """Show each warning of jembench once, on one line; "Not compiled" once per training."""
    shown: set[str] = set()

    def show_warning(message: Warning, category: type[Warning], *place: Any) -> None:
        if issubclass(category, Remark):
            text = str(message)
            if text not in shown or text.startswith("Not compiled"):
                print(f"Note: {printable(text)}", file=sys.stderr)  # above live bars: click writes into them
            shown.add(text)
        else:
            show(message, category, *place)

    return show_warning


def _invoke(settings: Settings) -> int:
    """Run the command and return its exit code."""
    arguments = list(settings.arguments)
    if any("\0" in argument for argument in arguments):  # no system call takes it
        raise click.UsageError("An argument holds a null character")
    try:
        code = cli.main(
            arguments, prog_name="jembench", standalone_mode=False, obj=settings, auto_envvar_prefix="JEMBENCH"
        )
    except click.Abort:
        click.echo("Interrupted. Finished work is kept: the same command goes on from there.", err=True)
        return 130
    sys.stdout.flush()  # here, where a reader who has gone can still be handled
    return code or 0


def _usage(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "jembench"
    return f"{error.format_message().rstrip('.')}. `{command} --help` says how it is used."


def _tell(message: str, exit_code: int, settings: Settings) -> int:
    """Print the current error as one paragraph, wrapped on a terminal, on one line in a log."""
    if settings.debug:
        traceback.print_exc()
    paragraph = ("" if exit_code == OutOfTime.exit_code else "Error: ") + printable(" ".join(message.splitlines()))
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        paragraph = textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)
    click.echo(paragraph, err=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
