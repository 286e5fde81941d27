import csv
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jembench.catalog import discovery
from jembench.errors import SpecError, Unavailable
from jembench.experiment.names import NO_NAMES
from jembench.interfaces import Value
from jembench.report.figures import planning
from jembench.report.formats import csv_text, render, table_csv, to_parquet
from jembench.report.layout import PerSeed, Report
from jembench.report.table import Heading, Table, TableCell
from jembench.store.outcome import Outcome

EXAMPLE = Path(__file__).parents[1] / "example_plugin"


def test_a_third_party_s_format_is_named_by_its_import_path(cell, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    results = Report([cell(accuracy=Value(97.481, 95, 99, 397, "%", "higher"))])
    assert render(results, "jembench_example:sentences") == "accuracy of jem is 97.48 %.\n"
    assert render(results, "jembench_example:sentences:digits=2") == "accuracy of jem is 97 %.\n"


def test_a_third_party_s_figure_is_found_by_its_metric(cell, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    bars = discovery.Component("figures", "confidence", "", "", "jembench_example", "bars")
    monkeypatch.setattr(discovery, "components", lambda kind: [bars])
    store = SimpleNamespace(read_arrays=lambda cell: {})
    cells = [cell(metric="confidence", confidence=Value(90, 89, 91, 9))]
    (planned,) = planning.of_metrics(cells, store, pytest.fail, NO_NAMES, {})
    assert planned.stem == "confidence"
    assert planned.draw().rows == [{"model": "jem", "confidence": 90}]


def test_a_format_that_does_not_exist():
    with pytest.raises(SpecError, match=r"no format named 'latec'. Nearest: latex"):
        render(Report([]), "latec")


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+2", "-1-2", "@SUM(A1)"])
def test_a_formula_is_text(text):
    assert next(csv.DictReader(io.StringIO(csv_text(["a"], [{"a": text}]))))["a"] == f"'{text}"


@pytest.mark.parametrize(
    "value", [-1.5, "-inf", "-1e-3", "+7", "nan", "needs samples: a = b", "", None, True]
)
def test_numbers_and_other_texts_stay_as_they_are(value):
    expected = "" if value is None else str(value)
    assert (
        next(csv.DictReader(io.StringIO(csv_text(["a", "b"], [{"a": value, "b": "x"}]))))["a"]
        == expected
    )


def test_the_csv_of_a_table_has_its_lines_in_full_precision(cell):
    no = Outcome(status="na", reason="needs logits")
    accuracy = [
        cell(seed=seed, accuracy=Value(97.4 + seed / 3, None, 99, 397, "%", "higher"))
        for seed in (0, 1)
    ]
    (table,) = Report([*accuracy, cell("flow", metric="accuracy", outcome=no)]).tables()
    first, second = csv.DictReader(io.StringIO(table_csv(table)))
    assert list(first) == [
        "model",
        "seeds",
        *(f"accuracy (% ↑){end}" for end in ("", " high", " sd")),
    ]
    assert float(first["accuracy (% ↑)"]) == (97.4 + (97.4 + 1 / 3)) / 2
    assert float(first["accuracy (% ↑) sd"]) == pytest.approx(1 / 3 / 2**0.5)
    assert (second["model"], second["accuracy (% ↑)"], second["accuracy (% ↑) high"]) == (
        "flow",
        "N/A",
        "",
    )


def test_the_csv_of_a_table_of_texts_has_their_intervals():
    headings = (Heading("claim", identifies=True), Heading("difference", "%"))
    table = Table(
        title="Claims", headings=headings, rows=((TableCell("=a"), TableCell("1.5", "[1.0, 2.0]")),)
    )
    assert table_csv(table) == 'claim,difference (%)\n\'=a,"1.5 [1.0, 2.0]"\n'


@pytest.fixture
def of_each_seed(cell):
    return PerSeed(
        Report(
            [
                cell(seed=seed, accuracy=Value(97.4 + seed / 3, None, 99, 397, "%"))
                for seed in (0, 1)
            ]
        )
    )


def test_csv_has_every_row_in_full_precision(of_each_seed):
    lines = list(csv.DictReader(io.StringIO(render(of_each_seed, "csv"))))
    records = list(of_each_seed.records())
    assert [(row["cell"], float(row["value"])) for row in lines] == [
        (row["cell"], row["value"]) for row in records
    ]


def test_parquet_has_the_same_rows_and_their_types(of_each_seed):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(to_parquet(of_each_seed)))
    assert tuple(table.column_names) == of_each_seed.fields
    records = [row | {"seeds": " ".join(map(str, row["seeds"]))} for row in of_each_seed.records()]
    assert table.to_pylist() == records
    types = {field.name: str(field.type) for field in table.schema}
    assert {"value": "double", "n": "int64", "model": "string"}.items() <= types.items()


def test_parquet_without_pyarrow_says_what_to_install(of_each_seed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match=r'pip install "jembench\[parquet\]"; or write CSV'):
        to_parquet(of_each_seed)
