"""The index of the pages of several stores: a leaderboard of their models."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report import respects
from jembench.report.page.content import fit_anchor
from jembench.report.protocols import peculiarities
from jembench.report.rows import Row, grouped
from jembench.report.table import NOTES, Footnote, Heading, Table, TableCell, numbered, pivot
from jembench.report.tables import heading_of, outliers_in, recipe_name, remarks
from jembench.store.outcome import Trained


class Entry(NamedTuple):
    """The results of a store that was verified."""

    store: str  # its name for people
    page: str  # the file of its page
    rows: Sequence[Row]  # means over seeds
    fits: Mapping[Trained, str]  # the id of the first seed of each model


def leaderboard(entries: Sequence[Entry]) -> list[Table]:
    """Return a table for each dataset: the models of all stores, best ones first.

    Values are those of the joint view.

    Values of different protocols stand in columns of their own. A model leads to its training, a
    store to its page and a number to its place there. A result that several stores hold stands with
    the first of them.
    """
    of_row: dict[Row, Entry] = {}
    for entry in entries:
        for row in entry.rows:
            if row.value is not None:
                of_row.setdefault(replace(row, comparable=None), entry)
    shown, tables = itertools.chain(*respects.headline([*of_row]).values()), list[Table]()
    for rows in grouped(shown, lambda row: row.dataset):
        table = _table(rows, of_row)
        lines = tuple(_linked(line, of_row) for line in table.rows)
        below = (NOTES["verified"], *remarks(rows, ()), NOTES["protocol"])
        tables.append(replace(table, rows=lines, footnotes=tuple(map(Footnote, below))))
    return numbered(tables)


def _table(rows: Sequence[Row], of_row: Mapping[Row, Entry]) -> Table:
    columns: dict[tuple[str, str], Heading] = {}
    for alike in grouped(rows, lambda row: heading_of(row, outliers_in(row.protocol))):
        head = heading_of(alike[0], outliers_in(alike[0].protocol))
        protocols = list(dict.fromkeys(row.protocol for row in alike))
        for protocol, text in zip(protocols, peculiarities(protocols), strict=True):
            parts = (head.detail, text if len(protocols) > 1 else "")
            columns[alike[0].label, protocol] = head._replace(detail=", ".join(filter(None, parts)))

    def rank(line: Sequence[Row]) -> tuple[bool, float]:
        values = [
            row.value or 0.0 for row in line if (row.label, row.protocol) == next(iter(columns))
        ]
        return not values, -sum(values) if line[0].better == "higher" else sum(values)

    lines = sorted(grouped(rows, lambda row: (of_row[row].page, row.fit)), key=rank)
    return pivot(
        [row for line in lines for row in line],
        {
            "model": lambda row: row.name,
            "store": lambda row: of_row[row].store,
            "recipe": lambda row: recipe_name(row.recipe),
        },
        columns.values(),
        lambda row: columns[row.label, row.protocol],
        title=f"Leaderboard · dataset {rows[0].dataset_name}",
    )


def _linked(line: Sequence[TableCell], of_row: Mapping[Row, Entry]) -> tuple[TableCell, ...]:
    """Return a line with the addresses that its cells lead to."""
    row = next(cell.row for cell in line if cell.row)
    entry, (model, store, recipe, *values) = of_row[row], line
    model = model._replace(href=f"{entry.page}{fit_anchor(entry.fits[row.fit])}")
    store = store._replace(href=f"{entry.page}#overview")
    return (
        model,
        store,
        recipe,
        *(cell._replace(href=entry.page if cell.row else "") for cell in values),
    )
