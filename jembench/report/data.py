"""Results as data: JSON with a list of values for each model, and CSV with a line for each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from jembench.report.formats import Document
from jembench.report.layout import tables
from jembench.report.record import ModelRecords, Record
from jembench.report.references import PublishedTable
from jembench.report.sections import Report

SCHEMA = 1
"""The version of both layouts."""


def document(report: Report) -> Document:
    """The results, ours first, then the published numbers."""
    return Document(
        tables=partial(tables, report),
        content=partial(_content, report),
        records=partial(_records, report),
        fields=_FIELDS,
    )


def _records(report: Report) -> Iterator[dict[str, Any]]:
    ours = (record for row in report.rows for record in row.records.values())
    published = (record for table in report.published for record in records_of(table))
    for record in (*ours, *published):
        yield {**_fields(record, _FIELDS), "notes": "; ".join(record.notes)}


def _content(report: Report) -> dict[str, Any]:
    published = [
        {**asdict(table), "columns": [column._asdict() for column in table.columns]} for table in report.published
    ]
    return {"schema": SCHEMA, "rows": [_row(row) for row in report.rows], "published": published}


_FIELDS = tuple(field.name for field in fields(Record))
_OF_MODEL = ("model", "dataset", "recipe", "seeds", "notes")
_OF_VALUE = ("metric", "label", "unit", "better", "status", "value", "low", "high", "sd", "n", "protocol", "comparable")


def _fields(of: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _row(row: ModelRecords) -> dict[str, Any]:
    values = [_fields(record, (*_OF_VALUE, "seeds", "reason")) for record in row.records.values()]
    return {**_fields(row, _OF_MODEL), "values": values}


def records_of(table: PublishedTable) -> Iterator[Record]:
    """The numbers of a published table."""
    columns = {column.label: column for column in table.columns}
    for row in table.rows:
        for label, value in row.values.items():
            yield Record(
                kind=row.status,
                model=row.model,
                printed_as=row.label,
                dataset=row.dataset,
                label=label,
                unit=columns[label].unit,
                better=columns[label].better,
                status="ok",
                value=value,
                protocol=row.protocols.get(label, ""),
                source=row.source,
                notes=tuple(filter(None, (row.note, table.note))),
            )
