"""Which published numbers stand beside ours, and tables of the others with the reasons why they do not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.report.protocols import Difference, compare, in_words
from jembench.report.record import Column, Subject
from jembench.report.references import PublishedRow, PublishedTable
from jembench.report.sections import Report
from jembench.report.text import ABSENT, Footnotes, Heading, Table, Text, detail, flat, plain


class Beside(NamedTuple):
    """A published row, as far as its numbers and ours mean the same."""

    row: PublishedRow
    table: PublishedTable
    dataset: str  # spec of ours
    values: Mapping[Column, float]  # by columns of the results
    tacit: tuple[str, ...]  # parts of our protocols that are not stated there


class Left(NamedTuple):
    """The rest of a published table: the rows and columns with values that correspond to no column of ours."""

    table: PublishedTable
    above: tuple[set[str], ...]  # the labels of each row whose values stand beside ours
    reasons: tuple[str, ...]  # why the others cannot be compared, in words


class _Ours(NamedTuple):
    """Our protocols in one column on one dataset."""

    column: Column
    dataset: str
    protocols: tuple[str, ...]


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
    """The row beside ours, for each dataset of ours, and the labels of its values that stand there."""
    found: dict[str, Beside] = {}
    labels: set[str] = set()
    for column, one in itertools.product(published.columns, ours):
        same = (one.column.label, one.column.unit) == (column.value, column.unit)
        if not same or column.label not in row.protocols:
            continue
        matches = [compare(row.protocols[column.label], protocol) for protocol in one.protocols]
        if all(match and not match.differences for match in matches):
            beside = found.get(one.dataset, Beside(row, published, one.dataset, {}, ()))
            values = {**beside.values, one.column: row.values[column.label]}
            tacit = dict.fromkeys([*beside.tacit, *(part for match in matches if match for part in match.tacit)])
            found[one.dataset] = beside._replace(values=values, tacit=tuple(tacit))
            labels.add(column.label)
    return list(found.values()), labels


# --- what is left -----------------------------------------------------------------------------------------------------


def _left(published: PublishedTable, above: Sequence[set[str]], ours: Sequence[_Ours]) -> Left:
    """What has no place beside ours.

    Args:
        published: the whole table.
        above: the labels of each row whose values have one.
        ours: our protocols.
    """
    staying = {label: list[PublishedRow]() for label in (column.label for column in published.columns)}
    for row, labels in zip(published.rows, above, strict=True):
        for label in row.values.keys() - labels:
            staying[label].append(row)
    columns = tuple(column for column in published.columns if staying[column.label])
    kept = [n for n, row in enumerate(published.rows) if row.values.keys() - above[n]]
    reasons = {column.label: _reasons(column.label, staying[column.label], ours) for column in columns}
    return Left(
        replace(published, rows=tuple(published.rows[n] for n in kept), columns=columns),
        tuple(above[n] & reasons.keys() for n in kept),
        tuple(_sentences(reasons)),
    )


def _reasons(label: str, rows: Sequence[PublishedRow], ours: Sequence[_Ours]) -> list[str]:
    """Why the numbers of a column cannot stand beside ours: how each differs from what it is nearest to of ours."""
    differences: list[Difference] = []
    others: dict[str, None] = {}
    for row in rows:
        protocol = row.protocols.get(label)
        nearest = _nearest(protocol, ours) if protocol else None
        if protocol is None:
            others["no metric here gives such a number"] = None
        elif nearest is None:
            others[_NOT_MEASURED] = None
        elif not nearest:
            others["ours are of several protocols"] = None
        else:
            asked_for = [d for d in nearest if d.ours != _ANOTHER or d.published is None]
            others |= {} if asked_for == nearest else {_NOT_MEASURED: None}
            differences += (d._replace(published=row.dataset) if d.part == "data" else d for d in asked_for)
    return [*in_words(differences), *others]


_NOT_MEASURED = "not measured here"
_ANOTHER = "another"
"""What ours is called where there are several that are as near, none of which is the one."""


def _nearest(protocol: str, ours: Sequence[_Ours]) -> list[Difference] | None:
    """What is different from those of ours that it is nearest to; None if we have nothing of the metric."""
    compared = [compare(protocol, own) for one in ours for own in one.protocols]
    found = [one.differences for one in compared if one is not None]
    if not found:
        return None
    fewest = min(map(len, found))
    together: dict[tuple[str, str | None], set[str | None]] = {}
    for part, published, own in (d for differences in found if len(differences) == fewest for d in differences):
        together.setdefault((part, published), set()).add(own)
    return [
        Difference(part, published, *(own if len(own) == 1 else {_ANOTHER}))
        for (part, published), own in together.items()
    ]


def _sentences(reasons: Mapping[str, Sequence[str]]) -> list[str]:
    """What holds for every column, then what is peculiar to some."""
    compared = [texts for texts in reasons.values() if texts != [_NOT_MEASURED]] or list(reasons.values())
    common = [text for text in compared[0] if all(text in texts for texts in compared)]
    grouped: dict[tuple[str, ...], list[str]] = {}
    for label, texts in reasons.items():
        if peculiar := tuple(text for text in texts if text not in common):
            grouped.setdefault(peculiar, []).append(label)
    peculiarities = [f"{', '.join(labels)}: {'; '.join(texts)}" for texts, labels in grouped.items()]
    return [*(["; ".join(common)] if common else []), *peculiarities]


# --- their tables -----------------------------------------------------------------------------------------------------

_ABOVE = "above"


def of_published(left: Left, ours: Sequence[Subject], notes: Footnotes) -> Table:
    """What is left of a published table, below ours."""
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
    legend.append(f"Not comparable with ours: {'. '.join(left.reasons)}.")
    return [flat(text) for text in legend]
