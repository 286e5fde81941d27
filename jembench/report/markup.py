"""Tables as Markdown (GitHub, GitLab, Pandoc, notebooks)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jembench.report.formats import Document
from jembench.report.table import Table, TableCell


def markdown(document: Document) -> str:
    """Return tables in Markdown, each below a heading and above its footnotes."""
    return "\n\n".join(map(_table, document.tables())) + "\n"


def _table(table: Table) -> str:
    blocks = [f"### {_escaped(table.title)}"]
    if table.rows:
        rule = ["---" if heading.identifies else "---:" for heading in table.headings]
        lines = [
            [_escaped(heading.in_one_line) for heading in table.headings],
            rule,
            *([*map(_text, row)] for row in table.rows),
        ]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    notes = [f"{_marks([footnote.mark])} {_escaped(footnote.text)}".strip() for footnote in table.footnotes]
    blocks.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(block for block in blocks if block)


def _text(text: TableCell) -> str:
    return _escaped(text.in_one_line) + _marks(text.marks)


def _marks(marks: Sequence[str]) -> str:
    return f"<sup>{_escaped(', '.join(marks))}</sup>" if any(marks) else ""


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", text)
