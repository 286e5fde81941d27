"""Tables as Markdown and a fragment of HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from jembench.report.formats import Document
from jembench.report.text import Footnote, Heading, Table, Text


class _Markup(NamedTuple):
    """How a format writes plain text and the marks of footnotes."""

    escape: Callable[[str], str]
    superscript: str  # of {}

    def text(self, of: Heading | Text) -> str:
        return self.escape(of.in_one_line) + self.marks(of.marks)

    def footnote(self, footnote: Footnote) -> str:
        return f"{self.marks([footnote.mark])} {self.escape(footnote.text)}".strip()

    def marks(self, marks: Sequence[str]) -> str:
        return self.superscript.format(self.escape(", ".join(marks))) if any(marks) else ""


# --- Markdown ---------------------------------------------------------------------------------------------------------

_MARKDOWN = _Markup(lambda text: re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", text), "<sup>{}</sup>")


def markdown(document: Document) -> str:
    """Markdown with tables (GitHub, GitLab, Pandoc), each below a heading and above its footnotes."""
    return "\n\n".join(map(_markdown_table, document.tables())) + "\n"


def _markdown_table(table: Table) -> str:
    blocks = [f"### {_MARKDOWN.escape(table.title)}"]
    if table.rows:
        rule = ["---" if heading.identifies else "---:" for heading in table.headings]
        lines = [
            [_MARKDOWN.text(heading) for heading in table.headings],
            rule,
            *([_MARKDOWN.text(text) for text in row] for row in table.rows),
        ]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    blocks.append("\n".join(f"- {_MARKDOWN.footnote(footnote)}" for footnote in table.footnotes))
    return "\n\n".join(block for block in blocks if block)


# --- HTML -------------------------------------------------------------------------------------------------------------

_HTML = _Markup(escape, "<sup>{}</sup>")


def fragment(document: Document) -> str:
    """An HTML fragment for notebooks: each table with its caption, above its footnotes, without a style sheet."""
    return "\n".join(map(_html_table, document.tables())) + "\n"


def _html_table(table: Table) -> str:
    headings = "".join(f"<th>{_HTML.text(heading)}</th>" for heading in table.headings)
    rows = ("".join(f"<td>{_HTML.text(text)}</td>" for text in row) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    notes = "<br>".join(map(_HTML.footnote, table.footnotes))
    return (
        f"<table>\n<caption>{escape(table.title)}</caption>\n<thead><tr>{headings}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n<p><small>{notes}</small></p>"
    )
