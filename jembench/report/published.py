"""Published numbers that stand beside ours, and tables of the others with the parts of their protocols that differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report.protocols import Match, compare, in_order, named
from jembench.report.record import Column, Subject
from jembench.report.references import PublishedRow, PublishedTable
from jembench.report.sections import Report
from jembench.report.text import ABSENT, Footnotes, Heading, Table, Text, detail, flat, plain


class Beside(NamedTuple):
    """A published row, as far as its numbers and ours are of the same quantity."""

    row: PublishedRow
    table: PublishedTable
    dataset: str  # spec of ours
    values: Mapping[Column, float]  # by columns of the results
    unstated: Mapping[Column, tuple[str, ...]]  # parts of our protocols that are incompletely stated there, if any


class Left(NamedTuple):
    """The rest of a published table: the rows and columns with values that correspond to no column of ours."""

    table: PublishedTable
    above: tuple[set[str], ...]  # the labels of each row whose values stand beside ours
    differs: tuple[str, ...]  # parts of the protocols of the others that differ from what is nearest of ours
    unmeasured: tuple[str, ...]  # labels of which nothing is measured here


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


def place(report: Report, shown: Collection[Column | None]) -> tuple[list[Beside], list[Left]]:
    """Sort the published numbers of a report into those beside ours and those that stay where they are.

    Args:
        report: ours, with the published tables.
        shown: the columns of ours beside which a number can stand.
    """
    ours = _ours(report, shown)
    beside: list[Beside] = []
    left: list[Left] = []
    for published in report.published:
        placed = [_of_row(row, published, ours) for row in published.rows]
        beside += (one for found, _ in placed for one in found)
        above = [labels for _, labels in placed]
        if any(row.values.keys() - labels for row, labels in zip(published.rows, above, strict=True)):
            left.append(_left(published, above, ours))
    return beside, left


def _ours(report: Report, shown: Collection[Column | None]) -> list[_Ours]:
    found: dict[tuple[Column, str], dict[str, None]] = {}
    for column in (column for column in report.columns if column in shown):
        for row in report.rows:
            if row.has(column):
                found.setdefault((column, row.dataset), {})[row.records[column].protocol] = None
    return [_Ours(column, dataset, tuple(protocols)) for (column, dataset), protocols in found.items()]


def _of_row(row: PublishedRow, published: PublishedTable, ours: Sequence[_Ours]) -> tuple[list[Beside], set[str]]:
    """Return the row beside ours, for each dataset of ours, and the labels of its values that stand there."""
    found: dict[str, Beside] = {}
    labels: set[str] = set()
    for column, one in itertools.product(published.columns, ours):
        same = (one.column.label, one.column.unit) == (column.value, column.unit)
        match = one.match(row.protocols[column.label]) if same and column.label in row.protocols else None
        if match and not match.differs:
            beside = found.get(one.dataset, Beside(row, published, one.dataset, {}, {}))
            values = {**beside.values, one.column: row.values[column.label]}
            unstated = {**beside.unstated, one.column: match.unstated}
            found[one.dataset] = beside._replace(values=values, unstated=unstated)
            labels.add(column.label)
    return list(found.values()), labels


def _left(published: PublishedTable, above: Sequence[set[str]], ours: Sequence[_Ours]) -> Left:
    """Return what has no place beside ours.

    Args:
        published: the whole table.
        above: the labels of each row whose values have one.
        ours: our protocols.
    """
    differs: dict[str, None] = {}
    labels: set[str] = set()
    unmeasured: set[str] = set()
    for row, placed in zip(published.rows, above, strict=True):
        for label in row.values.keys() - placed:
            labels.add(label)
            matches = [match for one in ours if (match := one.match(row.protocols.get(label, "none")))]
            nearest = min((match.differs for match in matches), key=len, default=())
            differs |= dict.fromkeys(nearest)
            unmeasured |= set() if nearest else {label}
    columns = tuple(column for column in published.columns if column.label in labels)
    kept = [n for n, row in enumerate(published.rows) if row.values.keys() - above[n]]
    return Left(
        replace(published, rows=tuple(published.rows[n] for n in kept), columns=columns),
        tuple(above[n] & labels for n in kept),
        in_order(differs),
        tuple(column.label for column in columns if column.label in unmeasured),
    )


# --- their tables -----------------------------------------------------------------------------------------------------

_ABOVE = "above"


def of_published(left: Left, ours: Sequence[Subject], notes: Footnotes) -> Table:
    """Return what is left of a published table, to stand below ours."""
    published = left.table
    return Table(
        title=_title(left, {_bare(row.dataset) for row in ours}),
        headings=(
            Heading("model", identifies=True),
            Heading("dataset", identifies=True),
            *(Heading(column.label, detail(column.unit, column.better)) for column in published.columns),
            Heading("standing"),
        ),
        rows=tuple(
            (
                Text(label_of(row, ours), marks=notes.marks(row.note)),
                Text(row.dataset),
                *(_value(row, column.label, above) for column in published.columns),
                Text(row.status, marks=notes.marks(source_of(row, published))),
            )
            for row, above in zip(published.rows, left.above, strict=True)
        ),
        footnotes=notes.take(_legend(left)),
    )


def label_of(row: PublishedRow, ours: Sequence[Subject]) -> str:
    """The paper's name of the model, and ours where the paper's does not tell it: ``Wide-ResNet (baseline)``."""
    is_ours = any(_bare(one.model) == _bare(row.model) for one in ours)
    says_it = set(re.findall(r"\w+", row.model.lower())) <= set(re.findall(r"\w+", row.label.lower()))
    return f"{row.label} ({row.model})" if is_ours and not says_it else row.label


def source_of(row: PublishedRow, published: PublishedTable) -> str:
    """Where a published row stands."""
    return f"{row.source}, {published.url}" if published.url else row.source


def _title(left: Left, ours: set[str]) -> str:
    theirs = list(dict.fromkeys(row.dataset for row in left.table.rows))
    title = f"Published · dataset {', '.join(theirs)}"
    if ours.intersection(map(_bare, theirs)):
        return title
    return f"{title} · another dataset than ours: for orientation, not for comparison"


def _bare(name: str) -> str:
    """``CIFAR-10`` and ``cifar10:root=/data`` are the same dataset; ``jembench-jem/jem:net=wrn-28-10`` is a ``jem``."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())


def _value(row: PublishedRow, label: str, above: set[str]) -> Text:
    if label in above:
        return Text(_ABOVE)
    return Text(plain(row.values[label])) if label in row.values else Text(ABSENT)


def _legend(left: Left) -> list[str]:
    published = left.table
    legend = []
    if published.note:
        legend.append(f"{published.note[0].upper()}{published.note[1:]}.")
    if any(column.label not in row.values for column in published.columns for row in published.rows):
        legend.append(f"{ABSENT}: not given there.")
    if any(left.above):
        legend.append(f"{_ABOVE}: stands beside ours.")
    if left.differs:
        legend.append(f"Protocols differ in: {', '.join(map(named, left.differs))}.")
    if left.unmeasured:
        legend.append(f"Not measured here: {', '.join(left.unmeasured)}.")
    return [flat(text) for text in legend]
