"""Tables on a terminal, with ``rich``. What does not fit into the width goes on below; nothing is cut off."""

from collections.abc import Iterator
from textwrap import wrap

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from jembench.report.formats import Document
from jembench.report.table import Table, TableCell

_SUPERSCRIPT = str.maketrans("0123456789,=", "⁰¹²³⁴⁵⁶⁷⁸⁹˒⁼")
_NAMES_AT_MOST = 34  # of the terminal's columns, for what identifies a row
_SENTENCE = 18  # the least width of a sentence that identifies a row, if the table fits then
_HEADING_AT_MOST = 20
_VALUE_AT_MOST = 20  # a longer value is a sentence, such as a verdict, and takes more lines
_GAP = 2  # between two columns of a table


def render(document: Document, *, width: int = 0) -> str:
    """Return tables for the terminal, in colour if it shows colours; ``width=0`` means the terminal's own width."""
    console = Console(width=width or None)
    with console.capture() as capture:
        for table in document.tables():
            console.print()
            console.print(RichText(table.title, style="bold"))
            console.print()
            for block in _blocks(table, console.width) if table.rows else ():
                console.print(block)
                console.print()
            for footnote in table.footnotes:
                text = RichText(style="dim")
                if footnote.mark:
                    text.append(f"{footnote.mark.translate(_SUPERSCRIPT)} ", style="not dim yellow")
                console.print(text.append(footnote.text), overflow="fold")
    return capture.get()


def _blocks(table: Table, width: int) -> Iterator[RichTable]:
    """Yield one table if it fits, with each interval beside or else below its value; several if it does not."""
    headings, identify = list[RichText](), [heading.identifies for heading in table.headings]
    for heading in table.headings:
        text = RichText("\n".join(wrap(heading.label, _HEADING_AT_MOST)), style="bold")
        headings.append(text.append(f"\n{heading.detail}", style="not bold dim") if heading.detail else text)
    for separator in (" ", "\n"):
        rows = [[_cell(*one, separator) for one in zip(row, identify, strict=True)] for row in table.rows]
        widths = []
        for index, is_name in enumerate(identify):
            texts = [headings[index], *(row[index] for row in rows)]
            widest = max(cell_len(line) for text in texts for line in text.plain.splitlines() or [""])
            widths.append(min(widest, _NAMES_AT_MOST) if is_name else widest)
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        if excess <= 0:
            break
    word = max(cell_len(word) for row in rows for word in row[0].plain.split() or [""])
    if excess > 0 and widths[0] - excess >= max(word, _SENTENCE):
        widths[0] -= excess  # a sentence takes more lines, and the table is whole
    for columns in table.blocks(widths, _GAP, width):
        rich = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, header_style="")
        for index in columns:
            if identify[index]:
                rich.add_column(headings[index], overflow="fold", max_width=widths[index])
            else:
                rich.add_column(headings[index], overflow="fold", justify="right")
        for row in rows:
            rich.add_row(*(row[index] for index in columns))
        yield rich


def _cell(text: TableCell, identifies: bool, separator: str) -> RichText:
    value = text.value if identifies else "\n".join(wrap(text.value, _VALUE_AT_MOST, break_long_words=False))
    cell = RichText(value, style="cyan" if identifies else "bold" if text.best else "")
    cell.append(",".join(text.marks).translate(_SUPERSCRIPT), style="yellow")
    return cell.append(separator + text.interval, style="dim") if text.interval else cell
