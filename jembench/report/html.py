"""Tables as HTML, for notebooks and web pages."""

from __future__ import annotations

from html import escape

from jembench.report.formats import Document
from jembench.report.text import Footnote, Heading, Table, Text


def render(document: Document) -> str:
    """An HTML fragment: each table with its caption, above its footnotes. It needs no style sheet."""
    return "\n".join(map(_table, document.tables())) + "\n"


def _table(table: Table) -> str:
    headings = "".join(f"<th>{_heading(heading)}</th>" for heading in table.headings)
    rows = ("".join(f"<td>{_text(text)}</td>" for text in row) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    notes = "".join(f"<br>{_footnote(footnote)}" for footnote in table.footnotes)
    return (
        f"<table>\n<caption>{escape(table.title)}</caption>\n<thead><tr>{headings}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n<p><small>{notes.removeprefix('<br>')}</small></p>"
    )


def _heading(heading: Heading) -> str:
    return escape(heading.in_one_line) + _marks(", ".join(heading.marks))


def _text(text: Text) -> str:
    return escape(text.in_one_line) + _marks(", ".join(text.marks))


def _footnote(footnote: Footnote) -> str:
    return f"{_marks(footnote.mark)} {escape(footnote.text)}".strip()


def _marks(marks: str) -> str:
    return f"<sup>{escape(marks)}</sup>" if marks else ""
