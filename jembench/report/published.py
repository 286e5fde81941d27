"""Published numbers that stand beside ours, and the tables of papers with the parts of their protocols that differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report.protocols import Match, compare, in_order, named
from jembench.report.references import Published
from jembench.report.rows import Row, grouped
from jembench.report.table import ABSENT, Footnotes, Heading, Table, detail, flat, pivot


class Elsewhere(NamedTuple):
    """A published table that has numbers which correspond to none of ours."""

    numbers: Sequence[Published]
    differs: tuple[str, ...]  # parts of their protocols that differ from what is nearest of ours


def row_of(number: Published) -> Row:
    """Return a published number as a row."""
    return Row(
        model=number.model,
        name=number.printed_as,
        dataset=number.dataset,
        label=number.label,
        value=number.value,
        unit=number.unit,
        better=number.better,
        protocol=number.protocol,
        source=_source(number),
        notes=tuple(filter(None, (number.note, number.table_note))),
        dataset_name=number.dataset,
    )


def beside(published: Sequence[Published], ours: Sequence[Row]) -> tuple[list[Row], list[Elsewhere]]:
    """Find the published numbers that are of the same quantity as ours in a column, and the tables of the others.

    Args:
        published: the numbers.
        ours: means over seeds.

    Returns:
        The numbers as rows in our columns, and the tables that have others.
    """
    columns = grouped((row for row in ours if row.value is not None), lambda row: (row.dataset, row.place))
    found: list[Row] = []
    elsewhere: list[Elsewhere] = []
    for table in grouped(published, lambda number: number.table):
        differs: dict[str, None] = {}
        is_whole = True
        for number in table:
            matches = [(column[0], match) for column in columns if (match := _match(number, column))]
            same = [(one, match) for one, match in matches if not match.differs and _is_of(number, one)]
            found += (_in_column(number, one, match.unstated, ours) for one, match in same)
            if not same:
                is_whole = False
                nearest: tuple[str, ...] = min((match.differs for _, match in matches), key=len, default=())
                differs |= dict.fromkeys(nearest)
        if not is_whole:
            elsewhere.append(Elsewhere(table, in_order(differs)))
    return found, elsewhere


def _match(number: Published, column: Sequence[Row]) -> Match | None:
    """Compare a published protocol with all of ours in a column, which then must all agree with it."""
    protocols = dict.fromkeys(row.protocol for row in column)
    found = [compare(number.protocol, own, column[0].metric) if number.protocol else None for own in protocols]
    known = [match for match in found if match is not None]
    if len(known) < len(found):
        return None
    return Match(*(tuple(dict.fromkeys(itertools.chain(*parts))) for parts in zip(*known, strict=True)))


def _is_of(number: Published, row: Row) -> bool:
    return (row.label, row.unit) == (number.quantity, number.unit)


def _in_column(number: Published, own: Row, unstated: Sequence[str], ours: Sequence[Row]) -> Row:
    parts = ", ".join(map(named, unstated))
    return replace(
        row_of(number),
        name=f"{_label_of(number, ours)} · {number.status}",
        dataset=own.dataset,
        metric=own.metric,
        label=own.label,
        better=own.better,
        reason=f"same quantity, protocol incompletely stated there: {parts}" if parts else "",
        notes=_notes(number),
    )


def _source(number: Published) -> str:
    return f"{number.source}, {number.url}" if number.url else number.source


def _notes(number: Published) -> tuple[str, ...]:
    return tuple(filter(None, (number.note, f"{number.status}: {_source(number)}")))


# --- their tables -----------------------------------------------------------------------------------------------------


def published_table(elsewhere: Elsewhere, ours: Sequence[Row], notes: Footnotes) -> Table:
    """Return a published table as a whole, to stand below ours."""
    numbers = sorted(elsewhere.numbers, key=lambda number: number.column)
    columns = {number.label: Heading(number.label, detail(number.unit, number.better)) for number in numbers}
    rows = [
        replace(
            row,
            name=_label_of(number, ours),
            notes=tuple(filter(None, (number.note, f"{number.status}: {row.source}"))),
        )
        for number in elsewhere.numbers
        for row in [row_of(number)]
    ]
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    is_other = {_bare(row.dataset) for row in ours}.isdisjoint(map(_bare, datasets))
    table = pivot(
        rows,
        {"model": lambda row: row.name, "dataset": lambda row: row.dataset},
        columns.values(),
        lambda row: columns[row.label],
        notes,
        title=f"Published · dataset {', '.join(datasets)}"
        + " · another dataset than ours: for orientation, not for comparison" * is_other,
    )
    legend = [note[0].upper() + note[1:] + "." for note in (elsewhere.numbers[0].table_note,) if note]
    legend += [f"{ABSENT}: not given there."] if len(rows) < len(table.rows) * len(columns) else []
    legend += [f"Protocols differ in: {', '.join(map(named, elsewhere.differs))}."] if elsewhere.differs else []
    return replace(table, footnotes=notes.take(map(flat, legend)))


def _label_of(number: Published, ours: Sequence[Row]) -> str:
    """Return the paper's name of a model, with ours where that does not tell it: ``Wide-ResNet (baseline)``."""
    is_ours = any(_bare(one.model) == _bare(number.model) for one in ours)
    says_it = set(re.findall(r"\w+", number.model.lower())) <= set(re.findall(r"\w+", number.printed_as.lower()))
    return f"{number.printed_as} ({number.model})" if is_ours and not says_it else number.printed_as


def _bare(name: str) -> str:
    """Reduce a name for comparison: ``CIFAR-10`` and ``cifar10:root=/data`` are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())
