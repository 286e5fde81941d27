"""Published numbers that stand beside ours, and the tables of papers with the parts of their protocols that differ."""

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from jembench.report import headings
from jembench.report.protocols import Match, compare, in_words
from jembench.report.references import Published
from jembench.report.rows import Row, grouped
from jembench.report.table import ABSENT, Footnotes, Heading, Table, detail, flat, pivot


class Elsewhere(NamedTuple):
    """A published table that has numbers which correspond to none of ours."""

    numbers: Sequence[Published]
    differs: Set[str]  # parts of their protocols that differ from what is nearest of ours


def beside(published: Sequence[Published], ours: Sequence[Row]) -> tuple[list[Row], list[Elsewhere]]:
    """Find the published numbers that are of the same quantity as ours in a column, and the tables of the others.

    Args:
        published: the numbers.
        ours: means over seeds.

    Returns:
        The numbers as rows in our columns, and the tables that have others.
    """
    measured = grouped((row for row in ours if row.value is not None), lambda row: (row.dataset, row.place))
    columns = [(column[0], {row.protocol for row in column}) for column in measured]
    found: list[Row] = []
    elsewhere: list[Elsewhere] = []
    for table in grouped(published, lambda number: number.table):
        differs, placed = set[str](), 0
        for number in table:
            matches = list[tuple[Row, Match]]()
            for one, protocols in columns if number.row.protocol else ():
                compared = [compare(number.row.protocol, own, one.metric) for own in protocols]
                known = [match for match in compared if match is not None]
                if len(known) == len(compared):  # it must agree with all of ours
                    parts = (set[str]().union(*of_all) for of_all in zip(*known, strict=True))
                    matches.append((one, Match(*parts)))
            wanted = (number.quantity, number.row.unit)
            same = [(one, match) for one, match in matches if not match.differs and (one.label, one.unit) == wanted]
            found += (_in_column(number, one, match.unstated, ours) for one, match in same)
            placed += bool(same)
            if not same:
                differs |= min((match.differs for _, match in matches), key=len, default=set[str]())
        if placed < len(table):
            elsewhere.append(Elsewhere(table, differs))
    return found, elsewhere


def _in_column(number: Published, own: Row, unstated: Set[str], ours: Sequence[Row]) -> Row:
    return replace(
        _named(number, ours, f" · {number.status}"),
        dataset=own.dataset,
        metric=own.metric,
        label=own.label,
        better=own.better,
        headed=own.headed,
        reason=f"same quantity, protocol incompletely stated there: {in_words(unstated)}" if unstated else "",
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
    columns = {row.label: Heading(headings.in_words(row.label), detail(row.unit, row.better)) for row in in_order}
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
    legend += [f"Protocols differ in: {in_words(elsewhere.differs)}."] if elsewhere.differs else []
    return replace(table, footnotes=notes.take(map(flat, legend)))


def _bare(name: str) -> str:
    """Reduce a name for comparison: ``CIFAR-10`` and ``cifar10:root=/data`` are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())
