"""The entry point: the commands, and the report of errors."""

from __future__ import annotations

import errno
import functools
import io
import itertools
import os
import pkgutil
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from jembench.catalog import trust
from jembench.errors import (
    JembenchError,
    OutOfTime,
    Remark,
    SpecError,
    error_text,
    printable,
    unknown,
)
from jembench.stopping import Stopped, listening
from jembench.version import __version__


class LazyCommand(NamedTuple):
    """A command that is not imported yet, and its line in ``--help``."""

    target: str  # module:attribute
    help: str


class LazyGroup(click.Group):
    """A group that imports only the command that runs; ``--help`` imports none."""

    def __init__(
        self, *args: Any, late: Mapping[str, LazyCommand | LazyGroup], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.late = late

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of commands in their order."""
        return list(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            SpecError: if there is no such command; the message has the nearest names.
        """
        late = self.late.get(cmd_name)
        if late is None and not ctx.resilient_parsing:
            raise unknown("command", cmd_name, self.late, f"{ctx.command_path} --help")
        if not isinstance(late, LazyCommand):
            return late
        command: click.Command = pkgutil.resolve_name(late.target)
        if "plugin" not in [parameter.name for parameter in command.params]:
            from jembench.cli import options  # slow to import, and --help needs none of it

            options.plugin(command)  # every command accepts a plugin file
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [(name, command.help or "") for name, command in self.late.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _command(target: str, help: str) -> LazyCommand:
    return LazyCommand(f"jembench.cli.{target}", help)


COMMANDS: dict[str, LazyCommand | LazyGroup] = {
    "run": _command("run:run", "Train and evaluate models of a suite or file; print the table."),
    "init": _command("init:init", "Write an experiment's file on the basis of SUITE."),
    "reproduce": _command(
        "run:reproduce", "Measure the results of a store again and compare them."
    ),
    "attack": _command("attack:attack", "Attack trained models, and print how robust they are."),
    "status": _command(
        "work:status", "Show the units of work of a store, with host, start and progress."
    ),
    "work": _command("work:work", "Carry out units of work of a run."),
    "train": _command("train:train", "Train one model and print its folder."),
    "estimate": _command("train:estimate", "Estimate the time and memory that a training takes."),
    "import": _command(
        "import_:import_", "Import weights that were trained elsewhere into the store."
    ),
    "sample": _command(
        "train:sample", "Draw images from a trained model as a PNG: one row per class."
    ),
    "report": _command("report:report", "Print the results of a store, or write them to a file."),
    "view": _command("report:view", "Show a store in a browser."),
    "compare": _command(
        "report:compare", "Compare two models of a store, image by image and seed by seed."
    ),
    "check": _command(
        "check:check", "Check that no result is worse than a baseline's, and that claims hold."
    ),
    "figures": _command(
        "figures:figures", "Draw the results of a store, each figure with its numbers as CSV."
    ),
    "list": _command("list_:list_", "List what is installed, and whether it works."),
    "plugin": LazyGroup(
        "plugin",
        help="Check and create plugins.",
        late={
            "check": _command("plugin:check", "Run the conformance checks of components."),
            "new": _command(
                "plugin:new", "Write a new plugin distribution: model, sampler, metric, dataset ..."
            ),
        },
    ),
    "store": LazyGroup(
        "store",
        help="List, check, merge and clean stores.",
        late={
            "list": _command("store:list_", "List the trained models of a store and their sizes."),
            "verify": _command("store:verify", "Read every file of a store and check its digest."),
            "merge": _command("store:merge", "Copy what a store lacks from other stores."),
            "site": _command(
                "store:site", "Write the pages of stores and a leaderboard of their models."
            ),
            "gc": _command("store:gc", "List or remove the files that are no longer needed."),
        },
    ),
    "push": _command(
        "store:push", "Share a trained model: weights, chains, recipe, results and a model card."
    ),
    "fetch": _command(
        "store:fetch",
        "Copy shared models into a store, and use them like those that were trained there.",
    ),
    "doctor": _command(
        "doctor:doctor", "Report the versions, the devices and the store of a machine."
    ),
}


RESUMED = frozenset(
    {"run", "check", "reproduce", "attack", "work", "train", "sample", "push", "fetch"}
)
"""The commands that keep finished work when they are stopped."""


@dataclass
class Settings:
    """The options of ``jembench`` itself."""

    arguments: Sequence[str] = ()  # the whole command line, repeated in other processes
    debug: bool = False


@click.group(
    cls=LazyGroup,
    late=COMMANDS,
    context_settings={"show_default": True},
    epilog="Every option has an environment variable, for example JEMBENCH_RUN_MODELS for "
    "--models of run. The options that several commands share have JEMBENCH_STORE, "
    "JEMBENCH_DATASET, JEMBENCH_DEVICE, JEMBENCH_RECIPE, JEMBENCH_SET, JEMBENCH_TRACKERS, "
    "JEMBENCH_NAME and JEMBENCH_PLUGIN.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="jembench")
@click.pass_obj
def cli(settings: Settings, debug: bool) -> None:
    """Measure hybrid models: networks that classify, score density and generate at once."""
    settings.debug = debug


COMPLETION = "_JEMBENCH_COMPLETE"
"""The environment variable with a shell's request at the Tab key, such as ``bash_complete``."""

_CONTEXT = {"auto_envvar_prefix": "JEMBENCH"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after ``jembench``; None: those of this process.

    Returns:
        The exit code: 0 fine, 1 something failed, 2 wrong usage or something missing, 3 the time
        was up or a signal asked to end, 130 interrupted.
    """
    if argv is None:
        argv = sys.argv[1:]
    settings = Settings(list(argv))
    _prepare_streams()
    stdout = sys.stdout
    try:
        return _run(settings)
    except click.Abort:
        click.echo(f"Interrupted.{_kept(settings)}", err=True)
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except JembenchError as error:
        return _tell(str(error), error.exit_code, settings)
    except Stopped as error:
        return _tell(f"{error}{_kept(settings)}", OutOfTime.exit_code, settings)
    except click.UsageError as error:
        return _tell(_usage(error), error.exit_code, settings)
    except BrokenPipeError:  # the reader has closed the pipe, as in `jembench list | head`
        _drop_output()
        return 1
    except BaseException as error:  # also SystemExit, from a plugin
        if isinstance(error, KeyboardInterrupt) or sys.stdout is not stdout:
            raise  # click replaces a stdout whose reader has gone, and exits
        text, code = _unforeseen(error)
        return _tell(text, code, settings)


def _prepare_streams() -> None:
    """Open closed standard streams, and let stdout print any file's name."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a file's name may have characters that the locale cannot encode
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(settings: Settings) -> int:
    """Run or complete a command line, and return the exit code."""
    _check(settings.arguments)
    with listening(), warnings.catch_warnings(), trust.command(settings.arguments):
        warnings.showwarning = functools.partial(_show_warning, warnings.showwarning, set())
        warnings.simplefilter("always", Remark)  # each text is printed once
        if instruction := os.environ.get(COMPLETION):
            return _complete(instruction, settings)
        code = cli.main(
            settings.arguments,
            prog_name="jembench",
            standalone_mode=False,
            obj=settings,
            **_CONTEXT,
        )
        sys.stdout.flush()  # here, where a closed pipe is still handled
        return code or 0


def _kept(settings: Settings) -> str:
    """Return a sentence on the work that a stopped command keeps."""
    command = next((word for word in settings.arguments if word in COMMANDS), "")
    if command in RESUMED:
        return " Finished work is kept: the same command goes on from there."
    return ""


def _unforeseen(error: BaseException) -> tuple[str, int]:
    """Return the text and the exit code of an unforeseen error."""
    if isinstance(error, OSError) and error.filename is not None:
        text = (
            f"Cannot use {error.filename}: {error.strerror}. Check the path, its length and its "
            "permissions."
        )
        return text, 2
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _drop_output()
        return f"Cannot write the output: {error.strerror}. Send it to another place.", 2
    text = (
        f"This is a bug in jembench or in a plugin: {error_text(error).rstrip('.: ')}. Run the "
        "command again as `jembench --debug ...` to see where it comes from, and report what that "
        "prints."
    )
    return text, 1


def _drop_output() -> None:
    """Discard the buffer of stdout, which Python would write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check(arguments: Sequence[str]) -> None:
    """Refuse arguments that no command can read, and a removed current folder.

    Raises:
        UsageError: if an argument is empty or holds a null character.
        SpecError: if the current folder was removed.
    """
    for before, argument in itertools.pairwise(["jembench", *arguments]):
        name, equals, value = argument.partition("=")
        if "\0" in argument:  # no system call takes it
            raise click.UsageError("An argument holds a null character")
        if not argument.strip() or (name.startswith("--") and equals and not value.strip()):
            place = name if equals else before
            raise click.UsageError(
                f"The text after {place} is empty. Write a value, or leave the option out"
            )
    try:
        os.getcwd()  # noqa: PTH109, PyTorch needs a current folder
    except FileNotFoundError:
        raise SpecError("The current folder was removed. Change to another one.") from None


def _complete(instruction: str, settings: Settings) -> int:
    """Print completions of a command line for a shell, and no errors.

    An error would appear in the user's line.

    Returns:
        The exit code.
    """
    from click.shell_completion import FishComplete, add_completion_class, shell_complete

    class WithCommas(FishComplete):
        """A script for fish that completes after commas, unlike click's."""

        source_template = FishComplete.source_template.replace(
            "string split", "string split --max 1"
        )

    add_completion_class(WithCommas)
    with suppress(Exception):
        return shell_complete(
            cli, {"obj": settings, **_CONTEXT}, "jembench", COMPLETION, instruction
        )
    return 1


def _show_warning(
    show: Callable[..., None],
    shown: set[str],
    message: Warning,
    category: type[Warning],
    *place: Any,
) -> None:
    """Print a warning of jembench on one line.

    A text among ``shown`` is not printed again, except "Not compiled". Warnings of other libraries
    are passed to ``show``.
    """
    if not issubclass(category, Remark):
        show(message, category, *place)
        return
    text = str(message)
    if text not in shown or text.startswith("Not compiled"):
        # print, since click.echo would write into live bars
        print(f"Note: {printable(text)}", file=sys.stderr)
    shown.add(text)


def _usage(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "jembench"
    return f"{error.format_message().rstrip('.')}. `{command} --help` says how it is used."


def _tell(message: str, exit_code: int, settings: Settings) -> int:
    """Print the current error as one paragraph.

    The paragraph is wrapped on a terminal, and one line elsewhere.
    """
    if settings.debug:
        traceback.print_exc()
    paragraph = printable(" ".join(message.splitlines()))
    if exit_code != OutOfTime.exit_code:
        paragraph = f"Error: {paragraph}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        paragraph = textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)
    click.echo(paragraph, err=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
