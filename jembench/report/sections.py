"""What of a table is shown where: for each part of a suite a main table, and the pivot tables of its grids."""

from __future__ import annotations

from typing import NamedTuple

from jembench.experiment.plan import Part
from jembench.report.pivots import Pivot, pivots
from jembench.report.places import Places
from jembench.report.table import Table


class Section(NamedTuple):
    """What belongs together."""

    title: str
    columns: tuple[int, ...]  # of the flat table; none: there is no main table
    rows: tuple[int, ...]
    pivots: tuple[Pivot, ...]

    @property
    def shown(self) -> set[int]:
        """The columns of the flat table that it shows."""
        return {*self.columns, *(index for pivot in self.pivots for line in pivot.lines for index in line.known)}


def sections(table: Table) -> list[Section]:
    """The sections of a table, but for those of which nothing is known."""
    found = [_section(part, table) for part in table.parts]
    return [section for section in found if (section.rows and section.columns) or section.pivots]


_NOTHING = ("not asked for", "not run")
"""A row of which a part knows nothing else is another part's."""


def _section(part: Part, table: Table) -> Section:
    places = Places(part.grids)
    mine = [index for index, row in enumerate(table.rows) if part.rows is None or row.key in part.rows]
    columns = [
        index
        for index, column in enumerate(table.columns)
        if column.metric in part.metrics and not any(places.of(column.metric))
    ]
    rows = [row for row in mine if any(table.rows[row].entries[index].status not in _NOTHING for index in columns)]
    return Section(part.title, tuple(columns), tuple(rows), tuple(pivots(places, table, mine)))
