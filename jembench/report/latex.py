"""Tables as LaTeX that fits into a column or a page: what is too wide goes on in a further part below.

The widths of texts are those of Computer Modern, a little more than measured, so that other fonts have room.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from jembench.catalog.spec import slug
from jembench.drawing import inches
from jembench.report.formats import Document
from jembench.report.text import ABSENT, DAGGER, ENDS, INTERVAL, Footnote, Table, Text

Interval = Literal["below", "pm"]

_HEAD = "% Paste it behind \\usepackage{booktabs}."
_SPARE = 0.94  # of the width: the columns of some classes are narrower
_GAP = 8.0  # points between columns
_NAMES = 0.5  # of the width, at most, for what identifies a row
_HEIGHT = 470.0  # points of a page that tables and their notes fill
_LINE = 11.0  # points from one line to the next
_SMALL = 7.0  # points of an interval's type


def latex(document: Document, *, width: str = "column", interval: Interval = "below") -> str:
    r"""LaTeX with the rules of ``booktabs`` and the best values in bold, where the difference is significant.

    Args:
        document: what is shown.
        width: of the tables: ``column`` or ``page`` of a paper in two columns, or a length such as ``5.5in``.
        interval: ``below`` its value, or as ``pm``: half its width behind the value, with one seed.
    """
    room = inches(width) * 72.27 * _SPARE
    star = "*" if width == "page" else ""
    labels: dict[str, int] = {}
    numbers: dict[str, str] = {}
    found = [_HEAD]
    for table in (document.judged or document.tables)():
        found.append(_Layout(table, room, star, interval, numbers).latex(_label(table.title, labels)))
    return "\n\n".join(found) + "\n"


class _Layout:
    """A table in a given width.

    Args:
        table: what is shown.
        room: the width in points.
        star: ``*`` for floats of the width of a page.
        interval: where intervals stand.
        numbers: of the footnotes of the tables before, by their marks there; those of this table are added.
    """

    def __init__(self, table: Table, room: float, star: str, interval: Interval, numbers: dict[str, str]) -> None:
        self.table, self.room, self.star, self.interval = table, room, star, interval
        self.type, self.points = (r"\footnotesize", 8.0) if room < 300 else (r"\small", 9.0)
        self.blocks = self._blocks()
        for mark in _marks(table, self.blocks):
            numbers.setdefault(mark, str(len(numbers) + 1))
        self.table = _numbered(table, numbers)

    def latex(self, label: str) -> str:
        """Its floats: one, or several that each fit on a page. The notes are below the last tabular if both fit."""
        floats: list[list[_Piece]] = [[]]
        for piece in self._tabulars():
            if floats[-1] and not _fit(*floats[-1], piece):
                floats.append([])
            floats[-1].append(piece)
        apart = []
        for notes in self._notes():
            if _fit(*floats[-1], notes):
                floats[-1].append(notes)
            elif len(floats[-1]) > 1 and _fit(floats[-1][-1], notes):
                floats.append([floats[-1].pop(), notes])
            else:
                apart.append(self._float_of_notes(notes, label, len(floats)))
        found = [self._float(content, label, number) for number, content in enumerate(floats)]
        return "\n\n".join([*found, *apart])

    def _float_of_notes(self, notes: _Piece, label: str, count: int) -> str:
        """A float without a caption, for notes that fit below no tabular of these floats."""
        first, last, joined = rf"\ref{{{label}}}", rf"\ref{{{label}-{count}}}", "and" if count == 2 else "to"
        of = f"Table~{first}" if count == 1 else f"Tables~{first} {joined}~{last}"
        lines = (
            rf"\begin{{table{self.star}}}[tp]",
            rf"{self.type} Notes on {of}:\par\smallskip",
            notes.text,
            rf"\end{{table{self.star}}}",
        )
        return "\n".join(lines)

    def _float(self, pieces: Sequence[_Piece], label: str, number: int) -> str:
        caption = _caption(self.table.title) if number == 0 else f"{_caption(self.table.title)} (continued)"
        bold = [footnote.text for footnote in self.table.footnotes if footnote.text.startswith("Bold")]
        sentences = [f"{caption}.", *(bold if number == 0 else [])]
        return "\n".join(
            (
                rf"\begin{{table{self.star}}}[tp]",
                rf"\centering{self.type}",
                rf"\setlength{{\tabcolsep}}{{{_GAP / 2:g}pt}}",
                rf"\caption{{{' '.join(map(escaped, sentences))}}}\smallskip",
                rf"\label{{{label}{f'-{number + 1}' if number else ''}}}",
                "\n\\par\\medskip\n".join(piece.text for piece in pieces),
                rf"\end{{table{self.star}}}",
            )
        )

    # --- tabulars ---

    def _tabulars(self) -> Iterator[_Piece]:
        """One if all columns fit; else several with the same names, evenly filled."""
        columns = self._columns()
        for block in self.blocks:
            yield from self._of_block(block, [columns[index] for index in block])

    def _blocks(self) -> list[list[int]]:
        """The columns of each tabular."""
        if not self.table.rows:
            return []
        widths = [max(map(self._width, column)) for column in self._columns()]

        def fit(block: Sequence[int]) -> bool:
            return sum(widths[index] for index in block) + _GAP * (len(block) - 1) <= self.room

        return self.table.blocks(fit)

    def _columns(self) -> list[list[_Lines]]:
        limit = self._limit()
        return [self._column(index, limit) for index in range(len(self.table.headings))]

    def _of_block(self, block: Sequence[int], columns: Sequence[list[_Lines]]) -> Iterator[_Piece]:
        """The tabulars of some columns: their rows on as many pages as they need."""
        alignment = "".join("l" if self.table.headings[index].identifies else "r" for index in block)
        rows = list(zip(*columns, strict=True))
        head, body = _physical(rows[0], lowest=True), [_physical(cells) for cells in rows[1:]]
        start, height = 0, 0.0
        for number, lines in enumerate(body):
            taken = _LINE * len(lines) + 2
            if height + taken > _HEIGHT - 100:
                yield self._tabular(alignment, head, body, range(start, number))
                start, height = number, 0.0
            height += taken
        yield self._tabular(alignment, head, body, range(start, len(body)))

    def _tabular(self, alignment: str, head: list[str], body: Sequence[list[str]], which: range) -> _Piece:
        spaced = any(len(body[number]) > 1 for number in which)
        lines = [rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}", r"\toprule", *(rf"{line} \\" for line in head)]
        lines.append(r"\midrule")
        for number in which:
            if number in self.table.groups and number != which.start:
                lines.append(r"\midrule")
            *first, last = body[number]
            lines += [rf"{line} \\[-1pt]" for line in first]
            lines.append(rf"{last} \\[2pt]" if spaced and number != which[-1] else rf"{last} \\")
        height = _LINE * (len(head) + sum(len(body[number]) for number in which)) + 2 * len(which) + 20
        return _Piece("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]), height)

    def _limit(self) -> float:
        """The widest that a column of names may be, in points, so that all of them leave room for numbers."""
        names = [index for index, heading in enumerate(self.table.headings) if heading.identifies]
        whole = [[_names(row[index]) for row in self.table.rows] for index in names]
        natural = [max(map(self._width, column)) for column in whole]
        limit = max(natural, default=0.0)
        while sum(min(width, limit) for width in natural) > _NAMES * self.room and limit > 40:
            limit -= 5
        return limit

    def _column(self, index: int, limit: float) -> list[_Lines]:
        """The lines of the heading and of each cell of a column."""
        heading = self.table.headings[index]
        if heading.identifies:
            cells = [_names(row[index], limit / self.points) for row in self.table.rows]
            return [_Lines((heading.label,), heading.marks), *cells]
        cells = [self._number(row[index]) for row in self.table.rows]
        widest = max([*map(self._width, cells), 38.0])
        label = _wrapped(heading.label, widest / self.points)
        lines = (*label, heading.detail) if heading.detail else tuple(label)
        return [_Lines(lines, heading.marks, small=bool(heading.detail)), *cells]

    def _number(self, text: Text) -> _Lines:
        if self.interval == "below" and text.interval:
            return _Lines((text.value, text.interval), text.marks, small=True, best=text.best, numbers=True)
        value = f"{text.value} ± {text.half}" if self.interval == "pm" and text.half else text.value
        return _Lines((value,), text.marks, best=text.best, numbers=True)

    def _width(self, cell: _Lines) -> float:
        """In points."""
        widths = [_em(line) * self.points * (1.12 if cell.best else 1) for line in cell.lines]
        if cell.small:
            widths[-1] = _em(cell.lines[-1]) * _SMALL
        widths[cell.marked] += _em(",".join(cell.marks)) * _SMALL
        return max(widths)

    # --- notes ---

    def _footnotes(self) -> list[Footnote]:
        kept = [note for note in self.table.footnotes if not note.text.startswith("Bold")]
        if self.interval == "below":
            return kept
        if not any(text.half for row in self.table.rows for text in row):
            kept = [note for note in kept if not note.text.startswith(INTERVAL)]
        half = "± of one seed: half the width of the 95 % interval"
        return [note._replace(text=note.text.replace(INTERVAL, half).replace(ENDS, "")) for note in kept]

    def _notes(self) -> Iterator[_Piece]:
        notes = self._footnotes()
        if notes:
            texts = [f"{_superscript([note.mark])} {_breakable(note.text)}".strip() for note in notes]
            lines = sum(1 + int(_em(note.text) * _SMALL // self.room) for note in notes)
            head, end = r"\begin{minipage}{\linewidth}\scriptsize\raggedright", r"\end{minipage}"
            yield _Piece("\n".join([head, " \\par\n".join(texts), end]), 8.5 * lines + 10)


class _Piece(NamedTuple):
    """A part of a float."""

    text: str
    height: float  # points


def _fit(*pieces: _Piece) -> bool:
    """Whether they fit into one float."""
    return sum(piece.height for piece in pieces) <= _HEIGHT


def _marks(table: Table, blocks: Sequence[Sequence[int]]) -> Iterator[str]:
    """The marks of footnotes as they appear: block by block, the heading first, then row by row."""
    for block in blocks:
        marked = [table.headings[index].marks for index in block]
        marked += [row[index].marks for row in table.rows for index in block]
        yield from (mark for marks in marked for mark in marks if mark != DAGGER)
    yield from (note.mark for note in table.footnotes if note.mark not in ("", DAGGER))


def _numbered(table: Table, numbers: Mapping[str, str]) -> Table:
    """The table with these numbers in place of its marks, and its numbered footnotes in their order."""

    def rank(mark: str) -> int:
        return int(mark) if mark in numbers.values() else 0

    def new(marks: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted((numbers.get(mark, mark) for mark in marks), key=rank))

    notes = [note._replace(mark=numbers.get(note.mark, note.mark)) for note in table.footnotes]
    return replace(
        table,
        headings=tuple(heading._replace(marks=new(heading.marks)) for heading in table.headings),
        rows=tuple(tuple(text._replace(marks=new(text.marks)) for text in row) for row in table.rows),
        footnotes=tuple(sorted(notes, key=lambda note: rank(note.mark))),
    )


class _Lines(NamedTuple):
    """A cell: its lines from top to bottom."""

    lines: tuple[str, ...]
    marks: tuple[str, ...] = ()
    small: bool = False  # the last line is in small type
    best: bool = False
    numbers: bool = False

    @property
    def marked(self) -> int:
        """The line with the marks: that of a value, or else the last one but for what is in small type."""
        return 0 if self.numbers else len(self.lines) - 1 - self.small

    def latex(self) -> list[str]:
        """Each line."""
        found = [_number(line) if self.numbers else escaped(line) for line in self.lines]
        if self.best:
            found[0] = rf"\textbf{{{found[0]}}}"
        found[self.marked] += _superscript(self.marks)
        if self.small:
            found[-1] = rf"{{\scriptsize {found[-1]}}}"
        return [f"{{{line}}}" if line.startswith(("[", "*")) else line for line in found]


def _physical(cells: Sequence[_Lines], *, lowest: bool = False) -> list[str]:
    """The lines of a row, in which cells stand on the highest line or, as headings, on the lowest."""
    columns = [cell.latex() for cell in cells]
    count = max(map(len, columns))
    blank = [[""] * (count - len(lines)) for lines in columns]
    padded = [above + lines if lowest else lines + above for above, lines in zip(blank, columns, strict=True)]
    return [" & ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _names(text: Text, limit: float = math.inf) -> _Lines:
    """A name in lines of at most ``limit`` em."""
    return _Lines(tuple(_wrapped(text.in_one_line, limit)), text.marks)


def _wrapped(text: str, limit: float) -> list[str]:
    """Lines of at most ``limit`` em, broken behind a mark where there is one."""
    lines = [""]
    for piece in re.findall(r"[^\s,:+/@_-]*[,:+/@_-]?\s*", text):
        while piece:
            if _em((lines[-1] + piece).rstrip()) <= limit:
                lines[-1] += piece
                break
            if lines[-1]:
                lines.append("")
                continue
            fitting = max((n for n in range(1, len(piece) + 1) if _em(piece[:n]) <= limit), default=1)
            fitting = max(piece.rfind("=", 1, fitting), piece.rfind(".", 1, fitting)) + 1 or fitting
            lines[-1], piece = piece[:fitting], piece[fitting:]
    return [line.rstrip() for line in lines if line.strip()] or [""]


def _label(title: str, taken: dict[str, int]) -> str:
    """``tab:results``, numbered where there are several."""
    parts = [part for part in title.split(" · ") if not re.match(r"(dataset|recipe|seeds?) ", part)]
    name = slug(re.sub(r"[^a-z0-9]+", "-", "-".join(parts[:2]).lower()), 50) or "table"
    taken[name] = taken.get(name, 0) + 1
    return f"tab:{name}" if taken[name] == 1 else f"tab:{name}-{taken[name]}"


def _caption(title: str) -> str:
    first, *rest = title.split(" · ")
    return f"{first}: {', '.join(rest)}" if rest else first


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


_CODE = re.compile(r"(?<!\w)`([^`\s](?:[^`]*[^`\s])?)`(?!\w)")


def escaped(text: str) -> str:
    """A text for LaTeX, in one line. Greek letters are those of formulas, and what is between backticks is code."""
    parts = [_characters(part) for part in _CODE.split(text.replace("\n", " "))]
    parts[1::2] = [rf"\texttt{{{code}}}" for code in parts[1::2]]
    return "".join(parts)


def _characters(text: str) -> str:
    return "".join(_ESCAPES.get(character) or _greek(character) for character in text)


def _greek(character: str) -> str:
    name = "" if character.isascii() else unicodedata.name(character, "")
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", name)
    if not found:
        return character
    letter = found[2].lower().replace("lamda", "lambda")
    return rf"$\{letter if found[1] == 'SMALL' else letter.title()}$"


def _number(text: str) -> str:
    """A number with its minus sign, and powers of ten."""
    text = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped(text))
    return re.sub(r"e([+-])0*(\d+)", lambda found: rf"$\cdot10^{{{found[1].replace('+', '')}{found[2]}}}$", text)


def _superscript(marks: Sequence[str]) -> str:
    return rf"\textsuperscript{{{escaped(','.join(marks))}}}" if any(marks) else ""


def _breakable(text: str) -> str:
    """A text whose long words may be broken behind their marks."""
    words = (
        re.sub(r"(?<=[,:=+/_])(?=\S)", "\N{ZERO WIDTH SPACE}", word) if len(word) > 15 else word
        for word in text.split()
    )
    return escaped(" ".join(words)).replace("\N{ZERO WIDTH SPACE}", r"\allowbreak{}")


_NARROW = set("ijlftrI.,:;!|'[]()- ")
_WIDE = set("mwMWO@%QGHNDUVXYK&+=<>±→·\N{MULTIPLICATION SIGN}")


def _em(text: str) -> float:
    """The width of a text in em of its type."""
    return sum(0.36 if c in _NARROW else 0.84 if c in _WIDE else 0.72 if c.isupper() else 0.53 for c in text)
