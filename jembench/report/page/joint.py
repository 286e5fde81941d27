"""The joint view: what each model is worth in every respect, a few values each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jembench.catalog import spec
from jembench.experiment.sweep import bare_name
from jembench.report.record import Column, Record, Subject
from jembench.report.sections import Report
from jembench.report.text import DAGGER, Footnote, Footnotes, Heading, Table, Text, detail, record_text

ASPECTS: Mapping[str, tuple[str, ...]] = {
    "Accuracy": ("accuracy",),
    "Generation": ("fid", "is", "kid"),
    "Calibration": ("ece", "nll"),
    "Out-of-distribution": ("ood",),
    "Robustness": ("pgd", "boundary", "pointwise", "ensemble", "certified"),
}
"""The metrics of each respect, the first value of each."""

Scale = tuple[float, float]
"""The least and the largest number of a column, ends of intervals included."""


class Joint(NamedTuple):
    """The joint view of the models of one dataset."""

    table: Table
    groups: tuple[tuple[str, int], ...]  # an aspect, and the number of its columns
    scales: tuple[Scale | None, ...]  # of each column


def joint(report: Report) -> Iterator[Joint]:
    """A view for each dataset with values in any of these respects."""
    for dataset in dict.fromkeys(row.dataset for row in report.rows):
        rows = [row for row in report.rows if row.dataset == dataset]
        measured = [column for column in report.columns if any(row.has(column) for row in rows)]
        groups = {aspect: _columns(measured, metrics) for aspect, metrics in ASPECTS.items()}
        if any(groups.values()):
            yield _view(rows, {aspect: columns for aspect, columns in groups.items() if columns})


def _columns(measured: Sequence[Column], metrics: Sequence[str]) -> list[Column]:
    """The first value of each metric, under the fewest options that it was measured with."""
    found: list[Column] = []
    for name in metrics:
        firsts = {column.metric: column for column in reversed(measured) if bare_name(column.metric) == name}
        for label in dict.fromkeys(column.label for column in reversed(firsts.values())):
            alike = [column for column in measured if column in firsts.values() and column.label == label]
            fewest = min(map(_options, alike))
            found += [column for column in alike if _options(column) == fewest]
    return found


def _options(column: Column) -> int:
    return len(spec.parse(column.metric).arguments)


def _view(rows: Sequence[Subject], groups: Mapping[str, Sequence[Column]]) -> Joint:
    columns = [column for of_aspect in groups.values() for column in of_aspect]
    labels = [column.label for column in columns]
    records = [[row.records.get(column) for column in columns] for row in rows]
    several = [name for name in ("recipe", "seeds") if len({getattr(row, name) for row in rows}) > 1]
    notes = Footnotes()
    table = Table(
        title=f"All respects · dataset {rows[0].dataset_name}",
        headings=(
            *(Heading(name, identifies=True) for name in ("model", *several)),
            *(
                Heading(_label(column, alone=labels.count(column.label) == 1), detail(column.unit, column.better))
                for column in columns
            ),
        ),
        rows=tuple(
            (
                Text(row.name),
                *(Text(row.recipe if name == "recipe" else ", ".join(map(str, row.seeds))) for name in several),
                *(_marked(record_text(record, notes)) for record in of_row),
            )
            for row, of_row in zip(rows, records, strict=True)
        ),
        footnotes=(
            Footnote("One value of each metric, under the fewest options that were measured; all are in the tables."),
            *_incomparable(record for of_row in records for record in of_row),
        ),
    )
    return Joint(
        table,
        tuple((aspect, len(of_aspect)) for aspect, of_aspect in groups.items()),
        (*[None] * (1 + len(several)), *(_scale(of_column) for of_column in zip(*records, strict=True))),
    )


def _marked(text: Text) -> Text:
    """Without the marks of footnotes, which stand below the tables, but for that of other protocols."""
    return text._replace(marks=tuple(mark for mark in text.marks if mark == DAGGER))


def _incomparable(records: Iterable[Record | None]) -> Iterator[Footnote]:
    if any(record is not None and record.comparable is False for record in records):
        yield Footnote("measured under different protocols, do not compare; the tables say how they differ", DAGGER)


def _label(column: Column, *, alone: bool) -> str:
    """The label, with the options where several columns have it: ``auroc (interp)``."""
    options = spec.parse(column.metric).arguments
    return column.label if alone else f"{column.label} ({', '.join(value for _, value in options)})"


def _scale(records: Sequence[Record | None]) -> Scale | None:
    numbers = [
        number
        for record in records
        if record is not None
        for number in (record.low, record.value, record.high)
        if number is not None and math.isfinite(number)
    ]
    return (min(numbers), max(numbers)) if numbers and min(numbers) < max(numbers) else None
