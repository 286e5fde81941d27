"""Printing rows, as a table for people or as JSON for programs."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from jembench.errors import printable

_STYLES = {
    **dict.fromkeys(("ok", "passed"), "green"),
    **dict.fromkeys(("missing", "skipped", "expected failure", "no digest", "stray"), "yellow"),
    **dict.fromkeys(("broken", "incompatible", "failed", "unexpected success", "damaged"), "red"),
}
_UNLIMITED = 10_000  # columns, where the output is no terminal: a file or a pipe cuts nothing off


def plugins_aside() -> contextlib.AbstractContextManager[object]:
    """Within it, what plugins print goes to stderr: stdout is for what was asked."""
    return contextlib.redirect_stdout(sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under their headings. A cell that is a status has its colour."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell), _STYLES.get(cell, ""), overflow="fold") for cell in row))
    console = Console(width=shutil.get_terminal_size((_UNLIMITED, 0)).columns)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines() if line.strip()))


def print_json(value: Any) -> None:
    """Print a JSON value, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
