"""Rows for other programs: one for each value of each cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from jembench.errors import SpecError
from jembench.report.formats import Document, of_records
from jembench.report.names import NO_NAMES, Names
from jembench.report.record import Record, columns_of, record, subjects
from jembench.store.outcome import Cell

_ORIGIN = ("seed", "limit", "fit", "cell", "time", "seconds")

VALUES = [*(field.name for field in dataclasses.fields(Record)), *_ORIGIN]
"""The fields of a value of one seed: those of a record, and where it comes from."""


def per_seed(cells: Iterable[Cell], names: Names) -> Document:
    """Return the values of each seed, for formats that programs read."""

    def refuse() -> Any:
        raise SpecError("The values of each seed are for programs. Choose --format csv, json or parquet.")

    rows = list(values_of(cells, names))
    return of_records(refuse, VALUES, rows, rows=rows)


def values_of(cells: Iterable[Cell], names: Names = NO_NAMES) -> Iterator[dict[str, Any]]:
    """Yield a row for each value of each cell, or one for a cell without values; its keys are :data:`VALUES`."""
    for cell in cells:
        fit = cell.fit
        origin = {
            "seed": fit.seed,
            "limit": cell.provenance.get("limit"),
            "fit": fit.id,
            "cell": cell.id,
            "time": str(cell.provenance.get("time", "")),
            "seconds": cell.outcome.seconds,
        }
        (subject,) = subjects([cell], names)
        for column in columns_of(cell.metric, [cell]):
            yield dataclasses.asdict(record([cell], column, subject)) | origin
