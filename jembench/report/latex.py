r"""Tables as LaTeX, with the rules of ``booktabs``: paste them behind ``\usepackage{booktabs}``."""

from __future__ import annotations

from collections.abc import Iterable

from jembench.report.layout import grids
from jembench.report.table import Table
from jembench.report.text import Footnote, Grid, Heading, Text

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


def render(table: Table) -> str:
    """A ``table`` environment for our results and for each published table, footnotes below the rules."""
    return of_grids(grids(table))


def of_grids(found: Iterable[Grid]) -> str:
    """The same for grids of any kind."""
    return "\n\n".join(map(_grid, found)) + "\n"


def _grid(grid: Grid) -> str:
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_escape(grid.title)}}}"]
    if grid.rows:
        alignment = "".join("l" if heading.identifies else "r" for heading in grid.headings)
        lines += [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _line([_heading(heading) for heading in grid.headings]),
            r"\midrule",
            *(_line([_text(text) for text in row]) for row in grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    lines += [rf"\par\footnotesize {_footnote(footnote)}" for footnote in grid.footnotes]
    return "\n".join([*lines, r"\end{table}"])


def _line(texts: list[str]) -> str:
    return " & ".join(texts) + r" \\"


def _heading(heading: Heading) -> str:
    label = f"{heading.label} ({heading.detail})" if heading.detail else heading.label
    return _escape(label) + _superscript(", ".join(heading.marks))


def _text(text: Text) -> str:
    return "{" + _escape(text.in_one_line) + "}" + _superscript(", ".join(text.marks))


def _footnote(footnote: Footnote) -> str:
    return f"{_superscript(footnote.mark)} {_escape(footnote.text)}".strip()


def _superscript(marks: str) -> str:
    return rf"\textsuperscript{{{_escape(marks)}}}" if marks else ""


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
