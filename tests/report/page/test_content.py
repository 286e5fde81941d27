import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from jembench.interfaces import Value
from jembench.report.layout import Report
from jembench.report.page.content import collect, origin
from jembench.store.outcome import Outcome
from jembench.store.store import Store

VALUE = Value(1.0, 0.5, 2.0, 9, "", "higher")


def test_a_trained_model_has_the_commands_and_the_environment_of_its_values(cell):
    made = {
        "hardware": {"gpu": "H100", "cuda": ""},
        "threads": 4,
        "python": "3.11",
        "packages": {"torch": "2.15"},
        "command": "run jem",
    }
    cells = [
        dataclasses.replace(
            cell(metric=metric, **{metric: VALUE}), provenance={**made, "time": time}
        )
        for metric, time in (("accuracy", "2026-11-23T09:30:00"), ("ece", "2026-11-23T09:10:59"))
    ]
    table = origin(cells, {})
    (row,) = table.rows
    assert [text.value for text in row] == [
        *("jem", "digits", "digits", "0", "", "", "2026-11-23 09:10 to 2026-11-23 09:30")
    ]
    assert {("fit", "jem0"), ("by", "run jem")} <= {*row[0].details}
    assert [note.text for note in table.footnotes] == [
        "gpu H100, threads 4, python 3.11, torch 2.15"
    ]


@pytest.fixture
def many(cell, tmp_path):
    """A store with the calibration of 13 models and of two seeds of the first."""
    store = Store(tmp_path / "many")
    rng = np.random.default_rng(0)
    for number in range(14):
        values = {"ece": Value(9.0, 5.0, 12.0, 9, "%", "lower")}
        outcome = Outcome(status="ok", protocol="ece:bins=20,data=digits", values=values)
        made = cell(f"m{max(number, 1):02}", "ece", seed=int(number == 0), outcome=outcome)
        arrays = {"confidence": rng.uniform(0.1, 1, 9), "correct": rng.random(9) < 0.5}
        store.write_cell(made, arrays)
    return store


def test_a_page_draws_the_first_seed_of_twelve_models_and_names_the_command_for_the_rest(many):
    page = collect(Report(many.cells(), read=many.read_arrays), many, "", ())
    drawn = [picture.name for picture in page.figures["ece"]]
    of_one = [name for name in drawn if name.startswith("reliability-digits-m")]
    assert of_one == [f"reliability-digits-m{number:02}-s0" for number in range(1, 13)]
    command = f"`jembench figures --metrics ece --store {many.root}`"
    note = f"12 of 14 trained models are drawn here; {command} draws all of them."
    assert page.undrawn["ece"] == note


def test_a_page_of_many_models_tests_only_the_best_of_a_column(many):
    page = collect(Report(many.cells(), read=many.read_arrays), many, "", ())
    assert [name.marks for name, *_ in page.overview.table.rows] == [()] * 13
    assert page.undrawn["overview"].startswith("Among 13 models, a page marks no Pareto front")
    few = [made for made in many.cells() if made.fit.model in ("m01", "m02")]
    page = collect(Report(few, read=many.read_arrays), many, "", ())
    assert "overview" not in page.undrawn
    assert "ece" in page.undrawn  # the second seed


def test_a_page_needs_no_torch(many):
    code = """
import sys
from pathlib import Path
from jembench.api.results import Results
from jembench.report.select import WHOLE
from jembench.store.store import Store
page = Results.of_store(Store(Path(sys.argv[1])), WHOLE).table("html")
assert page.count("data:image/svg+xml") > 12
assert "<code>jembench figures --metrics ece --store" in page
sys.exit("torch" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, many.root], check=True, timeout=120)
