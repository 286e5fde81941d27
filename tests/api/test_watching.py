"""The page of a store while a run goes on."""

import dataclasses
import os
import platform
import time

import numpy as np
import pytest

from jembench.api import watching
from jembench.api.arguments import selection
from jembench.api.watching import Watched
from jembench.interfaces import Event, Value
from jembench.report import judging
from jembench.store import records
from jembench.store.latest import mark_latest
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store
from jembench.training.guard import Intervention
from jembench.training.interventions import write_interventions

FIT = FitKey(model="jem", dataset="digits", recipe="digits", seed=3, id="f1")
HERE = f"{platform.node()}:{os.getpid()}"
WINDOW = {"loss": 0.5, "seconds": 2.0}
HISTORY = "iteration,attempt,energy_data,energy_samples\n20,0,-1.5,-1.0\n40,0,-2.5,-30.0\n20,1,-2.0,\n"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def watched(store):
    return Watched(store, selection())


@pytest.fixture
def happens(store):
    """Write what happened to a unit of work."""

    def write(kind, unit="u1", **more):
        store.works.write(unit, records.text({"kind": "train", "fit": dataclasses.asdict(FIT)}))
        about = {"model": "jem", "dataset": "digits", "recipe": "digits", "seed": 3, "id": "f1"}
        fields = {"fit": about, "work": unit, "unit": "train", "worker": HERE, "time": time.time(), **more}
        store.works.append(Event(kind=kind, **fields))

    return write


def test_a_training_is_shown_before_there_is_an_outcome(watched, store, happens):
    happens("queued")
    assert "1 wait for a worker." in watched.page("a")
    happens("started")
    happens("window", done=40, total=100, values=WINDOW)
    happens("queued", unit="u2")
    page = watched.page("b").replace("<wbr>", "")
    assert "iteration 40 of 100, loss 0.500, about 2 min left" in page
    assert "1 more waits." in page
    assert "<sup>1 more" not in page  # a sentence, no mark
    assert "data-figure" not in page  # no history yet
    folder = store.fit_folder(FIT)
    folder.mkdir(parents=True)
    (folder / "history.csv").write_text(HISTORY)
    write_interventions(folder, [Intervention(40, "samples far below data", 20, "seed")])
    page = watched.page("c")
    assert 'data-figure="energies-digits-jem-s3"' in page
    assert "it went back to iteration 20 with a new seed" in page


def test_what_is_damaged_is_named_as_long_as_it_is(watched, store, happens):
    happens("started")
    folder = store.fit_folder(FIT)
    folder.mkdir(parents=True)
    (folder / "interventions.json").write_text("{")
    (folder / "history.csv").write_bytes(b"\xff")
    for name in "ab":  # the figure is not drawn again for the second page
        page = watched.page(name)
        assert "interventions.json is damaged" in page
        assert "is not the history of a fit" in page
    (folder / "interventions.json").unlink()
    page = watched.page("c")
    assert "interventions.json" not in page
    assert "is not the history of a fit" in page


def test_nothing_is_shown_as_running_where_nothing_is(watched):
    assert 'id="running"' not in watched.page("a")


def test_the_state_changes_with_outcomes_requests_and_units(watched, store, happens):
    states = [watched.state(), watched.state()]
    outcome = Outcome(status="ok", values={"accuracy": Value(90.0, 80.0, 95.0, 9)})
    store.write_cell(Cell(id="c1", fit=FIT, metric="accuracy", outcome=outcome), {})
    states.append(watched.state())
    mark_latest(store, ["family"], ["metric"])
    states.append(watched.state())
    happens("queued")
    states += [watched.state()]
    assert states[0] == states[1]
    assert len(set(states)) == 4


def test_the_state_changes_every_ten_seconds_while_something_happens(watched, store, happens, monkeypatch):
    happens("started")
    path = store.works.path("u1", ".events")

    def at(heard, now=0.0):
        os.utime(path, (heard, heard))
        monkeypatch.setattr(watching.time, "time", lambda: now or heard)
        return watched.state()

    assert at(1000.0) == at(1009.9) != at(1010.0)
    assert at(1000.0) == at(1000.0, now=1299.0) != at(1000.0, now=1301.0)  # it is taken for dead


def test_what_was_tested_is_not_tested_again(watched, store, monkeypatch):
    tested = []
    contrast = judging.contrast
    monkeypatch.setattr(judging, "contrast", lambda *given, **how: tested.append(given) or contrast(*given, **how))

    def measured(model, value, time):
        outcome = Outcome(status="ok", protocol="accuracy:data=digits", values={"accuracy": Value(value, 1.0, 99.0, 9)})
        fit = dataclasses.replace(FIT, model=model, id=model)
        cell = Cell(id=model, fit=fit, metric="accuracy", outcome=outcome, provenance={"time": time})
        store.write_cell(cell, {"correct": np.arange(100) < value})

    measured("jem", 90.0, "1")
    measured("baseline", 95.0, "1")
    watched.page("a")
    first = len(tested)
    assert first > 0
    watched.page("b")
    assert len(tested) == first
    measured("baseline", 80.0, "2")
    watched.page("c")
    assert first < len(tested)
