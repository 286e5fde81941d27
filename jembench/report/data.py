"""Tables as data, in full precision: JSON, and CSV with one line a value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from jembench.report import sheets
from jembench.report.references import PublishedColumn
from jembench.report.table import Column, Entry, Row, Table
from jembench.store.outcome import encode

SCHEMA = 1
"""The version of both layouts."""

FIELDS = (
    "kind",
    "model",
    "printed_as",
    "dataset",
    "recipe",
    "metric",
    "label",
    "status",
    "value",
    "low",
    "high",
    "sd",
    "n",
    "seeds",
    "unit",
    "better",
    "protocol",
    "comparable",
    "reason",
    "source",
    "notes",
)
"""The columns of the CSV. An empty field is not known or does not apply; what has no value says so in ``status``."""


def to_json(table: Table) -> str:
    """All that the table holds; a number that is not finite is a string."""
    content = {
        "schema": SCHEMA,
        "rows": [_row(row, table.columns) for row in table.rows],
        "published": [
            {**asdict(published), "columns": [column._asdict() for column in published.columns]}
            for published in table.published
        ],
    }
    return json.dumps(encode(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(table: Table) -> str:
    """A line for each value, ours (``measured``) first."""
    return sheets.to_csv(FIELDS, (encode(line) for line in (*_measured_lines(table), *_published_lines(table))))


def _row(row: Row, columns: tuple[Column, ...]) -> dict[str, Any]:
    return {
        "model": row.model,
        "dataset": row.dataset,
        "recipe": row.recipe,
        "seeds": row.seeds,
        "notes": row.notes,
        "values": [_value(entry, column) for entry, column in _asked_for(row, columns)],
    }


def _asked_for(row: Row, columns: tuple[Column, ...]) -> Iterator[tuple[Entry, Column]]:
    """A row's entries but for those that no part of the suite asks for."""
    found = zip(row.entries, columns, strict=True)
    return ((entry, column) for entry, column in found if entry.status != "not asked for")


def _value(entry: Entry, column: Column) -> dict[str, Any]:
    return {**column._asdict(), **asdict(entry)}


def _measured_lines(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        for entry, column in _asked_for(row, table.columns):
            yield {
                "kind": "measured",
                "model": row.model,
                "dataset": row.dataset,
                "recipe": row.recipe,
                **_value(entry, column),
                "seeds": " ".join(map(str, entry.seeds)),
                "notes": "; ".join(row.notes),
            }


def _published_lines(table: Table) -> Iterator[dict[str, Any]]:
    for published in table.published:
        columns = {column.label: column for column in published.columns}
        for row in published.rows:
            for label, value in row.values.items():
                yield {
                    "kind": row.status,
                    "model": row.model,
                    "printed_as": row.label,
                    "dataset": row.dataset,
                    **_of_column(columns[label]),
                    "status": "ok",
                    "value": value,
                    "protocol": row.protocols.get(label, ""),
                    "source": row.source,
                    "notes": "; ".join(filter(None, (row.note, published.note))),
                }


def _of_column(column: PublishedColumn) -> dict[str, Any]:
    return {"label": column.label, "unit": column.unit, "better": column.better}
