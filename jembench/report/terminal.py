"""Tables on a terminal, with ``rich``.

What does not fit into the width goes on below.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from textwrap import wrap
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from jembench.report.formats import Document
from jembench.report.table import Table, TableCell

_SUPERSCRIPT = str.maketrans("0123456789,=", "⁰¹²³⁴⁵⁶⁷⁸⁹˒⁼")
_NAMES_AT_MOST = 34  # of the terminal's columns, for the texts that identify a row
_SENTENCE = 18  # the least width of a sentence that identifies a row, if the table fits then
_HEADING_AT_MOST = 20
_VALUE_AT_MOST = 20  # a longer value is a sentence, such as a verdict, and takes more lines
_GAP = 2  # between two columns of a table


def render(document: Document, *, width: int = 0) -> str:
    """Return tables for the terminal, with colours where it shows them.

    Args:
        document: the tables.
        width: of the lines; 0: the terminal's own width.
    """
    console = Console(width=width or None)
    with console.capture() as capture:
        numbers: dict[str, str] = {}
        for table in document.tables():
            _print(console, table, numbers)
    return capture.get()


def _print(console: Console, table: Table, numbers: dict[str, str]) -> None:
    console.print()
    console.print(RichText(table.title, style="bold"))
    console.print()
    if table.rows:
        table = _in_order(table, console.width, numbers)
        for block in _blocks(table, console.width):
            console.print(block)
            console.print()
    for footnote in table.footnotes:
        text = RichText(style="dim")
        if footnote.mark:
            text.append(f"{footnote.mark.translate(_SUPERSCRIPT)} ", style="not dim yellow")
        console.print(text.append(footnote.text), overflow="fold")


def _in_order(table: Table, width: int, numbers: dict[str, str]) -> Table:
    """Renumber footnotes in the order in which blocks show them.

    Args:
        table: with numbers in the order of its lines.
        width: of the terminal.
        numbers: of earlier tables, new numbers by old ones; this table's are added.
    """
    for columns in _layout(table, width).blocks:
        for row in table.rows:
            marks = chain.from_iterable(row[index].marks for index in columns)
            for mark in filter(str.isdecimal, marks):
                numbers.setdefault(mark, str(len(numbers) + 1))

    def renumbered(cell: TableCell) -> TableCell:
        return cell._replace(marks=tuple(numbers.get(mark, mark) for mark in cell.marks))

    rows = tuple(tuple(map(renumbered, row)) for row in table.rows)
    notes = [note._replace(mark=numbers.get(note.mark, note.mark)) for note in table.footnotes]
    notes.sort(key=lambda note: int(note.mark) if note.mark.isdecimal() else 0)
    return replace(table, rows=rows, footnotes=tuple(notes))


class _Layout(NamedTuple):
    """The texts of a table, the widths of columns, and its blocks."""

    headings: list[RichText]
    rows: list[list[RichText]]
    widths: list[int]
    blocks: list[list[int]]


def _layout(table: Table, width: int) -> _Layout:
    """Return one block if the table fits, or several.

    An interval stands beside its value or, if that is too wide, below it.
    """
    headings = []
    for heading in table.headings:
        text = RichText("\n".join(wrap(heading.label, _HEADING_AT_MOST)), style="bold")
        if heading.detail:
            text.append(f"\n{heading.detail}", style="not bold dim")
        headings.append(text)
    for separator in (" ", "\n"):
        rows = []
        for row in table.rows:
            pairs = zip(row, table.headings, strict=True)
            rows.append([_cell(cell, heading.identifies, separator) for cell, heading in pairs])
        widths = []
        for index, heading in enumerate(table.headings):
            widest = max(_width(row[index]) for row in (headings, *rows))
            if heading.identifies:
                widest = min(widest, _NAMES_AT_MOST)
            widths.append(widest)
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        if excess <= 0:
            break
    word = max(cell_len(word) for row in rows for word in row[0].plain.split() or [""])
    if excess > 0 and widths[0] - excess >= max(word, _SENTENCE):
        # a narrower first column, so that the table need not be split into blocks
        widths[0] -= excess
    return _Layout(headings, rows, widths, table.blocks(widths, _GAP, width))


def _width(text: RichText) -> int:
    return max(map(cell_len, text.plain.splitlines()), default=0)


def _blocks(table: Table, width: int) -> Iterator[RichTable]:
    """Yield the blocks of a table."""
    headings, rows, widths, blocks = _layout(table, width)
    for columns in blocks:
        rich = RichTable(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            header_style="",
        )
        for index in columns:
            if table.headings[index].identifies:
                rich.add_column(headings[index], overflow="fold", max_width=widths[index])
            else:
                rich.add_column(headings[index], overflow="fold", justify="right")
        for row in rows:
            rich.add_row(*(row[index] for index in columns))
        yield rich


def _cell(cell: TableCell, identifies: bool, separator: str) -> RichText:
    if identifies:
        text = RichText(cell.value, style="cyan")
    else:
        lines = wrap(cell.value, _VALUE_AT_MOST, break_long_words=False)
        text = RichText("\n".join(lines), style="bold" if cell.best else "")
    text.append(",".join(cell.marks).translate(_SUPERSCRIPT), style="yellow")
    if cell.interval:
        text.append(separator + cell.interval, style="dim")
    return text
