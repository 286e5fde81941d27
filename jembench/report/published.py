"""Published tables as tables of texts, each with a footnote that says why its numbers do not stand beside ours."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jembench.report.beside import Left
from jembench.report.record import ModelRecords
from jembench.report.references import PublishedRow, PublishedTable
from jembench.report.text import ABSENT, Footnote, Footnotes, Heading, Table, Text, detail, flat, plain

_ABOVE = "above"


def of_published(left: Left, ours: Sequence[ModelRecords], notes: Footnotes) -> Table:
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
                Text(label_of(row, ours), marks=(notes.mark(row.note),) if row.note else ()),
                Text(row.dataset),
                *(_value(left, number, column.label) for column in published.columns),
                Text(row.status, marks=(notes.mark(source_of(row, published)),)),
            )
            for number, row in enumerate(published.rows)
        ),
        footnotes=(*_legend(left), *notes.take()),
    )


def label_of(row: PublishedRow, ours: Sequence[ModelRecords]) -> str:
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


def _value(left: Left, number: int, label: str) -> Text:
    row = left.table.rows[number]
    if (number, label) in left.moved:
        return Text(_ABOVE)
    return Text(plain(row.values[label])) if label in row.values else Text(ABSENT)


def _legend(left: Left) -> list[Footnote]:
    published = left.table
    legend = []
    if published.note:
        legend.append(f"{published.note[0].upper()}{published.note[1:]}.")
    if any(column.label not in row.values for column in published.columns for row in published.rows):
        legend.append(f"{ABSENT}: not given there.")
    if left.moved:
        legend.append(f"{_ABOVE}: stands beside ours.")
    legend.append(f"Not comparable with ours: {'. '.join(left.reasons)}.")
    return [Footnote("", flat(text)) for text in legend]
