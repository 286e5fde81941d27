"""Tables as Markdown (the dialect with tables: GitHub, GitLab, Pandoc)."""

from __future__ import annotations

import re

from jembench.report.formats import Document
from jembench.report.text import Footnote, Heading, Table, Text


def render(document: Document) -> str:
    """Markdown with tables, each below a heading and above its footnotes."""
    return "\n\n".join(map(_table, document.tables())) + "\n"


def _table(table: Table) -> str:
    blocks = [f"### {_escape(table.title)}"]
    if table.rows:
        rule = ["---" if heading.identifies else "---:" for heading in table.headings]
        lines = [
            [_heading(heading) for heading in table.headings],
            rule,
            *([_text(t) for t in row] for row in table.rows),
        ]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    blocks.append("\n".join(f"- {_footnote(footnote)}" for footnote in table.footnotes))
    return "\n\n".join(block for block in blocks if block)


def _heading(heading: Heading) -> str:
    return _escape(heading.in_one_line) + _superscript(", ".join(heading.marks))


def _text(text: Text) -> str:
    return _escape(text.in_one_line) + _superscript(", ".join(text.marks))


def _footnote(footnote: Footnote) -> str:
    return f"{_superscript(footnote.mark)} {_escape(footnote.text)}".strip()


def _superscript(marks: str) -> str:
    return f"<sup>{marks}</sup>" if marks else ""


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", text)  # also of what would be a link
