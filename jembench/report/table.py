"""Tables of short texts with numbered footnotes; the pivot of rows.

A number shows two significant digits of its uncertainty.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, starmap
from typing import NamedTuple

from jembench.report import headings
from jembench.report.rows import Better, Row, grouped

DAGGER = "†"
ABSENT = "—"
NOTES = headings.table_of("notes.toml")
"""The sentences below tables."""

_ARROWS = {"higher": "↑", "lower": "↓", "": ""}
_WITHOUT_UNCERTAINTY = 4  # significant digits
_MOST_DECIMALS = 6


class Heading(NamedTuple):
    """The head of a column.

    What identifies a row (the model, its dataset) is aligned left, a number right.
    """

    label: str
    detail: str = ""  # unit and arrow
    identifies: bool = False

    @property
    def in_one_line(self) -> str:
        """The label, with the unit in parentheses."""
        if self.detail:
            return f"{self.label} ({self.detail})"
        return self.label


class TableCell(NamedTuple):
    """The text in one place of a table."""

    value: str
    interval: str = ""
    marks: tuple[str, ...] = ()  # of footnotes
    notes: tuple[str, ...] = ()  # texts of further footnotes, which :func:`numbered` numbers
    row: Row | None = None  # the row that the cell shows
    best: bool = False  # significantly the best of its column
    href: str = ""  # in a page: the address of a link, or the page of a number
    # in a page: pairs of texts that the cell opens to, at ``href``
    details: tuple[tuple[str, str], ...] = ()

    @property
    def half(self) -> str:
        """Half the width of the interval; "" with a deviation over seeds."""
        row = self.row
        if row is None or row.value is None or row.sd is not None:
            return ""
        if row.low is None or row.high is None:
            return ""
        half = (row.high - row.low) / 2
        return fixed(half, decimals_for(row.value, half))

    @property
    def in_one_line(self) -> str:
        """The value and its interval."""
        if self.interval:
            return f"{self.value} {self.interval}"
        return self.value


class Footnote(NamedTuple):
    """A remark on marked cells or on the whole table."""

    text: str
    mark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Headings, rows of texts and the footnotes that they refer to."""

    title: str
    headings: tuple[Heading, ...] = ()
    rows: tuple[tuple[TableCell, ...], ...] = ()
    footnotes: tuple[Footnote, ...] = ()

    @property
    def cells(self) -> list[TableCell]:
        """The cells of all rows."""
        return list(chain.from_iterable(self.rows))

    def blocks(self, widths: Sequence[int], gap: int, most: int) -> list[list[int]]:
        """Return the columns in as few blocks as fit.

        If nothing fits, a block has one column.

        The columns that identify a row are in each block. The blocks are evenly filled: six columns
        read better as 3 + 3 than as 5 + 1.

        Args:
            widths: of the columns.
            gap: between two columns.
            most: the width of a block.
        """

        def fits(block: Sequence[int]) -> bool:
            return sum(widths[index] for index in block) + gap * (len(block) - 1) <= most

        names = [index for index, heading in enumerate(self.headings) if heading.identifies]
        numbers = [index for index in range(len(self.headings)) if index not in names]
        blocks = [names]
        for count in range(1, len(numbers) + 1):
            size = -(-len(numbers) // count)
            starts = range(0, len(numbers), size)
            blocks = [names + numbers[start : start + size] for start in starts]
            if all(map(fits, blocks)):
                break
        return blocks


def numbered(tables: Iterable[Table]) -> list[Table]:
    """Return tables with their cells' notes as numbered footnotes.

    Equal texts have one number. A remark on a whole table stands below the first table that has it.
    """
    numbers: dict[str, str] = {}
    said: set[str] = set()
    marked_tables: list[Table] = []

    def marked(cell: TableCell) -> TableCell:
        texts = [flat(text) for text in cell.notes if text]
        marks = [numbers.setdefault(text, str(len(numbers) + 1)) for text in texts]
        return cell._replace(marks=(*cell.marks, *marks), notes=())

    for table in tables:
        count = len(numbers)
        rows = tuple(tuple(map(marked, line)) for line in table.rows)
        footnotes = []
        for note in dict.fromkeys(table.footnotes):
            if note.mark or note.text not in said:
                footnotes.append(note)
        said.update(note.text for note in footnotes)
        footnotes += list(starmap(Footnote, numbers.items()))[count:]
        marked_tables.append(replace(table, rows=rows, footnotes=tuple(footnotes)))
    return marked_tables


# --- pivot ----------------------------------------------------------------------------------------


def pivot(
    rows: Sequence[Row],
    index: Mapping[str, Callable[[Row], str]],
    columns: Collection[Heading],
    column: Callable[[Row], Heading],
    *,
    title: str,
    best: Collection[Row] = (),
) -> Table:
    """Return a table with models as lines and values as columns.

    Options and sources have lines of their own.

    Args:
        rows: in the order of the lines.
        index: headings of the texts that identify a line, each with a function from a row to the
            text.
        columns: the headings of values, in their order.
        column: a function from a row to the heading of its value.
        title: of the table.
        best: the rows that are marked as the best of their columns.
    """

    def line_of(row: Row) -> tuple[object, ...]:
        return *(text(row) for text in index.values()), row.fit, row.source

    lines = []
    for group in grouped(rows, line_of):
        values: dict[Heading, Row] = {}
        notes: dict[str, None] = {}
        for row in group:
            values[column(row)] = row
            notes |= dict.fromkeys(row.notes)
        cells = []
        for name, text in index.items():
            cells.append(TableCell(text(group[0]), notes=tuple(notes) if name == "model" else ()))
        for heading in columns:
            cell = row_cell(values.get(heading))
            cells.append(cell._replace(best=cell.row in best))
        lines.append(tuple(cells))
    names = [Heading(name, identifies=True) for name in index]
    return Table(title=title, headings=(*names, *columns), rows=tuple(lines))


def row_cell(row: Row | None) -> TableCell:
    """Return a value with sensible digits, or the reason of its absence.

    The interval decides on the digits.

    None: the value is not asked for.
    """
    if row is None:
        return TableCell(ABSENT)
    notes: tuple[str, ...] = (row.reason,)
    if row.value is None:
        return TableCell("N/A" if row.status == "na" else row.status, notes=notes, row=row)
    if not math.isfinite(row.value):
        if not row.source:
            notes += (f"the value is {row.value}",)
        return TableCell("not finite", notes=notes, row=row)
    if row.source:
        return TableCell(f"{row.value:.10g}", notes=notes, row=row)  # as printed there

    decimals = decimals_for(row.value, row.sd)
    interval = ""
    if row.low is not None and row.high is not None:
        of_interval = decimals_for(row.value, (row.high - row.low) / 2)
        interval = f"[{fixed(row.low, of_interval)}, {fixed(row.high, of_interval)}]"
        decimals = of_interval
        if row.sd:
            decimals = min(max(decimals_for(row.value, row.sd), of_interval), of_interval + 2)
    value = fixed(row.value, decimals)
    if row.sd is not None:
        value += f" ± {fixed(row.sd, decimals)}"
    if row.comparable is False:
        return TableCell(value, interval, (DAGGER,), notes, row)
    return TableCell(value, interval, (), notes, row)


def flat(text: str) -> str:
    """Return the text in one line."""
    return " ".join(text.split())


def number_in(text: str) -> float | None:
    """Return a text as a number; None if the text is no number."""
    try:
        return float(text)
    except ValueError:
        return None


def detail(unit: str, better: Better) -> str:
    """Return a unit, and an arrow towards the better: ``% ↑``."""
    return f"{unit} {_ARROWS[better]}".strip()


# --- digits ---------------------------------------------------------------------------------------


def decimals_for(value: float, uncertainty: float | None) -> int:
    """Return the decimals for two significant digits of the uncertainty.

    Without an uncertainty, they show four digits of the value.
    """
    if uncertainty is not None and math.isfinite(uncertainty) and uncertainty > 0:
        return max(0, 1 - math.floor(math.log10(uncertainty)))
    magnitude = 0
    if value and math.isfinite(value):
        magnitude = math.floor(math.log10(abs(value)))
    return max(0, _WITHOUT_UNCERTAINTY - 1 - magnitude)


def fixed(value: float, decimals: int) -> str:
    """Return ``value`` with these decimals, or in scientific notation.

    Numbers of many digits are in scientific notation.

    Values of .0001 or more have at most six decimals, however small the uncertainty.
    """
    if not math.isfinite(value):
        return "not finite"
    if abs(value) >= 10 ** (2 - _MOST_DECIMALS):
        decimals = min(decimals, _MOST_DECIMALS)
    if decimals > _MOST_DECIMALS or abs(value) >= 10**_MOST_DECIMALS:
        if not value:
            return "0"
        digits = 2
        if 0 < decimals <= _MOST_DECIMALS:
            digits = max(2, decimals + math.floor(math.log10(abs(value))))
        return f"{value:.{digits}e}"
    return f"{round(value, decimals) or 0.0:.{decimals}f}"  # no "-0.0"
