"""Tables as Markdown and a fragment of HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence

from jembench.report.formats import Document
from jembench.report.text import Footnote, Heading, Table, Text

Escape = Callable[[str], str]
"""How a format writes plain text."""


def _text(of: Heading | Text, escape: Escape) -> str:
    return escape(of.in_one_line) + _marks(of.marks, escape)


def _footnote(footnote: Footnote, escape: Escape) -> str:
    return f"{_marks([footnote.mark], escape)} {escape(footnote.text)}".strip()


def _marks(marks: Sequence[str], escape: Escape) -> str:
    return f"<sup>{escape(', '.join(marks))}</sup>" if any(marks) else ""


# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(document: Document) -> str:
    """Markdown with tables (GitHub, GitLab, Pandoc), each below a heading and above its footnotes."""
    return "\n\n".join(map(_markdown_table, document.tables())) + "\n"


def _markdown_table(table: Table) -> str:
    blocks = [f"### {_in_markdown(table.title)}"]
    if table.rows:
        rule = ["---" if heading.identifies else "---:" for heading in table.headings]
        head = [_text(heading, _in_markdown) for heading in table.headings]
        body = [[_text(text, _in_markdown) for text in row] for row in table.rows]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body)))
    blocks.append("\n".join(f"- {_footnote(footnote, _in_markdown)}" for footnote in table.footnotes))
    return "\n\n".join(block for block in blocks if block)


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", text)


# --- HTML -------------------------------------------------------------------------------------------------------------


def fragment(document: Document) -> str:
    """An HTML fragment for notebooks: each table with its caption, above its footnotes, without a style sheet."""
    return "\n".join(map(_html_table, document.tables())) + "\n"


def _html_table(table: Table) -> str:
    headings = "".join(f"<th>{_text(heading, html.escape)}</th>" for heading in table.headings)
    rows = ("".join(f"<td>{_text(text, html.escape)}</td>" for text in row) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    notes = "<br>".join(_footnote(footnote, html.escape) for footnote in table.footnotes)
    return (
        f"<table>\n<caption>{html.escape(table.title)}</caption>\n<thead><tr>{headings}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n<p><small>{notes}</small></p>"
    )
