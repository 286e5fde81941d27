"""Tables as LaTeX: one float for each, in two columns and scaled down where it is wide, and one
block of notes.
"""

import re
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
        interval: ``below`` its value, or as ``pm``: half its width behind the value, with one seed.
        label: of the first table; further ones add their titles. Empty: the titles.

    Raises:
        SpecError: if ``width`` is none of these, or ``label`` has other characters than letters,
            digits and ``:._+-``.
    """
    inches(width)
    if not re.fullmatch(r"[A-Za-z0-9:._+-]*", label):
        raise SpecError(f"label is {label!r}; it may have letters, digits and :._+- only.")
    tables = document.tables(paper=True)
    # notes alone, such as commands, are not for a paper
    tables = [table for table in tables if table.rows] or tables
    labels = _labels([table.title for table in tables], label)
    alone = len(tables) == 1
    floats = [
        _float(one, width, interval, name, notes=alone)
        for one, name in zip(tables, labels, strict=True)
    ]
    to = "and" if len(tables) == 2 else "to"
    of_all = rf"\textbf{{Notes to Tables~\ref{{{labels[0]}}} {to}~\ref{{{labels[-1]}}}.}}"
    blocks = [] if alone else _notes(tables, interval, of_all)
    return "\n\n".join([_HEAD, *floats, *blocks]) + "\n"


def _labels(titles: Sequence[str], label: str) -> list[str]:
    """Return distinct labels of tables; numbered where their names are equal."""
    names = [
        slug(re.sub(r"[^a-z0-9]+", "-", title.partition(" · ")[0].lower()), 50) or "table"
        for title in titles
    ]
    first = label if ":" in label else f"tab:{label}"
    names = (
        [first, *(f"{first}-{name}" for name in names[1:])]
        if label
        else [f"tab:{name}" for name in names]
    )
    return [
        f"{name}-{count + 1}" if (count := names[:i].count(name)) else name
        for i, name in enumerate(names)
    ]


def _float(table: Table, width: str, interval: Interval, label: str, *, notes: bool) -> str:
    caption = table.title.replace(" · ", ": ", 1).replace(" · ", ", ")
    star = "*" * (width == "page" or (width == "column" and len(table.headings) > _MOST_IN_COLUMN))
    widest = width if width[0].isdigit() else r"\linewidth"
    box = [
        rf"\begin{{adjustbox}}{{max width={widest}}}",
        *_tabular(table, interval),
        r"\end{adjustbox}",
    ]
    lines = [
        rf"\begin{{table{star}}}[tp]",
        r"\centering\footnotesize",
        rf"\caption{{{escaped(caption)}.}}\label{{{label}}}\smallskip",
        *(box if table.rows else ()),
        *(_notes([table], interval) if notes else ()),
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines)


# --- rows
# -------------------------------------------------------------------------------------------------------------


def _tabular(table: Table, interval: Interval) -> Iterator[str]:
    alignment = "".join("l" if heading.identifies else "r" for heading in table.headings)
    yield rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}"
    yield r"\toprule"
    yield from _lines(
        [(_protected(escaped(one.label)), escaped(one.detail)) for one in table.headings]
    )
    yield r"\midrule"
    for row in table.rows:
        pairs = zip(table.headings, row, strict=True)
        yield from _lines(
            [_cell(text, interval, name=heading.identifies) for heading, text in pairs]
        )
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _lines(cells: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a row of upper texts and, where a cell has one, the row of lower texts in small type."""
    # a table of no results has no cells
    upper, lower = ([pair[place] for pair in cells] for place in (0, 1))
    yield rf"{' & '.join(upper)} \\"
    if any(lower):
        small = [rf"{{\scriptsize {text}}}" if text else "" for text in lower]
        yield rf"{' & '.join(small)} \\[2pt]".lstrip()


def _cell(text: TableCell, interval: Interval, *, name: bool) -> tuple[str, str]:
    """Return the upper and the lower text of a cell."""
    marks = rf"\textsuperscript{{{escaped(','.join(text.marks))}}}" if any(text.marks) else ""
    if name:
        return _protected(escaped(text.in_one_line) + marks), ""
    value = _number(f"{text.value} ± {text.half}" if interval == "pm" and text.half else text.value)
    value = rf"\textbf{{{value}}}" if text.best else value
    lower = _number(text.interval) if interval == "below" else ""
    return _protected(value + (rf"\rlap{{{marks}}}" if marks else "")), lower


def _protected(text: str) -> str:
    """Return a text that the line break before it does not read as its option."""
    return f"{{{text}}}" if text.startswith(("[", "*")) else text


def _notes(tables: Sequence[Table], interval: Interval, heading: str = "") -> list[str]:
    """Return the block of notes of some tables: each once, the numbered ones last; none if they
    have none.
    """
    notes = list(dict.fromkeys(note for table in tables for note in table.footnotes))
    notes.sort(key=lambda note: bool(note.mark))
    if interval == "pm":
        notes = [note for note in notes if note.text not in (NOTES["interval"], NOTES["ends"])]
        if any(cell.half for table in tables for row in table.rows for cell in row):
            notes.insert(0, Footnote(NOTES["half"]))
    marks = [rf"\textsuperscript{{{escaped(note.mark)}}} " if note.mark else "" for note in notes]
    texts = [
        f"{mark}{escaped(note.text.rstrip('.'))}." for mark, note in zip(marks, notes, strict=True)
    ]
    texts = [re.sub(r"(?<=[/,=:+])(?=\w)", r"\\allowbreak{}", text) for text in texts]
    begin, end = r"{\par\medskip\footnotesize\raggedright\noindent", r"\par\medskip}"
    return ["\n".join([begin, *filter(None, [heading]), *texts, end])] if texts else []


# --- characters
# -------------------------------------------------------------------------------------------------------

_CHARACTERS = str.maketrans(table_of("latex.toml"))

_CODE = re.compile(r"(?<!\w)`([^`\s](?:[^`]*[^`\s])?)`(?!\w)")


def escaped(text: str) -> str:
    """Return a text for LaTeX, in one line. Greek letters are those of formulas, and text between
    backticks is code.
    """
    parts = [part.translate(_CHARACTERS) for part in _CODE.split(text.replace("\n", " "))]
    parts[1::2] = [rf"\texttt{{{code}}}" for code in parts[1::2]]
    return re.sub("-(?=-)", "-{}", "".join(parts))  # two are no dash


def _number(text: str) -> str:
    """Return a number with its minus sign, and powers of ten."""
    text = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped(text))
    return re.sub(
        r"e([+-])0*(\d+)",
        lambda found: rf"$\cdot10^{{{found[1].replace('+', '')}{found[2]}}}$",
        text,
    )
