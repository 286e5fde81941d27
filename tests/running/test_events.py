"""Events of a run, and the trackers that receive them."""

import json

import pytest

from jembench.catalog import trust
from jembench.errors import Fallback, SpecError
from jembench.interfaces import Event
from jembench.running.events import VARIABLE, Events
from jembench.running.session import RunOptions, place
from jembench.store.outcome import FitKey

FIT = {"model": "zoo_of_tests:jem", "dataset": "zoo_of_tests:data", "recipe": "tiny", "seed": 0}


def test_a_tracker_of_the_user_gets_every_window_as_data(plan, store, carry_out, monkeypatch, tmp_path):
    log = tmp_path / "windows.jsonl"
    monkeypatch.setenv(VARIABLE, f"zoo_of_tests:windows:file={log}")
    whole = plan("jem")
    carry_out(whole, store)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["done"] for row in rows] == list(range(3, 37, 3))
    assert all(row["fit"] == {**FIT, "id": whole.fits[0].key.id} and row["total"] == 36 for row in rows)
    assert rows[0]["values"].keys() >= {"loss", "learning_rate", "energy_data", "energy_samples", "seconds"}
    assert "validation_accuracy" in rows[-1]["values"]


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(zoo, monkeypatch, tmp_path, recorder):
    log = tmp_path / "windows.jsonl"
    missing = tmp_path / "no-folder" / "windows.jsonl"
    monkeypatch.setenv(VARIABLE, f"zoo_of_tests:windows:file={missing},zoo_of_tests:windows:file={log}")
    report = Events(recorder).of(FitKey(**FIT, id="0"))
    with pytest.warns(Fallback, match=rf"{missing} failed and gets no more events: FileNotFoundError"):
        report(Event(kind="window", done=3, total=6))
    report(Event(kind="window", done=6, total=6))  # a second warning would be an error
    assert recorder.iterations == [3, 6]
    assert len(log.read_text().splitlines()) == 2


def test_an_unknown_tracker_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "jsonlines")
    with pytest.raises(SpecError, match=r"no tracker named 'jsonlines'"):
        Events()
    with pytest.raises(SpecError, match=r"no tracker named 'jsonlines'"):
        place([], RunOptions())  # also where nothing is left to do


def test_a_command_may_load_the_trackers_that_the_variable_names(zoo, monkeypatch):
    named = {VARIABLE: "zoo_of_tests:windows:file=x"}
    monkeypatch.setenv(VARIABLE, named[VARIABLE])
    with trust.command([], named):
        Events()
    with trust.command([], {}), pytest.raises(SpecError, match="runs code that you did not name"):
        Events()
