"""The entry point: the commands, and how errors are reported."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from jembench import __version__
from jembench.catalog import trust
from jembench.cli.groups import LazyCommand, LazyGroup
from jembench.errors import Fallback, JembenchError, OutOfTime, printable
from jembench.stopping import Stopped, listening

COMMANDS = {
    "run": LazyCommand("jembench.cli.run:run", "Train and evaluate models on a suite and print the table."),
    "attack": LazyCommand(
        "jembench.cli.attack:attack", "Attack trained models, and print and draw how robust they are."
    ),
    "train": LazyCommand("jembench.cli.train:train", "Train one model and print its folder."),
    "estimate": LazyCommand("jembench.cli.estimate:estimate", "Estimate the time and memory that a training takes."),
    "import": LazyCommand("jembench.cli.import_:import_", "Import weights that were trained elsewhere."),
    "sample": LazyCommand(
        "jembench.cli.sample:sample", "Draw images from a trained model as a PNG: one row per class."
    ),
    "report": LazyCommand("jembench.cli.report:report", "Print the results of a store."),
    "compare": LazyCommand(
        "jembench.cli.compare:compare", "Compare two models of a store, image by image and seed by seed."
    ),
    "figures": LazyCommand(
        "jembench.cli.figures:figures", "Draw the results of a store, each figure with its numbers as CSV."
    ),
    "list": LazyCommand("jembench.cli.list_:list_", "List what is installed: models, datasets, suites and more."),
    "plugin": LazyCommand("jembench.cli.plugin:plugin", "List, check and create plugins."),
    "store": LazyCommand("jembench.cli.store:store", "Check the integrity of a store."),
    "doctor": LazyCommand("jembench.cli.doctor:doctor", "Report what works on this machine, and how to fix the rest."),
}


@dataclass
class Settings:
    """The values of the options of ``jembench`` itself."""

    arguments: Sequence[str] = ()  # the whole command line, repeated in other processes
    debug: bool = False


@click.group(
    cls=LazyGroup,
    late=COMMANDS,
    epilog="Every option has an environment variable, for example JEMBENCH_RUN_MODELS for --models of run. "
    "The options that several commands share have JEMBENCH_STORE, JEMBENCH_DATASET, JEMBENCH_DEVICE, JEMBENCH_DEVICES, "
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file need not be text in this locale
    try:
        with listening(), warnings.catch_warnings(), trust.command(settings.arguments, os.environ):
            warnings.showwarning = _note(warnings.showwarning)
            warnings.simplefilter("always", Fallback)  # each text is printed once
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
    except Exception as error:
        return _bug(error, settings)


def _bug(error: Exception, settings: Settings) -> int:
    """Report an error that the user cannot fix."""
    cause = f"{type(error).__name__}: {error}".rstrip(".: ")
    return _tell(
        f"This is a bug in jembench or in a plugin: {cause}. "
        "Run the command again as `jembench --debug ...` to see where it comes from, and report what that prints.",
        1,
        settings,
    )


def _note(show: Callable[..., None]) -> Callable[..., None]:
    """Show each of our own warnings once, on one line; "Not compiled" once for every training."""
    shown: set[str] = set()

    def show_warning(message: Warning, category: type[Warning], *place: Any) -> None:
        if issubclass(category, Fallback):
            text = str(message)
            if text not in shown or text.startswith("Not compiled"):
                click.echo(f"Note: {printable(text)}", err=True)
            shown.add(text)
        else:
            show(message, category, *place)

    return show_warning


def _invoke(settings: Settings) -> int:
    """A command's callback returns its exit code, or None for 0."""
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
    """Print the error that is being handled as one paragraph: on a terminal wrapped, in a log on one line."""
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
