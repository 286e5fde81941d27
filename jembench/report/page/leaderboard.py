"""The index of the pages of several stores: a leaderboard of their models."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report import respects
from jembench.report.page.content import fit_anchor
from jembench.report.protocols import peculiarities
from jembench.report.rows import Row, grouped, values_of
from jembench.report.table import NOTES, Footnote, Heading, Table, TableCell, numbered, pivot
from jembench.report.tables import heading_of, outliers_in, recipe_name, remarks
from jembench.store.outcome import Trained


class Ranked(NamedTuple):
    """The results of a store that was verified."""

    store: str  # the store's name for people
    page: str  # the file of the store's page
    rows: Sequence[Row]  # means over seeds
    fits: Mapping[Trained, str]  # the id of the first seed of each model


def leaderboard(entries: Sequence[Ranked]) -> list[Table]:
    """Return a table for each dataset: the models of all stores, best ones first.

    Values are those of the joint view.

    Values of different protocols stand in columns of their own. A model links to the training, a
    store to its page and a number to its place on that page. A result that several stores hold is
    listed under the first store.
    """
    entry_of: dict[Row, Ranked] = {}
    for entry in entries:
        for row in entry.rows:
            if row.value is not None:
                entry_of.setdefault(replace(row, comparable=None), entry)
    shown = itertools.chain(*respects.headline([*entry_of]).values())
    tables = []
    for rows in grouped(shown, lambda row: row.dataset):
        table = _table(rows, entry_of)
        lines = [_linked(line, entry_of) for line in table.rows]
        below = (NOTES["verified"], *remarks(rows, ()), NOTES["protocol"])
        footnotes = tuple(map(Footnote, below))
        tables.append(replace(table, rows=tuple(lines), footnotes=footnotes))
    return numbered(tables)


def _table(rows: Sequence[Row], entry_of: Mapping[Row, Ranked]) -> Table:
    columns = _columns(rows)
    first_column = next(iter(columns))

    def rank(line: Sequence[Row]) -> tuple[bool, float]:
        in_first = [row for row in line if (row.label, row.protocol) == first_column]
        total = sum(values_of(in_first))
        if line[0].better == "higher":
            total = -total
        return not in_first, total

    lines = sorted(grouped(rows, lambda row: (entry_of[row].page, row.fit)), key=rank)
    return pivot(
        [*itertools.chain(*lines)],
        {
            "model": lambda row: row.name,
            "store": lambda row: entry_of[row].store,
            "recipe": lambda row: recipe_name(row.recipe),
        },
        columns.values(),
        lambda row: columns[row.label, row.protocol],
        title=f"Leaderboard · dataset {rows[0].dataset_name}",
    )


def _columns(rows: Sequence[Row]) -> dict[tuple[str, str], Heading]:
    """Return the heading of each label and protocol, with the protocol's peculiarities."""
    columns: dict[tuple[str, str], Heading] = {}
    for alike in grouped(rows, _heading):
        heading, label = _heading(alike[0]), alike[0].label
        protocols = list(dict.fromkeys(row.protocol for row in alike))
        if len(protocols) == 1:
            columns[label, protocols[0]] = heading
            continue
        for protocol, text in zip(protocols, peculiarities(protocols), strict=True):
            detail = ", ".join(filter(None, (heading.detail, text)))
            columns[label, protocol] = heading._replace(detail=detail)
    return columns


def _heading(row: Row) -> Heading:
    return heading_of(row, outliers_in(row))


def _linked(line: Sequence[TableCell], entry_of: Mapping[Row, Ranked]) -> tuple[TableCell, ...]:
    """Return a line with the addresses of its cells."""
    row = next(cell.row for cell in line if cell.row)
    entry = entry_of[row]
    model, store, recipe, *values = line
    linked = [
        model._replace(href=f"{entry.page}{fit_anchor(entry.fits[row.fit])}"),
        store._replace(href=f"{entry.page}#overview"),
        recipe,
    ]
    for cell in values:
        linked.append(cell._replace(href=entry.page if cell.row else ""))
    return tuple(linked)
