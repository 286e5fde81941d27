"""A store as tables for other programs."""

import csv
import dataclasses
import io
import shutil
import sys

import numpy as np
import pytest
from small_store import small_store

from jembench.errors import Fallback, Unavailable
from jembench.report import formats
from jembench.report.export import export
from jembench.store.latest import mark_latest
from jembench.store.store import Store


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("export") / "whole").root


@pytest.fixture
def store(whole, tmp_path):
    return Store(shutil.copytree(whole, tmp_path / "runs"))


def test_every_value_has_a_row(store):
    values, _ = export(store)
    cells = {cell.id: cell for cell in store.contents().cells}
    assert len(values.rows) == len(cells) == 16
    for row in values.rows:
        cell = cells[row["cell"]]
        (label, value), *_ = cell.outcome.values.items()
        found = (row["label"], row["value"], row["low"], row["high"], row["n"], row["unit"], row["better"])
        assert found == (label, *value)
        assert (row["model"], row["seed"], row["metric"]) == (cell.fit.model, cell.fit.seed, cell.metric)
        assert (row["status"], row["protocol"], row["latest"]) == ("ok", cell.outcome.protocol, True)
        assert list(row) == values.fields


def test_a_cell_without_values_has_a_row_with_the_reason(store):
    cell = store.contents().cells[0]
    outcome = dataclasses.replace(cell.outcome, status="failed", values={}, reason="ValueError: no")
    store.write_cell(dataclasses.replace(cell, outcome=outcome), {})
    (row,) = (row for row in export(store)[0].rows if row["cell"] == cell.id)
    assert (row["status"], row["value"], row["reason"]) == ("failed", None, "ValueError: no")


def test_a_former_result_of_the_same_name_is_not_the_latest(store):
    cell = store.contents().cells[0]
    fit = dataclasses.replace(cell.fit, id="other00000", family="other")
    store.write_cell(dataclasses.replace(cell, id="older00000", fit=fit, arrays=""), {})
    mark_latest(store, [cell.fit.family], [])
    latest = {row["cell"]: row["latest"] for row in export(store)[0].rows}
    assert latest[cell.id] != latest["older00000"]


def test_every_array_has_a_row_that_leads_to_it(store):
    _, arrays = export(store)
    assert len(arrays.rows) == 4 * 4
    for row in arrays.rows:
        with np.load(store.root / row["path"]) as file:
            array = file[row["label"]]
        assert ("x".join(map(str, array.shape)), str(array.dtype)) == (row["shape"], row["dtype"])


def test_damaged_arrays_are_left_out_and_named(store):
    path = next(store.root.glob("arrays/ece-*"))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.warns(Fallback, match=f"Left out: .*{path.name}"):
        _, arrays = export(store)
    assert len(arrays.rows) == 4 * 4 - 2


def test_csv_has_every_row_in_full_precision(store):
    values, _ = export(store)
    rows = list(csv.DictReader(io.StringIO(formats.csv_text(*values))))
    assert [(row["cell"], float(row["value"])) for row in rows] == [(row["cell"], row["value"]) for row in values.rows]


def test_parquet_has_the_same_rows_and_their_types(store):
    parquet = pytest.importorskip("pyarrow.parquet")
    for table in export(store):
        found = parquet.read_table(io.BytesIO(formats.parquet(*table)))
        assert found.column_names == list(table.fields)
        assert found.to_pylist() == list(table.rows)
    assert {"seed": "int64", "model": "string"}.items() <= {
        field.name: str(field.type) for field in found.schema
    }.items()


def test_parquet_without_pyarrow_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match=r'pip install "jembench\[parquet\]"; or write CSV'):
        formats.parquet(*export(store)[0])
