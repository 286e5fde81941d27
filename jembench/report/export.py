"""Tidy rows for other programs: a row for each value of each cell, and for each array of per-example values."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jembench.errors import DamagedError, Fallback, SpecError
from jembench.report.formats import Document, of_records
from jembench.report.names import NO_NAMES, Names
from jembench.report.record import Record, columns_of, record, subjects
from jembench.report.selection import read
from jembench.store.latest import asked, newest
from jembench.store.outcome import Cell
from jembench.store.store import Store

_ORIGIN = ("seed", "limit", "fit", "cell", "time", "seconds")
_OVER_SEEDS = {"kind", "sd", "seeds", "comparable", "source", "notes"}  # or of published numbers

VALUES = [field.name for field in dataclasses.fields(Record) if field.name not in _OVER_SEEDS] + [*_ORIGIN]
"""The fields of a value of one seed: those of a record that one seed has, and where it comes from."""

ARRAYS = ["cell", "fit", "model", "dataset", "recipe", "seed", "metric", "label", "path", "shape", "dtype"]
"""The fields of an array; ``path`` is relative to the store, and ``shape`` has x between its numbers."""


class Tidy(NamedTuple):
    """Rows with the same fields."""

    fields: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


def export(store: Store) -> tuple[Tidy, Tidy]:
    """The values of a store, and its arrays of per-example values.

    ``latest`` says of a value whether reports show it. Files that are damaged are left out, with a warning.

    Raises:
        SpecError: if there is no such store.
    """
    cells = read(store)
    latest = {cell.id for cell in newest(cells, asked(store))}
    values = [{**row, "latest": row["cell"] in latest} for row in values_of(cells)]
    return Tidy([*VALUES, "latest"], values), Tidy(ARRAYS, [row for cell in cells for row in _arrays(store, cell)])


def per_seed(cells: Iterable[Cell], names: Names) -> Document:
    """The values of each seed, for formats that programs read."""

    def refuse() -> Any:
        raise SpecError("The values of each seed are for programs. Choose --format csv, json or parquet.")

    rows = list(values_of(cells, names))
    return of_records(refuse, VALUES, rows, rows=rows)


def values_of(cells: Iterable[Cell], names: Names = NO_NAMES) -> Iterator[dict[str, Any]]:
    """A row for each value of each cell, or one for a cell without values; its keys are :data:`VALUES`."""
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
            found = record([cell], column, subject)
            yield {name: getattr(found, name) for name in VALUES if name not in origin} | origin


def _arrays(store: Store, cell: Cell) -> Iterator[dict[str, Any]]:
    fit = cell.fit
    try:
        arrays = store.read_arrays(cell)
    except DamagedError as error:
        warnings.warn(f"Left out: {error}", Fallback, stacklevel=2)
        return
    path = str(store.arrays_path(cell).relative_to(store.root)) if arrays else ""
    for label, array in arrays.items():
        shape = "x".join(map(str, array.shape))
        of_cell = (cell.id, fit.id, fit.model, fit.dataset, fit.recipe, fit.seed, cell.metric)
        yield dict(zip(ARRAYS, (*of_cell, label, path, shape, str(array.dtype)), strict=True))
