"""Tables as LaTeX: a float for each, and one block of notes."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from jembench.catalog.spec import slug
from jembench.drawing import inches
from jembench.errors import SpecError
from jembench.report.formats import Document
from jembench.report.headings import table_of
from jembench.report.table import NOTES, Footnote, Table, TableCell

Interval = Literal["below", "pm"]

_HEAD = r"% Needs \usepackage{booktabs, adjustbox}."

_MOST_IN_COLUMN = 4
"""The largest number of columns of a table that fits into a column of a paper in two columns."""


def latex(
    document: Document, *, width: str = "column", interval: Interval = "below", label: str = ""
) -> str:
    r"""Return tables in LaTeX with ``booktabs``, significantly best values in bold.

    Args:
        document: the tables.
        width: at most this wide: ``column``, which is a page for tables of more than four columns,
            ``page`` of a paper in two columns, or a length such as ``5.5in``.
        interval: ``below`` the value, or ``pm``: half the width after the value, for one seed.
        label: of the first table; further tables add their titles. Empty: only titles.

    Raises:
        SpecError: if ``width`` is none of these, or ``label`` has other characters than letters,
            digits and ``:._+-``.
    """
    inches(width)
    if not re.fullmatch(r"[A-Za-z0-9:._+-]*", label):
        raise SpecError(f"label is {label!r}; it may have letters, digits and :._+- only.")
    tables = document.tables(paper=True)
    # a paper needs no table of only notes, such as commands
    tables = [table for table in tables if table.rows] or tables
    labels = _labels([table.title for table in tables], label)
    alone = len(tables) == 1
    blocks = [_HEAD]
    for table, name in zip(tables, labels, strict=True):
        blocks.append(_float(table, width, interval, name, notes=alone))
    if not alone:
        to = "and" if len(tables) == 2 else "to"
        of_all = rf"\textbf{{Notes to Tables~\ref{{{labels[0]}}} {to}~\ref{{{labels[-1]}}}.}}"
        blocks += _notes(tables, interval, of_all)
    return "\n\n".join(blocks) + "\n"


def _labels(titles: Sequence[str], label: str) -> list[str]:
    """Return distinct labels of tables; equal labels are numbered."""
    prefix = label if ":" in label else f"tab:{label}"
    labels: list[str] = []
    numbers: Counter[str] = Counter()
    for title in titles:
        words = re.sub(r"[^a-z0-9]+", "-", title.partition(" · ")[0].lower())
        name = slug(words, 50) or "table"
        if not label:
            name = f"tab:{name}"
        elif labels:
            name = f"{prefix}-{name}"
        else:
            name = prefix
        numbers[name] += 1
        if numbers[name] > 1:
            name = f"{name}-{numbers[name]}"
        labels.append(name)
    return labels


def _float(table: Table, width: str, interval: Interval, label: str, *, notes: bool) -> str:
    caption = table.title.replace(" · ", ": ", 1).replace(" · ", ", ")
    environment = "table"
    if width == "page" or (width == "column" and len(table.headings) > _MOST_IN_COLUMN):
        environment = "table*"
    lines = [
        rf"\begin{{{environment}}}[tp]",
        r"\centering\footnotesize",
        rf"\caption{{{escaped(caption)}.}}\label{{{label}}}\smallskip",
    ]
    if table.rows:
        widest = width if width[0].isdigit() else r"\linewidth"
        lines.append(rf"\begin{{adjustbox}}{{max width={widest}}}")
        lines += _tabular(table, interval)
        lines.append(r"\end{adjustbox}")
    if notes:
        lines += _notes([table], interval)
    return "\n".join([*lines, rf"\end{{{environment}}}"])


# --- rows -----------------------------------------------------------------------------------------


def _tabular(table: Table, interval: Interval) -> Iterator[str]:
    alignment, upper, lower = "", [], []
    for heading in table.headings:
        alignment += "l" if heading.identifies else "r"
        upper.append(_protected(escaped(heading.label)))
        lower.append(escaped(heading.detail))
    yield rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}"
    yield r"\toprule"
    yield from _lines(upper, lower)
    yield r"\midrule"
    for row in table.rows:
        upper, lower = [], []
        for heading, cell in zip(table.headings, row, strict=True):
            text, below = _cell(cell, interval, name=heading.identifies)
            upper.append(text)
            lower.append(below)
        yield from _lines(upper, lower)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _lines(upper: Sequence[str], lower: Sequence[str]) -> Iterator[str]:
    """Yield a row of texts and the lower texts in small type."""
    yield rf"{' & '.join(upper)} \\"
    if any(lower):
        small = [rf"{{\scriptsize {text}}}" if text else "" for text in lower]
        yield rf"{' & '.join(small)} \\[2pt]".lstrip()


def _cell(cell: TableCell, interval: Interval, *, name: bool) -> tuple[str, str]:
    """Return the upper and the lower text of a cell."""
    marks = _superscript(",".join(cell.marks))
    if name:
        return _protected(escaped(cell.in_one_line) + marks), ""
    text, lower = cell.value, ""
    if interval == "below":
        lower = _number(cell.interval)
    elif cell.half:
        text += f" ± {cell.half}"
    value = _number(text)
    if cell.best:
        value = rf"\textbf{{{value}}}"
    if marks:
        value += rf"\rlap{{{marks}}}"
    return _protected(value), lower


def _superscript(mark: str) -> str:
    if mark:
        return rf"\textsuperscript{{{escaped(mark)}}}"
    return ""


def _protected(text: str) -> str:
    """Keep a text from being read as an option."""
    if text.startswith(("[", "*")):
        return f"{{{text}}}"
    return text


def _notes(tables: Sequence[Table], interval: Interval, heading: str = "") -> list[str]:
    """Return the block of notes of some tables, if any.

    Each note appears once, the numbered ones last.
    """
    footnotes = dict.fromkeys(note for table in tables for note in table.footnotes)
    notes = sorted(footnotes, key=lambda note: bool(note.mark))
    if interval == "pm":
        notes = [note for note in notes if note.text not in (NOTES["interval"], NOTES["ends"])]
        if any(cell.half for table in tables for cell in table.cells):
            notes.insert(0, Footnote(NOTES["half"]))
    if not notes:
        return []
    lines = [r"{\par\medskip\footnotesize\raggedright\noindent"]
    if heading:
        lines.append(heading)
    for note in notes:
        text = f"{_superscript(note.mark)} {escaped(note.text.rstrip('.'))}.".lstrip()
        lines.append(re.sub(r"(?<=[/,=:+])(?=\w)", r"\\allowbreak{}", text))
    lines.append(r"\par\medskip}")
    return ["\n".join(lines)]


# --- characters -----------------------------------------------------------------------------------

_CHARACTERS = str.maketrans(table_of("latex.toml"))

_CODE = re.compile(r"(?<!\w)`([^`\s](?:[^`]*[^`\s])?)`(?!\w)")


def escaped(text: str) -> str:
    """Return a text for LaTeX, in one line.

    Greek letters are set as in formulas, and text between backticks as code.
    """
    parts = [part.translate(_CHARACTERS) for part in _CODE.split(text.replace("\n", " "))]
    parts[1::2] = [rf"\texttt{{{code}}}" for code in parts[1::2]]
    return re.sub("-(?=-)", "-{}", "".join(parts))  # so that -- makes no dash


def _number(text: str) -> str:
    """Return a number with minus sign and powers of ten."""
    text = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped(text))
    return re.sub(r"e(?:\+|(-))0*(\d+)", r"$\\cdot10^{\1\2}$", text)
