"""A table as text in one of the formats that programs and papers read; :mod:`jembench.report.terminal` shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from jembench.report import data, latex, markdown
from jembench.report.table import Table

Format = Literal["json", "markdown", "latex", "csv"]

_RENDERERS: Mapping[Format, Callable[[Table], str]] = {
    "json": data.to_json,
    "markdown": markdown.render,
    "latex": latex.render,
    "csv": data.to_csv,
}


def render(table: Table, format: Format) -> str:
    """The whole text, with a line break at its end. JSON and CSV carry full precision, the others what is sensible."""
    return _RENDERERS[format](table)
