"""Tables on a terminal, with ``rich``. What does not fit into the width goes on below; nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text as RichText

from jembench.report.layout import grids
from jembench.report.table import Table
from jembench.report.text import Footnote, Grid, Heading, Text

_SUPERSCRIPT = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹˒")
_NAMES_AT_MOST = 34  # of the terminal's columns, for what identifies a row
_NAMES_AT_LEAST = 8  # before numbers are folded too

_NAME, _MARK, _LABEL, _DIM = map(Style.parse, ("cyan", "yellow", "bold", "dim"))
_GAP = 2
"""Blanks between two columns of a table."""

Interval = Literal["beside", "below"]
Line = list[Segment]
Cell = list[Line]


def show(table: Table, console: Console) -> None:
    """Print our results, then the published numbers that do not stand beside them."""
    show_grids(grids(table), console)


def show_grids(found: Iterable[Grid], console: Console) -> None:
    """Print grids one below the other."""
    for grid in found:
        console.print()
        console.print(RichText(grid.title, style="bold"))
        console.print()
        for block in _blocks(grid, console):
            console.print(block, crop=False)
            console.print()
        for footnote in grid.footnotes:
            console.print(_footnote(footnote), overflow="fold")


def _blocks(grid: Grid, console: Console) -> list[Segments]:
    """One table if it fits, with each interval beside its value or else below it; several tables if it does not."""
    if not grid.rows:
        return []
    names = [index for index, heading in enumerate(grid.headings) if heading.identifies]
    numbers = [index for index in range(len(grid.headings)) if index not in names]

    def fits(columns: Sequence[int], interval: Interval) -> bool:
        return sum(widths[interval][index] for index in columns) + _GAP * (len(columns) - 1) <= console.width

    intervals: tuple[Interval, ...] = ("beside", "below")
    widths = {way: [_width(grid, index, way) for index in range(len(grid.headings))] for way in intervals}
    # from one table to one a column; evenly filled, for six columns read better as 3 + 3 than as 5 + 1
    sizes = [-(-len(numbers) // count) for count in range(1, len(numbers) + 1)]
    ways: list[tuple[int, Interval]] = [(len(numbers), "beside"), *((size, "below") for size in sizes)]
    for size, interval in ways:
        tables = [names + numbers[start : start + size] for start in range(0, len(numbers), size)]
        if all(fits(columns, interval) for columns in tables):
            break
    return [_drawn(grid, columns, widths[interval], interval, console) for columns in tables]


def _width(grid: Grid, index: int, interval: Interval) -> int:
    """What a column of a grid takes, without its gaps."""
    heading = grid.headings[index]
    cells = [_heading(heading), *(_cell(row[index], interval, heading.identifies) for row in grid.rows)]
    width = max(_length(line) for cell in cells for line in cell)
    return min(width, _NAMES_AT_MOST) if heading.identifies else width


def _drawn(grid: Grid, columns: Sequence[int], widths: Sequence[int], interval: Interval, console: Console) -> Segments:
    """A table of some columns of a grid. (Drawing hundreds of rows with ``rich.table`` takes much longer.)"""
    headings, widths = [grid.headings[index] for index in columns], [widths[index] for index in columns]
    while sum(widths) + _GAP * (len(widths) - 1) > console.width and max(widths) > 1:
        wide = [place for place, each in enumerate(headings) if each.identifies and widths[place] > _NAMES_AT_LEAST]
        widths[max(wide or range(len(widths)), key=widths.__getitem__)] -= 1

    def drawn(cells: Iterable[Cell], *, head: bool = False) -> Iterator[Segment]:
        folded = [_folded(cell, width, console) for cell, width in zip(cells, widths, strict=True)]
        height = max(map(len, folded))
        for number in range(height):
            for place, (heading, width, cell) in enumerate(zip(headings, widths, folded, strict=True)):
                row = number - (height - len(cell)) * head  # headings stand on the rule
                line = cell[row] if 0 <= row < len(cell) else []
                blanks = Segment(" " * (width - _length(line)))
                yield Segment(" " * _GAP * bool(place))
                yield from [*line, blanks] if heading.identifies else [blanks, *line]
            yield Segment.line()

    segments = list(drawn(map(_heading, headings), head=True))
    segments += [Segment("─" * (sum(widths) + _GAP * (len(widths) - 1))), Segment.line()]
    for row in grid.rows:
        segments += drawn(_cell(row[index], interval, grid.headings[index].identifies) for index in columns)
    return Segments(segments)


def _heading(heading: Heading) -> Cell:
    label = [Segment(heading.label, _LABEL), Segment(_superscript(",".join(heading.marks)), _MARK)]
    return [label, [Segment(heading.detail, _DIM)]] if heading.detail else [label]


def _cell(text: Text, interval: Interval, identifies: bool) -> Cell:
    line = [Segment(text.value, _NAME if identifies else None), Segment(_superscript(",".join(text.marks)), _MARK)]
    if text.interval and interval == "below":
        return [line, [Segment(text.interval, _DIM)]]
    return [[*line, Segment(f" {text.interval}", _DIM)] if text.interval else line]


def _length(line: Line) -> int:
    return sum(cell_len(segment.text) for segment in line)


def _folded(cell: Cell, width: int, console: Console) -> Cell:
    """The cell in lines of that width at most."""
    found: Cell = []
    for line in cell:
        if _length(line) <= width:
            found.append(line)
        else:
            text = RichText.assemble(*((segment.text, segment.style or "") for segment in line), end="")
            found += [list(part.render(console)) for part in text.wrap(console, width, overflow="fold")]
    return found


def _superscript(marks: str) -> str:
    return marks.translate(_SUPERSCRIPT)


def _footnote(footnote: Footnote) -> RichText:
    text = RichText(style="dim")
    if footnote.mark:
        text.append(f"{_superscript(footnote.mark)} ", style="not dim yellow")
    return text.append(footnote.text)
