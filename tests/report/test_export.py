"""A store as tables for other programs."""

import csv
import dataclasses
import io
import shutil
import sys

import pytest
from small_store import small_store

from jembench.errors import Unavailable
from jembench.report import formats
from jembench.report.export import VALUES, values_of
from jembench.store.store import Store


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("export") / "whole").root


@pytest.fixture
def store(whole, tmp_path):
    return Store(shutil.copytree(whole, tmp_path / "runs"))


@pytest.fixture
def rows(store):
    """The values of the store."""
    return list(values_of(store.contents().cells))


def test_every_value_has_a_row(store, rows):
    cells = {cell.id: cell for cell in store.contents().cells}
    assert len(rows) == len(cells) == 16
    for row in rows:
        cell = cells[row["cell"]]
        (label, value), *_ = cell.outcome.values.items()
        found = (row["label"], row["value"], row["low"], row["high"], row["n"], row["unit"], row["better"])
        assert found == (label, *value)
        assert (row["model"], row["seed"], row["metric"]) == (cell.fit.model, cell.fit.seed, cell.metric)
        assert (row["status"], row["protocol"]) == ("ok", cell.outcome.protocol)
        assert list(row) == VALUES


def test_a_cell_without_values_has_a_row_with_the_reason(store):
    cell = store.contents().cells[0]
    outcome = dataclasses.replace(cell.outcome, status="failed", values={}, reason="ValueError: no")
    (row,) = values_of([dataclasses.replace(cell, outcome=outcome)])
    assert (row["status"], row["value"], row["reason"]) == ("failed", None, "ValueError: no")


def test_csv_has_every_row_in_full_precision(rows):
    found = list(csv.DictReader(io.StringIO(formats.csv_text(VALUES, rows))))
    assert [(row["cell"], float(row["value"])) for row in found] == [(row["cell"], row["value"]) for row in rows]


def test_parquet_has_the_same_rows_and_their_types(rows):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(io.BytesIO(formats.to_parquet(formats.of_records(list, VALUES, rows))))
    assert found.column_names == VALUES
    flat = {"seeds": lambda row: " ".join(map(str, row["seeds"])), "notes": lambda row: " ".join(row["notes"])}
    assert found.to_pylist() == [row | {name: of(row) for name, of in flat.items()} for row in rows]
    types = {field.name: str(field.type) for field in found.schema}
    assert {"seed": "int64", "model": "string"}.items() <= types.items()


def test_parquet_without_pyarrow_says_what_to_install(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match=r'pip install "jembench\[parquet\]"; or write CSV'):
        formats.to_parquet(formats.of_records(list, VALUES, rows))
