"""Tables as LaTeX: one float a table, scaled down where it is wider than the text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from jembench.catalog.spec import slug
from jembench.drawing import inches
from jembench.report.formats import Document
from jembench.report.table import ABSENT, ENDS, INTERVAL, Footnote, Table, TableCell

Interval = Literal["below", "pm"]

_HEAD = r"% Needs \usepackage{booktabs, threeparttable, adjustbox}."


def latex(document: Document, *, width: str = "column", interval: Interval = "below") -> str:
    r"""Return tables with the rules of ``booktabs``, significantly best values in bold.

    Args:
        document: the tables.
        width: at most this wide: ``column`` or ``page`` of a paper in two columns, or a length such as ``5.5in``.
        interval: ``below`` its value, or as ``pm``: half its width behind the value, with one seed.

    Raises:
        SpecError: if ``width`` is none of these.
    """
    inches(width)
    labels: dict[str, int] = {}
    tables = (document.judged or document.tables)()
    return "\n\n".join([_HEAD, *(_float(table, width, interval, labels) for table in tables)]) + "\n"


def _float(table: Table, width: str, interval: Interval, labels: dict[str, int]) -> str:
    star = "*" if width == "page" else ""
    caption = table.title.replace(" · ", ": ", 1).replace(" · ", ", ")
    body = [escaped(note.text) for note in table.footnotes]
    if table.rows:
        notes = [rf"\item[{escaped(note.mark)}] {escaped(note.text)}" for note in _notes(table, interval)]
        if notes:
            notes = [r"\begin{tablenotes}[flushleft]\footnotesize", *notes, r"\end{tablenotes}"]
        widest = width if width[0].isdigit() else r"\linewidth"
        above = [rf"\begin{{adjustbox}}{{max width={widest}}}", r"\begin{threeparttable}"]
        below = [r"\end{threeparttable}", r"\end{adjustbox}"]
        body = [*above, *_tabular(table, interval), *notes, *below]
    lines = [
        rf"\begin{{table{star}}}[tp]",
        r"\centering\small",
        rf"\caption{{{escaped(caption)}.}}\label{{{_label(table.title, labels)}}}\smallskip",
        *body,
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines)


def _tabular(table: Table, interval: Interval) -> Iterator[str]:
    alignment = "".join("l" if heading.identifies else "r" for heading in table.headings)
    yield rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}"
    yield r"\toprule"
    yield from _lines([(_protected(escaped(one.label)), escaped(one.detail)) for one in table.headings])
    yield r"\midrule"
    for number, row in enumerate(table.rows):
        if number in table.groups:
            yield r"\midrule"
        pairs = zip(table.headings, row, strict=True)
        yield from _lines([_cell(text, interval, name=heading.identifies) for heading, text in pairs])
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _lines(cells: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a row of upper texts and, where a cell has one, the row of lower texts in small type."""
    upper, lower = zip(*cells, strict=True)
    yield rf"{' & '.join(upper)} \\"
    if any(lower):
        small = [rf"{{\scriptsize {text}}}" if text else "" for text in lower]
        yield rf"{' & '.join(small)} \\[2pt]".lstrip()


def _cell(text: TableCell, interval: Interval, *, name: bool) -> tuple[str, str]:
    if name:
        return _protected(escaped(text.in_one_line) + _superscript(text.marks)), ""
    value = _number(f"{text.value} ± {text.half}" if interval == "pm" and text.half else text.value)
    value = rf"\textbf{{{value}}}" if text.best else value
    return _protected(value + _superscript(text.marks)), _number(text.interval) if interval == "below" else ""


def _protected(text: str) -> str:
    """Return a text that the line break before it does not read as its option."""
    return f"{{{text}}}" if text.startswith(("[", "*")) else text


def _notes(table: Table, interval: Interval) -> list[Footnote]:
    if interval == "below":
        return list(table.footnotes)
    half = Footnote("± of one seed: half the width of the 95 % interval.")
    has_half = any(cell.half for row in table.rows for cell in row)
    return [*[half] * has_half, *(note for note in table.footnotes if not note.text.startswith((INTERVAL, ENDS)))]


def _label(title: str, taken: dict[str, int]) -> str:
    """Return ``tab:`` and the title, numbered where it is taken."""
    name = slug(re.sub(r"[^a-z0-9]+", "-", title.partition(" · ")[0].lower()), 50) or "table"
    taken[name] = taken.get(name, 0) + 1
    return f"tab:{name}" if taken[name] == 1 else f"tab:{name}-{taken[name]}"


# --- characters -------------------------------------------------------------------------------------------------------

_ESCAPES = {
    **{character: rf"\{character}" for character in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textquoteleft{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "∞": r"$\infty$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
    ABSENT: "---",
    "\N{NO-BREAK SPACE}": "~",
}
for _character in map(chr, range(0x370, 0x400)):
    if _greek := re.fullmatch("GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", unicodedata.name(_character, "")):
        _name = _greek[2].lower().replace("lamda", "lambda")
        _ESCAPES[_character] = rf"$\{_name if _greek[1] == 'SMALL' else _name.title()}$"
_CHARACTERS = str.maketrans(_ESCAPES)

_CODE = re.compile(r"(?<!\w)`([^`\s](?:[^`]*[^`\s])?)`(?!\w)")


def escaped(text: str) -> str:
    """Return a text for LaTeX, in one line. Greek letters are those of formulas, and text between backticks is code."""
    parts = [part.translate(_CHARACTERS) for part in _CODE.split(text.replace("\n", " "))]
    parts[1::2] = [rf"\texttt{{{code}}}" for code in parts[1::2]]
    return "".join(parts)


def _number(text: str) -> str:
    """Return a number with its minus sign, and powers of ten."""
    text = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped(text))
    return re.sub(r"e([+-])0*(\d+)", lambda found: rf"$\cdot10^{{{found[1].replace('+', '')}{found[2]}}}$", text)


def _superscript(marks: Sequence[str]) -> str:
    return rf"\tnote{{{escaped(','.join(marks))}}}" if any(marks) else ""
