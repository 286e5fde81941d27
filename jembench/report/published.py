"""Published numbers that stand beside ours, and the tables of papers with the parts of their protocols that differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from jembench.report.protocols import Match, compare, in_order, named
from jembench.report.record import Column, Subject, grouped
from jembench.report.references import Published
from jembench.report.sections import Report
from jembench.report.text import ABSENT, Footnotes, Heading, Table, Text, detail, flat, plain


class Beside(NamedTuple):
    """A published number that is of the same quantity as ours in a column."""

    published: Published
    dataset: str  # spec of ours
    column: Column
    unstated: tuple[str, ...]  # parts of our protocol that are incompletely stated there


class Elsewhere(NamedTuple):
    """A published table that has numbers which correspond to none of ours."""

    numbers: Sequence[Published]
    differs: tuple[str, ...]  # parts of their protocols that differ from what is nearest of ours


class _Ours(NamedTuple):
    """Our protocols in one column on one dataset."""

    column: Column
    dataset: str
    protocols: tuple[str, ...]

    def match(self, published: str) -> Match | None:
        """Compare a published protocol with all of ours, which then must all agree with it."""
        found = [compare(published, own, self.column.metric) for own in self.protocols]
        known = [match for match in found if match is not None]
        if len(known) < len(found):
            return None
        return Match(*(tuple(dict.fromkeys(itertools.chain(*parts))) for parts in zip(*known, strict=True)))


def place(report: Report, shown: Collection[Column | None]) -> tuple[list[Beside], list[Elsewhere]]:
    """Find the published numbers that stand beside ours, and the tables of the others.

    Args:
        report: ours, with the published numbers.
        shown: the columns of ours beside which a number can stand.
    """
    ours = _ours(report, shown)
    beside: list[Beside] = []
    elsewhere: list[Elsewhere] = []
    for table in grouped(report.published, lambda number: number.table):
        differs: dict[str, None] = {}
        is_whole = True
        for number in table:
            matches = [(one, match) for one in ours if number.protocol and (match := one.match(number.protocol))]
            same = [(one, match) for one, match in matches if not match.differs and _is_of(number, one.column)]
            beside += (Beside(number, one.dataset, one.column, match.unstated) for one, match in same)
            if not same:
                is_whole = False
                nearest: tuple[str, ...] = min((match.differs for _, match in matches), key=len, default=())
                differs |= dict.fromkeys(nearest)
        if not is_whole:
            elsewhere.append(Elsewhere(table, in_order(differs)))
    return beside, elsewhere


def _is_of(number: Published, column: Column) -> bool:
    return (column.label, column.unit) == (number.quantity, number.unit)


def _ours(report: Report, shown: Collection[Column | None]) -> list[_Ours]:
    found: dict[tuple[Column, str], dict[str, None]] = {}
    for column in (column for column in report.columns if column in shown):
        for row in report.rows:
            if row.has(column):
                found.setdefault((column, row.dataset), {})[row.records[column].protocol] = None
    return [_Ours(column, dataset, tuple(protocols)) for (column, dataset), protocols in found.items()]


# --- their tables -----------------------------------------------------------------------------------------------------


def of_published(elsewhere: Elsewhere, ours: Sequence[Subject], notes: Footnotes) -> Table:
    """Return a published table as a whole, to stand below ours."""
    rows = grouped(elsewhere.numbers, lambda number: number.row)
    columns = {number.label: number for number in sorted(elsewhere.numbers, key=lambda number: number.column)}
    datasets = list(dict.fromkeys(number.dataset for number in elsewhere.numbers))
    is_other = {_bare(row.dataset) for row in ours}.isdisjoint(map(_bare, datasets))
    legend = [note[0].upper() + note[1:] + "." for note in (elsewhere.numbers[0].table_note,) if note]
    legend += [f"{ABSENT}: not given there."] if any(len(row) < len(columns) for row in rows) else []
    legend += [f"Protocols differ in: {', '.join(map(named, elsewhere.differs))}."] if elsewhere.differs else []
    return Table(
        title=f"Published · dataset {', '.join(datasets)}"
        + " · another dataset than ours: for orientation, not for comparison" * is_other,
        headings=(
            Heading("model", identifies=True),
            Heading("dataset", identifies=True),
            *(Heading(label, detail(column.unit, column.better)) for label, column in columns.items()),
            Heading("standing"),
        ),
        rows=tuple(
            (
                Text(label_of(row[0], ours), marks=notes.marks(row[0].note)),
                Text(row[0].dataset),
                *(Text(values.get(label, ABSENT)) for label in columns),
                Text(row[0].status, marks=notes.marks(source_of(row[0]))),
            )
            for row in rows
            for values in [{number.label: plain(number.value) for number in row}]
        ),
        footnotes=notes.take(map(flat, legend)),
    )


def label_of(number: Published, ours: Sequence[Subject]) -> str:
    """Return the paper's name of a model, with ours where that does not tell it: ``Wide-ResNet (baseline)``."""
    is_ours = any(_bare(one.model) == _bare(number.model) for one in ours)
    says_it = set(re.findall(r"\w+", number.model.lower())) <= set(re.findall(r"\w+", number.printed_as.lower()))
    return f"{number.printed_as} ({number.model})" if is_ours and not says_it else number.printed_as


def source_of(number: Published) -> str:
    """Return where a published number stands."""
    return f"{number.source}, {number.url}" if number.url else number.source


def _bare(name: str) -> str:
    """Reduce a name for comparison: ``CIFAR-10`` and ``cifar10:root=/data`` are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())
