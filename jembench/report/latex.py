r"""Tables as LaTeX, with the rules of ``booktabs``: paste them behind ``\usepackage{booktabs}``."""

from __future__ import annotations

from jembench.report.formats import Document
from jembench.report.text import Footnote, Heading, Table, Text

_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        "±": r"$\pm$",
        "·": r"$\cdot$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "†": r"$\dagger$",
        "—": "---",
    }
)


def render(document: Document) -> str:
    """LaTeX, a ``table`` environment for each table, with the rules of ``booktabs``."""
    return "\n\n".join(map(_table, document.tables())) + "\n"


def _table(table: Table) -> str:
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_escape(table.title)}}}"]
    if table.rows:
        alignment = "".join("l" if heading.identifies else "r" for heading in table.headings)
        lines += [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _line([_heading(heading) for heading in table.headings]),
            r"\midrule",
            *(_line([_text(text) for text in row]) for row in table.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    lines += [rf"\par\footnotesize {_footnote(footnote)}" for footnote in table.footnotes]
    return "\n".join([*lines, r"\end{table}"])


def _line(texts: list[str]) -> str:
    return " & ".join(texts) + r" \\"


def _heading(heading: Heading) -> str:
    return _escape(heading.in_one_line) + _superscript(", ".join(heading.marks))


def _text(text: Text) -> str:
    return "{" + _escape(text.in_one_line) + "}" + _superscript(", ".join(text.marks))


def _footnote(footnote: Footnote) -> str:
    return f"{_superscript(footnote.mark)} {_escape(footnote.text)}".strip()


def _superscript(marks: str) -> str:
    return rf"\textsuperscript{{{_escape(marks)}}}" if marks else ""


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
