"""Tables on a terminal, with ``rich``. What does not fit into the width goes on below; nothing is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from jembench.report.formats import Document
from jembench.report.table import Heading, Table, TableCell

_SUPERSCRIPT = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹˒")
_NAMES_AT_MOST = 34  # of the terminal's columns, for what identifies a row

Interval = Literal["beside", "below"]


def render(document: Document, *, width: int = 0) -> str:
    """Return tables for the terminal, in colours if it has them. 0: as wide as the terminal."""
    console = Console(width=width or None)
    with console.capture() as capture:
        for table in document.tables():
            console.print()
            console.print(RichText(table.title, style="bold"))
            console.print()
            for block in _blocks(table, console):
                console.print(block)
                console.print()
            for footnote in table.footnotes:
                text = RichText(style="dim")
                if footnote.mark:
                    text.append(f"{footnote.mark.translate(_SUPERSCRIPT)} ", style="not dim yellow")
                console.print(text.append(footnote.text), overflow="fold")
    return capture.get()


def _blocks(table: Table, console: Console) -> list[RichTable]:
    """Return one table if it fits, with each interval beside or else below its value; several if it does not."""
    if not table.rows:
        return []
    intervals: tuple[Interval, ...] = ("beside", "below")
    widths = {way: [_width(table, index, way) for index in range(len(table.headings))] for way in intervals}

    def fit(columns: Sequence[int], interval: Interval = "below") -> bool:
        return sum(widths[interval][index] for index in columns) + _GAP * (len(columns) - 1) <= console.width

    (whole,) = table.blocks(lambda columns: True)
    if fit(whole, "beside"):
        return [_rich(table, whole, "beside")]
    return [_rich(table, columns, "below") for columns in table.blocks(fit)]


_GAP = 2
"""Between two columns of a table."""


def _width(table: Table, index: int, interval: Interval) -> int:
    """Return the width of a column of a table, without its gaps."""
    heading = table.headings[index]
    texts = [_heading(heading), *(_cell(row[index], interval, heading.identifies) for row in table.rows)]
    width = max(cell_len(line) for text in texts for line in text.plain.splitlines() or [""])
    return min(width, _NAMES_AT_MOST) if heading.identifies else width


def _rich(table: Table, columns: list[int], interval: Interval) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, header_style="")
    for index in columns:
        heading = table.headings[index]
        if heading.identifies:
            rich.add_column(_heading(heading), overflow="fold", max_width=_NAMES_AT_MOST)
        else:
            rich.add_column(_heading(heading), overflow="fold", justify="right")
    for row in table.rows:
        rich.add_row(*(_cell(row[index], interval, table.headings[index].identifies) for index in columns))
    return rich


def _heading(heading: Heading) -> RichText:
    text = RichText(heading.label, style="bold")
    return text.append(f"\n{heading.detail}", style="not bold dim") if heading.detail else text


def _cell(text: TableCell, interval: Interval, identifies: bool) -> RichText:
    cell = RichText(text.value, style="cyan" if identifies else "")
    cell.append(",".join(text.marks).translate(_SUPERSCRIPT), style="yellow")
    if text.interval:
        cell.append(("\n" if interval == "below" else " ") + text.interval, style="dim")
    return cell
