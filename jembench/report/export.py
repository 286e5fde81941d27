"""A store as two tidy tables for other programs: every value, and every array of per-example values."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from jembench.errors import DamagedError, Fallback, Unavailable
from jembench.report.formats import csv_text
from jembench.report.record import Record, columns_of, record
from jembench.report.select import read
from jembench.store.latest import asked, newest
from jembench.store.outcome import Cell
from jembench.store.store import Store

_ORIGIN = ("seed", "limit", "fit", "cell", "time", "seconds", "latest")
_OVER_SEEDS = {"kind", "printed_as", "sd", "seeds", "comparable", "source", "notes"}  # or of published numbers

VALUES = [field.name for field in dataclasses.fields(Record) if field.name not in _OVER_SEEDS] + [*_ORIGIN]
"""The columns of the values: those of a record that one seed has, and where it comes from."""

ARRAYS = ["cell", "fit", "model", "dataset", "recipe", "seed", "metric", "label", "path", "shape", "dtype"]
"""The columns of the arrays; ``path`` is relative to the store, and ``shape`` has x between its numbers."""

_TYPES = {
    **dict.fromkeys(("value", "low", "high", "seconds"), "float64"),
    **dict.fromkeys(("n", "seed", "limit"), "int64"),
    "latest": "bool",
}
"""The types of columns that are no texts."""


class Tidy(NamedTuple):
    """A tidy table."""

    fields: Sequence[str]  # the names of its columns
    rows: Sequence[Mapping[str, Any]]

    def to_csv(self) -> bytes:
        """As CSV in full precision, in UTF-8."""
        return csv_text(self.fields, self.rows).encode()

    def to_parquet(self) -> bytes:
        """As a Parquet file.

        Raises:
            Unavailable: if pyarrow is not installed.
        """
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise Unavailable(
                f"Parquet needs pyarrow, which cannot be imported ({error}). Install it: pip install "
                '"jembench[parquet]"; or export to a file that ends in .csv.'
            ) from error
        kinds = [(name, pyarrow.type_for_alias(_TYPES.get(name, "string"))) for name in self.fields]
        schema = pyarrow.schema(kinds, {"Software": "jembench"})
        stream = BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(list(self.rows), schema), stream)
        return stream.getvalue()


def export(store: Store) -> tuple[Tidy, Tidy]:
    """The values of a store, and its arrays of per-example values.

    There is a row for each value of each cell, or one for a cell without values; ``latest`` says whether reports show
    it. Files that are damaged are left out, with a warning.

    Raises:
        SpecError: if there is no such store.
    """
    cells = read(store)
    latest = {cell.id for cell in newest(cells, asked(store))}
    values = [row for cell in cells for row in _values(cell, latest=cell.id in latest)]
    return Tidy(VALUES, values), Tidy(ARRAYS, [row for cell in cells for row in _arrays(store, cell)])


def _values(cell: Cell, *, latest: bool) -> Iterator[dict[str, Any]]:
    fit = cell.fit
    origin = {
        "seed": fit.seed,
        "limit": cell.provenance.get("limit"),
        "fit": fit.id,
        "cell": cell.id,
        "time": str(cell.provenance.get("time", "")),
        "seconds": cell.outcome.seconds,
        "latest": latest,
    }
    for column in columns_of(cell.metric, [cell]):
        found = record([cell], column, [fit.seed], model=fit.model, dataset=fit.dataset, recipe=fit.recipe)
        yield {name: getattr(found, name) for name in VALUES if name not in origin} | origin


def _arrays(store: Store, cell: Cell) -> Iterator[dict[str, Any]]:
    fit = cell.fit
    try:
        arrays = store.read_arrays(cell)
    except DamagedError as error:
        warnings.warn(f"Left out: {error}", Fallback, stacklevel=2)
        return
    path = str(store.arrays_path(cell.id, cell.name).relative_to(store.root)) if arrays else ""
    for label, array in arrays.items():
        shape = "x".join(map(str, array.shape))
        of_cell = (cell.id, fit.id, fit.model, fit.dataset, fit.recipe, fit.seed, cell.metric)
        yield dict(zip(ARRAYS, (*of_cell, label, path, shape, str(array.dtype)), strict=True))
