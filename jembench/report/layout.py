"""From a table to grids of short texts with numbered footnotes: what the terminal, Markdown and LaTeX show alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from jembench.report.beside import place
from jembench.report.published import of_published
from jembench.report.results import Results
from jembench.report.sections import sections
from jembench.report.table import Table
from jembench.report.text import Footnote, Footnotes, Grid

NOTHING = "No results yet."


def grids(table: Table) -> list[Grid]:
    """Our results, section by section, then one grid for each published table; footnotes are numbered through."""
    notes, found = Footnotes(), sections(table)
    placed = place(table, {index for section in found for index in section.shown})
    results = Results(table, placed.beside, notes)
    ours = [
        grid
        for section in found
        for grid in results.grids(section, section.title if section.title and len(found) > 1 else "Results")
    ]
    if not ours:
        ours = [Grid(title="Results", headings=(), rows=(), footnotes=(Footnote("", NOTHING),))]
    return [*_each_said_once(ours), *(of_published(left, table, notes) for left in placed.left)]


def _each_said_once(grids: Iterable[Grid]) -> Iterator[Grid]:
    """The grids without what is true of the whole of one and was said of an earlier one."""
    said: set[Footnote] = set()
    for grid in grids:
        yield replace(grid, footnotes=tuple(note for note in grid.footnotes if note.mark or note not in said))
        said.update(note for note in grid.footnotes if not note.mark)
