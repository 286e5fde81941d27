"""The printed output of commands, and the files that they write."""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from jembench.catalog.spec import Spec
from jembench.errors import SpecError, printable
from jembench.files import cannot_write, write_atomically

_STYLES = {
    **dict.fromkeys(("ok", "passed"), "green"),
    **dict.fromkeys(("missing", "skipped", "stray", "kept", "busy"), "yellow"),
    **dict.fromkeys(("broken", "failed", "damaged"), "red"),
}
_UNLIMITED = 10_000  # columns of a file or a pipe, so that nothing is cut off


def plugins_aside() -> contextlib.AbstractContextManager[object]:
    """Redirect the output of plugins to stderr, since stdout is for results."""
    return contextlib.redirect_stdout(sys.stderr)


def narrow_width() -> int:
    """Return the width of the terminal in columns, at most 100.

    Without a terminal, the width is 100.
    """
    return min(shutil.get_terminal_size((100, 0)).columns, 100)


def say(text: object, *, err: bool = False) -> None:
    """Print a line, with escapes for characters that act on a terminal."""
    click.echo(printable(str(text)), err=err)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> None:
    """Print rows of text under headings, with statuses in colour.

    The table is as wide as ``width`` or the terminal.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in ("id", "unit"))  # texts that users copy
    for row in rows:
        cells = [Text(printable(cell), _STYLES.get(cell, ""), overflow="fold") for cell in row]
        table.add_row(*cells)
    console = Console(width=width or shutil.get_terminal_size((_UNLIMITED, 0)).columns)
    with console.capture() as captured:
        console.print(table)
    lines = map(str.rstrip, captured.get().splitlines())
    click.echo("\n".join(filter(None, lines)))


def print_json(value: Any) -> None:
    """Print a JSON value, indented.

    Characters that act on a terminal are escaped.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if printable(text) != text:
        text = json.dumps(value, indent=2)
    click.echo(text)


# --- files ----------------------------------------------------------------------------------------


def check_file(path: Path, ending: str, *, force: bool, option: str = "--output") -> None:
    """Check that a command may and can write a file.

    Args:
        path: the value of ``option``.
        ending: the suffix that the file's name must have.
        force: whether the user gave ``--force``, which allows replacing a file.
        option: the name of the option, for errors.

    Raises:
        SpecError: if the path is no ordinary file, has another ending, or exists without ``force``.
        StoreError: if the file cannot be written.
    """
    try:
        if path.suffix != ending:
            raise SpecError(f"{option} is {path}; its name must end in {ending}.")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise SpecError(f"{option} is {path}, which is no ordinary file. Name another file.")
        if path.exists() and not force:
            raise SpecError(
                f"{path} exists. Name another file with {option}, or replace it with --force."
            )
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(path, error, option) from error


_ENDINGS = {
    ".csv": "csv",
    ".htm": "html",
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".parquet": "parquet",
    ".tex": "latex",
    **dict.fromkeys((".doc", ".docx", ".jpg", ".pdf", ".png", ".svg", ".xls", ".xlsx"), ""),
}
"""The format that a file's ending promises; "": no format of tables."""


def check_ending(path: Path, format: str) -> None:
    """Check that a file's ending fits the format of its content.

    Raises:
        SpecError: if the ending promises another format.
    """
    name, promised = Spec(format).name, _ENDINGS.get(path.suffix.lower())
    if promised is None or name == promised or name not in {"table", *_ENDINGS.values()}:
        return
    also = f"write --format {promised}, or " if promised else ""
    raise SpecError(
        f"--output is {path}, and --format {name} writes no {path.suffix}: {also}name another file."
    )


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Write a picture or a table, atomically, if :func:`check_file` allows it."""
    check_file(path, path.suffix, force=force)
    write_atomically(path, content, "--output")


def emit(content: str | bytes, output: Path | None, *, force: bool) -> None:
    """Print results, or write them to ``output`` and print its name."""
    if output is None:
        if isinstance(content, bytes):
            raise SpecError("This format is no text. Name a file for it with --output.")
        click.echo(content, nl=False)
        return
    if isinstance(content, str):
        content = content.encode()
    write_file(output, content, force=force)
    say(output)
