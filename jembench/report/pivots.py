"""Pivot tables: one value of a metric under every combination of some of its options.

A pivot table has a row for each choice of its row options and each model, and a column for each choice of its column
options. It holds no numbers, only where in the flat table they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jembench.experiment.sweep import Axis, Grid, combinations
from jembench.report.places import Places
from jembench.report.table import Column, Entry, Table

_Choice = tuple[str, ...]  # a value for each option of the rows, or of the columns


class Line(NamedTuple):
    """One choice of the row options, for every model."""

    values: tuple[str, ...]  # of the options that differ from line to line
    columns: tuple[int | None, ...]  # of the flat table, one a heading; None: nothing is known there

    @property
    def known(self) -> list[int]:
        """The columns of the flat table."""
        return [index for index in self.columns if index is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pivot:
    """One value of one grid."""

    title: str
    value: Column  # its label, unit and better direction
    throughout: Mapping[str, str]  # row options that are the same in all of it
    options: tuple[str, ...]  # those that differ from line to line
    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    rows: tuple[int, ...]  # of the flat table

    def entry(self, table: Table, row: int, column: int | None) -> Entry:
        """What the flat table says in a place of this one."""
        if column is None:
            return Entry(status="not run")
        found, entry = table.columns[column], table.rows[row].entries[column]
        if found.label == self.value.label or entry.value is None:
            return entry
        return Entry(status="na", reason=f"{found.metric} gives {found.label} here, not {self.value.label}")


def pivots(places: Places, table: Table, rows: Sequence[int]) -> Iterator[Pivot]:
    """The pivot tables of some grids, one for each value that is shown and of which something is known.

    Args:
        places: where the metrics of the flat table stand in the grids.
        table: the flat table.
        rows: those of its rows that the grids are about.
    """
    for number, grid in enumerate(places.grids):
        covered = [row for row in rows if grid.covers(table.rows[row].dataset)]
        for extras, where in _by_extras(places, table, number).items():
            title = f"{grid.title} · {extras}" if extras else grid.title
            yield from _Content(grid, title, where, table).pivots(covered)


def _by_extras(places: Places, table: Table, number: int) -> dict[str, dict[tuple[_Choice, _Choice], str]]:
    """The metrics in a grid by row and column; those that set more than it does apart from the rest."""
    found: dict[str, dict[tuple[_Choice, _Choice], str]] = {}
    for metric in dict.fromkeys(column.metric for column in table.columns):
        for placed in places.of(metric):
            if placed.grid == number:
                found.setdefault(placed.extras, {})[placed.place.row, placed.place.column] = metric
    return found


class _Content:
    """What the flat table holds of one grid."""

    def __init__(self, grid: Grid, title: str, where: Mapping[tuple[_Choice, _Choice], str], table: Table) -> None:
        self.grid, self.title, self.table = grid, title, table
        metrics = set(where.values())
        self.columns = [index for index, column in enumerate(table.columns) if column.metric in metrics]
        self.where = {
            place: [index for index in self.columns if table.columns[index].metric == metric]
            for place, metric in where.items()
        }

    def pivots(self, rows: Sequence[int]) -> Iterator[Pivot]:
        """A table for each value; a row that has none of them is in the first."""
        known = [row for row in rows if any(self._status(row, i) not in _UNKNOWN for i in self.columns)]
        values = self._values()
        having = [[row for row in known if self._has(row, value.label)] for value in values]
        having[0] = [row for row in known if row in having[0] or not any(row in others for others in having)]
        for value, mine in zip(values, having, strict=True):
            if mine:
                yield self._pivot(value, mine)

    def _values(self) -> list[Column]:
        found = [self.table.columns[index] for index in self.columns]
        measured = {column.label: column for column in found if column.label != column.metric}
        if not self.grid.values:
            return list(measured.values()) or [Column(self.grid.metric, self.grid.metric)]
        labels = [label for value in self.grid.values for label in _answering(value, measured)]
        return [measured.get(label, Column(self.grid.metric, label)) for label in labels]

    def _has(self, row: int, label: str) -> bool:
        entries = self.table.rows[row].entries
        return any(self.table.columns[i].label == label and entries[i].value is not None for i in self.columns)

    def _status(self, row: int, column: int | None) -> str:
        return "not run" if column is None else self.table.rows[row].entries[column].status

    def _column(self, place: tuple[_Choice, _Choice], value: Column) -> int | None:
        """Where the value is; else where it is said why there is none."""
        candidates = self.where.get(place, [])
        labelled = [index for index in candidates if self.table.columns[index].label == value.label]
        return next(iter(labelled + candidates), None)

    def _pivot(self, value: Column, rows: Sequence[int]) -> Pivot:
        axes = self.grid.rows
        choices = [choice for choice in combinations(axes) if any(row == choice for row, _ in self.where)]
        headings = [
            heading
            for heading in combinations(self.grid.columns)
            if any(column == heading for _, column in self.where)
            and any(
                self._status(row, self._column((c, heading), value)) != "not asked for" for c in choices for row in rows
            )
        ]
        differing = [index for index, axis in enumerate(axes) if len(axis.values) > 1]
        return Pivot(
            title=self.title,
            value=value,
            throughout={axis.option: axis.values[0] for axis in axes if len(axis.values) == 1},
            options=tuple(axes[index].option for index in differing),
            headings=tuple(_heading(self.grid.columns, heading) for heading in headings),
            lines=tuple(
                Line(
                    tuple(choice[index] for index in differing),
                    tuple(self._column((choice, heading), value) for heading in headings),
                )
                for choice in choices
            ),
            rows=tuple(rows),
        )


_UNKNOWN = ("not asked for", "not run")


def _answering(value: str, labels: Mapping[str, Column]) -> list[str]:
    """The labels that a grid means: ``is-digits-cnn`` is an ``is``, under a feature network of another name."""
    return [label for label in labels if f"{label}-".startswith(f"{value}-")] or [value]


def _heading(axes: Sequence[Axis], values: _Choice) -> str:
    return " ".join(_named(axis, value) for axis, value in zip(axes, values, strict=True))


def _named(axis: Axis, value: str) -> str:
    """``interp`` says what it is; ``0.1`` is shown with the name of its option, ``celeba:root=/data`` without its own.

    But for options that alone tell it from another value.
    """
    if not value[:1].isalpha() or value in ("true", "false", "none"):
        return f"{axis.option} {value}"
    names = [other.partition(":")[0] for other in axis.values]
    name = value.partition(":")[0]
    return name if names.count(name) == 1 else value
