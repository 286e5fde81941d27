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
        differs, placed = dict[str, None](), 0
        for number in table:
            matches = [(column[0], match) for column in columns if (match := _match(number, column))]
            wanted = (number.quantity, number.row.unit)
            same = [(one, match) for one, match in matches if not match.differs and (one.label, one.unit) == wanted]
            found += (_in_column(number, one, match.unstated, ours) for one, match in same)
            placed += bool(same)
            if not same:
                nearest: tuple[str, ...] = min((match.differs for _, match in matches), key=len, default=())
                differs |= dict.fromkeys(nearest)
        if placed < len(table):
            elsewhere.append(Elsewhere(table, in_order(differs)))
    return found, elsewhere


def _match(number: Published, column: Sequence[Row]) -> Match | None:
    """Compare a published protocol with all of ours in a column, which then must all agree with it."""
    theirs, protocols = number.row.protocol, dict.fromkeys(row.protocol for row in column)
    found = [compare(theirs, own, column[0].metric) if theirs else None for own in protocols]
    known = [match for match in found if match is not None]
    if len(known) < len(found):
        return None
    return Match(*(tuple(dict.fromkeys(itertools.chain(*parts))) for parts in zip(*known, strict=True)))


def _in_column(number: Published, own: Row, unstated: Sequence[str], ours: Sequence[Row]) -> Row:
    parts = ", ".join(map(named, unstated))
    return replace(
        _named(number, ours, f" · {number.status}"),
        dataset=own.dataset,
        metric=own.metric,
        label=own.label,
        better=own.better,
        reason=f"same quantity, protocol incompletely stated there: {parts}" if parts else "",
    )


def _named(number: Published, ours: Sequence[Row], standing: str = "") -> Row:
    """Return a row under the paper's name of a model, with ours where that does not tell it: ``WRN (baseline)``."""
    row = number.row
    is_ours = any(_bare(one.model) == _bare(row.model) for one in ours)
    says_it = set(re.findall(r"\w+", row.model.lower())) <= set(re.findall(r"\w+", row.name.lower()))
    name = f"{row.name} ({row.model})" if is_ours and not says_it else row.name
    return replace(row, name=name + standing, notes=(*row.notes, f"{number.status}: {row.source}"))


# --- their tables -----------------------------------------------------------------------------------------------------


def published_table(elsewhere: Elsewhere, ours: Sequence[Row], notes: Footnotes) -> Table:
    """Return a published table as a whole, to stand below ours."""
    in_order = [number.row for number in sorted(elsewhere.numbers, key=lambda number: number.column)]
    columns = {row.label: Heading(row.label, detail(row.unit, row.better)) for row in in_order}
    rows = [_named(number, ours) for number in elsewhere.numbers]
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
    legend = [note[0].upper() + note[1:] + "." for note in (elsewhere.numbers[0].note,) if note]
    legend += [f"{ABSENT}: not given there."] if len(rows) < len(table.rows) * len(columns) else []
    legend += [f"Protocols differ in: {', '.join(map(named, elsewhere.differs))}."] if elsewhere.differs else []
    return replace(table, footnotes=notes.take(map(flat, legend)))


def _bare(name: str) -> str:
    """Reduce a name for comparison: ``CIFAR-10`` and ``cifar10:root=/data`` are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())
