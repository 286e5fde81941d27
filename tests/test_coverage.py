"""The table of how often intervals cover, and the script that makes it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def coverage():
    spec = importlib.util.spec_from_file_location(
        "simulated_coverage", ROOT / "benchmarks/coverage.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_site_has_the_rows_of_the_script(coverage):
    lines = [
        line
        for line in (ROOT / "docs/coverage.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    rows = [[text.strip() for text in line.strip("|").split("|")] for line in lines]
    assert rows[0] == list(coverage.HEAD)
    expected = [[case.value, case.situation, str(case.simulations)] for case in coverage.cases()]
    assert [[row[0], row[1], row[-1]] for row in rows[1:]] == expected


def test_coverage_is_of_the_truth_and_of_the_mean(coverage):
    """A value that is 1 too large, with intervals that hold half of the values around it."""
    case = coverage.Case(
        "v",
        "s",
        0.0,
        lambda rng: coverage.Value(v := rng.choice([0.8, 1.2]), v - 0.5, v + 0.5, 1),
        400,
    )
    texts = [text.strip() for text in coverage.row(case).split("|")[1:-1]]
    assert (texts[0], texts[2], texts[4:]) == ("v", "0", ["0.0 %", "100.0 %", "400"])
    assert float(texts[3]) == pytest.approx(1.0, abs=0.04)
