import json
import queue
import time
from types import SimpleNamespace

import pytest

from jembench import progress
from jembench.catalog import trust
from jembench.catalog.spec import Spec
from jembench.errors import Fallback, SpecError
from jembench.interfaces import Event
from jembench.running import events as module
from jembench.running.events import VARIABLE, Events, chosen_trackers
from jembench.store.outcome import FitKey

FIT = {"model": "zoo_of_tests:jem", "dataset": "zoo_of_tests:data", "recipe": "tiny", "seed": 0}
KEY = FitKey(**FIT | {"model": Spec(FIT["model"]), "dataset": Spec(FIT["dataset"])}, id="0")


def rows(log):
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def window(done, attempt=0):
    return Event(kind="window", done=done, total=6, values={"attempt": attempt, "loss": 0.5})


def send(events, iterations):
    with events.reporting(KEY) as report:
        for done in iterations:
            report(window(done))


def test_a_tracker_of_the_user_gets_every_window_as_data(plan, store, carry_out, tmp_path):
    log = tmp_path / "windows.jsonl"
    whole = plan("jem")
    carry_out(whole, store, [f"zoo_of_tests:windows:file={log}"])
    found = [row for row in rows(log) if row["kind"] == "window"]
    assert [row["done"] for row in found] == list(range(3, 37, 3))
    assert all(
        row["fit"] == {**FIT, "id": whole.fits[0].key.id} and row["total"] == 36 for row in found
    )
    assert found[0]["values"].keys() >= {
        "loss",
        "learning_rate",
        "energy_data",
        "energy_samples",
        "seconds",
    }
    assert "validation_accuracy" in found[-1]["values"]


def test_a_tracker_gets_outcomes_with_intervals(plan, store, carry_out, tmp_path, outcomes):
    log = tmp_path / "all.jsonl"
    whole = plan("jem", "score raises")
    carry_out(whole, store, [f"zoo_of_tests:windows:file={log},everything=true"])
    measured = {row["metric"]: row["values"] for row in rows(log) if row["kind"] == "measured"}
    for (_, _, metric), outcome in outcomes(whole, store).items():
        sent = measured[f"zoo_of_tests:{metric}"]
        assert sent["status"] == outcome.status
        for label, value in outcome.values.items():
            assert sent[label] == value.value
            assert sent.get(f"{label}/low") == value.low
    assert rows(log)[-1]["kind"] == "finished"
    assert all(row["kind"] != "progress" for row in rows(log))


def test_a_tracker_that_fails_is_left_out_and_the_others_go_on(zoo, tmp_path, recorder):
    log = tmp_path / "windows.jsonl"
    missing = tmp_path / "no-folder" / "windows.jsonl"
    specs = [f"zoo_of_tests:windows:file={file}" for file in (missing, log)]
    events = Events(recorder, trackers=specs)
    with (
        pytest.warns(
            Fallback, match=rf"{missing} failed \(FileNotFoundError: .*\) and gets no more events"
        ),
        events,
    ):
        send(events, (3, 6))
    assert recorder.iterations == [3, 6]
    assert len(rows(log)) == 2


def test_a_tracker_that_hangs_holds_nothing_up(zoo, recorder):
    events = Events(recorder, trackers=["zoo_of_tests:hanging"])
    send(events, range(1, 7))
    assert recorder.iterations == list(range(1, 7))
    (tracker,) = events._trackers
    with pytest.warns(
        Fallback, match="hanging has not ended within 0.01 s and gets no more events"
    ):
        tracker.close(0.01)
    assert zoo.HANGING.is_set() is False
    zoo.HANGING.set()
    tracker._thread.join(10)
    assert not tracker._thread.is_alive()


def test_a_command_may_load_the_trackers_that_the_variable_names(zoo, monkeypatch):
    spec = "zoo_of_tests:windows:file=x"
    monkeypatch.setenv(VARIABLE, spec)
    with trust.command(), Events(trackers=chosen_trackers()):
        pass
    monkeypatch.delenv(VARIABLE)
    with trust.command(), pytest.raises(SpecError, match="runs code that you did not name"):
        Events(trackers=[spec])


def test_what_is_new_is_sent_and_nothing_twice(monkeypatch):
    monkeypatch.setattr(module, "PERIOD", 0.001)
    sent = queue.SimpleQueue()
    events = Events(SimpleNamespace(event=sent.put))
    with progress.phase("reading", 10, "images") as at, events.reporting(KEY):
        assert sent.get(timeout=10).text == ""
        at.done = 3
        event = sent.get(timeout=10)
        assert (event.kind, event.text, event.done, event.total) == ("progress", "reading", 3, 10)
        assert event.values == {"unit": "images"}
        time.sleep(0.02)
        assert sent.empty()
    time.sleep(0.02)
    assert sent.empty()
