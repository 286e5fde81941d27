"""Tables as Markdown (the dialect with tables: GitHub, GitLab, Pandoc)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jembench.report.layout import grids
from jembench.report.table import Table
from jembench.report.text import Footnote, Grid, Heading, Text


def render(table: Table) -> str:
    """A heading, a table and a list of footnotes for our results and for each published table."""
    return of_grids(grids(table))


def of_grids(found: Iterable[Grid]) -> str:
    """The same for grids of any kind."""
    return "\n\n".join(map(_grid, found)) + "\n"


def _grid(grid: Grid) -> str:
    blocks = [f"### {_escape(grid.title)}"]
    if grid.rows:
        rule = ["---" if heading.identifies else "---:" for heading in grid.headings]
        lines = [
            [_heading(heading) for heading in grid.headings],
            rule,
            *([_text(t) for t in row] for row in grid.rows),
        ]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    blocks.append("\n".join(f"- {_footnote(footnote)}" for footnote in grid.footnotes))
    return "\n\n".join(block for block in blocks if block)


def _heading(heading: Heading) -> str:
    label = f"{heading.label} ({heading.detail})" if heading.detail else heading.label
    return _escape(label) + _superscript(", ".join(heading.marks))


def _text(text: Text) -> str:
    return _escape(text.in_one_line) + _superscript(", ".join(text.marks))


def _footnote(footnote: Footnote) -> str:
    return f"{_superscript(footnote.mark)} {_escape(footnote.text)}".strip()


def _superscript(marks: str) -> str:
    return f"<sup>{marks}</sup>" if marks else ""


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", text)  # also of what would be a link
