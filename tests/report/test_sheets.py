"""CSV for spreadsheets."""

import csv
import io

import pytest

from jembench.report.sheets import to_csv


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1+2", "-1-2", "@SUM(A1)"])
def test_a_formula_is_text(text):
    assert next(csv.DictReader(io.StringIO(to_csv(["a"], [{"a": text}]))))["a"] == f"'{text}"


@pytest.mark.parametrize("value", [-1.5, "-inf", "-1e-3", "+7", "nan", "needs samples: a = b", "", None, True])
def test_numbers_and_other_texts_stay_as_they_are(value):
    expected = "" if value is None else str(value)
    assert next(csv.DictReader(io.StringIO(to_csv(["a", "b"], [{"a": value, "b": "x"}]))))["a"] == expected
