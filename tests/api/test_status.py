"""What runs where, from the files of a store."""

import os
import platform
import subprocess
import sys
import time

import pytest

from jembench.api import status as api
from jembench.api.status import status
from jembench.errors import SpecError
from jembench.interfaces import Event
from jembench.store import records
from jembench.store.store import Store, lost_units
from jembench.store.works import RunRecord

HERE = f"{platform.node()}:{os.getpid()}"
FIT = {"model": "jem", "dataset": "digits", "recipe": "digits", "seed": 3, "id": "f1"}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def unit(store):
    """Write a unit and what happened to it; gives its status."""

    def write(*events, unit="u1", kind="train"):
        store.works.write(unit, records.text({"kind": kind, "fit": FIT}))
        for event in events:
            fields = {"fit": FIT, "work": unit, "unit": kind, "time": time.time(), **event}
            store.works.append(Event(**fields))
        return next((each for each in status(store.root).units if each.id == unit), None)

    return write


QUEUED = {"kind": "queued", "text": "run-1"}
STARTED = {"kind": "started", "worker": HERE}
WINDOW = {"kind": "window", "worker": HERE, "done": 20, "total": 100, "values": {"loss": 0.5}}


def ended(how, text="", **values):
    return {"kind": "ended", "worker": HERE, "values": {"how": how, **values}, "text": text}


def test_an_empty_store_and_none(tmp_path):
    assert status(tmp_path) == ([], [])
    with pytest.raises(SpecError, match="There is no store"):
        status(tmp_path / "none")


def test_a_unit_is_known_before_anything_happened_to_it(unit):
    found = unit()
    assert (found.state, found.worker, found.since) == ("queued", "", None)
    assert (found.kind, found.model, found.dataset, found.recipe, found.seed) == ("train", "jem", *["digits"] * 2, 3)


def test_a_training(unit, store):
    before = time.time()
    found = unit(QUEUED, STARTED, {"kind": "training", "worker": HERE}, WINDOW, WINDOW | {"done": 40})
    assert (found.state, found.worker) == ("running", HERE)
    assert before <= found.since <= time.time()
    assert (found.done, found.total, found.counted, found.doing) == (40, 100, "iterations", "loss 0.500")
    assert found.command == f"jembench work u1 --store {store.root}"


def test_a_measurement(unit):
    measuring = {"kind": "measuring", "worker": HERE, "metric": "pgd", "done": 1, "total": 2}
    beat = {"kind": "progress", "worker": HERE, "metric": "pgd", "text": "step 7 of 40", "values": {"unit": "images"}}
    beats = [beat | {"done": done, "total": 1000} for done in (0, 64)]
    found = unit(QUEUED, STARTED, WINDOW, measuring, *beats, {"kind": "warning", "worker": HERE, "text": "no picture"})
    assert (found.done, found.total, found.counted, found.doing) == (64, 1000, "images", "pgd, step 7 of 40")


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([QUEUED], "queued"),
        ([QUEUED, STARTED, ended("busy")], "queued"),
        ([QUEUED, STARTED, ended("stopped"), QUEUED], "queued"),
        ([QUEUED, STARTED, ended("stopped", "SIGTERM")], "stopped"),
        ([QUEUED, STARTED, ended("failed", "no space")], "failed"),
        ([QUEUED, STARTED, ended("refused", "other code")], "refused"),
        ([QUEUED, STARTED, ended("lost", "killed")], "lost"),
    ],
)
def test_states(unit, events, state):
    found = unit(*events)
    assert found.state == state
    assert found.reason == events[-1].get("text", "") * (events[-1] is not QUEUED)


def test_a_failure_has_its_log_and_what_is_done_is_not_listed(unit):
    assert unit(QUEUED, STARTED, ended("failed", "no space"), ended("failed", "no space", log="a.log")).log == "a.log"
    assert unit(QUEUED, STARTED, ended("done"), unit="u2") is None


def test_a_worker_without_a_lease_is_lost_after_some_silence(unit):
    old = {"time": time.time() - api.SILENCE - 1}
    assert unit(QUEUED, STARTED | old, unit="old").state == "lost"
    assert unit(QUEUED, STARTED | old, WINDOW, unit="heard of").state == "running"


def test_a_worker_lives_as_long_as_its_lease(unit, store):
    old = {"time": time.time() - api.SILENCE - 1}
    with store.lease("f1"):
        assert unit(QUEUED, STARTED | old).state == "running"


def test_a_worker_that_was_killed_is_lost_at_once(unit, store):
    script = (
        f"import os, sys; from pathlib import Path; from jembench.store.lease import lease\n"
        f"with lease(Path({str(store.root / 'leases' / 'f1.json')!r})): os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    process.wait()
    assert unit(QUEUED, STARTED | {"worker": f"{platform.node()}:{process.pid}"}).state == "lost"
    assert lost_units(store.root, ["u1", "none"]) == {"u1"}
    assert unit(QUEUED).state == "queued"
    assert lost_units(store.root, ["u1"]) == set()
    assert unit(STARTED).state == "running"
    assert lost_units(store.root, ["u1"]) == set()


def test_torn_lines_are_passed_over(unit, store):
    unit(QUEUED, STARTED, WINDOW)
    with store.works.path("u1", ".events").open("ab") as stream:
        stream.write(b'\n{"kind": "window", "done": 60, "to')
    assert unit().done == 20
    store.works.path("u2", ".events").write_bytes(b"")
    assert unit(unit="u2").state == "queued"


def test_of_a_long_training_the_start_and_the_end_are_read(unit, store):
    unit(QUEUED, STARTED, *[WINDOW | {"text": "x" * 10_000, "done": done} for done in range(1, 9)])
    found = unit(ended("stopped"), STARTED | {"worker": "node7:5", "time": 12.5}, WINDOW | {"text": "x" * 10_000})
    assert (found.worker, found.since, found.done) == ("node7:5", 12.5, 20)


def test_runs(store, unit):
    unit(QUEUED)
    with store.lease("run-2"):
        for run in ("run-1", "run-2"):
            store.works.write_run(
                RunRecord(id=run, command="jembench run", host="a", pid=1, time=float(run[4:]), units=5, done=2)
            )
        found = status(store.root)
    assert [(run.id, run.alive, run.done, run.units) for run in found.runs] == [
        ("run-1", False, 2, 5),
        ("run-2", True, 2, 5),
    ]
    assert [one.id for one in found.units] == ["u1"]


def test_the_events_of_a_unit_with_a_damaged_file_still_say_what_it_is(unit, store):
    unit(QUEUED, STARTED)
    store.works.path("u1").write_text("{")
    (found,) = status(store.root).units
    assert found.model == "jem"
    store.works.path("u1", ".events").unlink()
    assert status(store.root).units == []


def test_with_its_events_the_record_of_a_unit_is_not_read(unit, store, monkeypatch):
    unit(QUEUED)
    monkeypatch.setattr(records, "read", pytest.fail)
    assert len(status(store.root).units) == 1
