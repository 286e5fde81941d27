"""Formats of third parties, and CSV for spreadsheets."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from jembench.catalog import discovery
from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.report.figures import planning
from jembench.report.formats import csv_text, render
from jembench.report.layout import document
from jembench.report.sections import build

EXAMPLE = Path(__file__).parents[1] / "example_plugin"


def test_a_third_party_s_format_is_named_by_its_import_path(cell, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    results = document(build([cell(accuracy=Value(97.481, 95, 99, 397, "%", "higher"))]))
    assert render(results, "jembench_example:sentences") == "accuracy of jem is 97.48 %.\n"
    assert render(results, "jembench_example:sentences:digits=2") == "accuracy of jem is 97 %.\n"


def test_a_third_party_s_figure_is_found_by_its_metric(cell, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    bars = discovery.Component("figures", "confidence", "", "", "jembench_example", "bars")
    monkeypatch.setattr(discovery, "components", lambda kind: [bars])
    store = SimpleNamespace(read_arrays=lambda cell: {})
    (planned,) = planning.of_metrics([cell(metric="confidence", confidence=Value(90, 89, 91, 9))], store, pytest.fail)
    assert planned.stem == "confidence"
    assert planned.draw().rows == [{"model": "jem", "confidence": 90}]


def test_a_format_that_does_not_exist():
    with pytest.raises(SpecError, match=r"no format named 'latec'. Nearest: latex"):
        render(document(build([])), "latec")


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+2", "-1-2", "@SUM(A1)"])
def test_a_formula_is_text(text):
    assert next(csv.DictReader(io.StringIO(csv_text(["a"], [{"a": text}]))))["a"] == f"'{text}"


@pytest.mark.parametrize("value", [-1.5, "-inf", "-1e-3", "+7", "nan", "needs samples: a = b", "", None, True])
def test_numbers_and_other_texts_stay_as_they_are(value):
    expected = "" if value is None else str(value)
    assert next(csv.DictReader(io.StringIO(csv_text(["a", "b"], [{"a": value, "b": "x"}]))))["a"] == expected
