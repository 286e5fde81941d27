"""Events of a run, and the trackers that receive them."""

import json
import queue
import threading
import time
from contextlib import nullcontext

import pytest

from jembench import progress
from jembench.catalog import trust
from jembench.errors import Fallback, SpecError
from jembench.interfaces import Event, Value
from jembench.running import session, trackers
from jembench.running.events import VARIABLE, Events, beating, chosen_trackers, measured
from jembench.running.session import RunOptions
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

FIT = {"model": "zoo_of_tests:jem", "dataset": "zoo_of_tests:data", "recipe": "tiny", "seed": 0}
KEY = FitKey(**FIT, id="0")


def rows(log):
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def window(done, attempt=0):
    return Event(kind="window", done=done, total=6, values={"attempt": attempt})


def send(report, iterations, until):
    with until:
        for done in iterations:
            report(window(done))


def test_a_tracker_of_the_user_gets_every_window_as_data(plan, store, carry_out, tmp_path):
    log = tmp_path / "windows.jsonl"
    whole = plan("jem")
    carry_out(whole, store, [f"zoo_of_tests:windows:file={log}"])
    found = [row for row in rows(log) if row["kind"] == "window"]
    assert [row["done"] for row in found] == list(range(3, 37, 3))
    assert all(row["fit"] == {**FIT, "id": whole.fits[0].key.id} and row["total"] == 36 for row in found)
    assert found[0]["values"].keys() >= {"loss", "learning_rate", "energy_data", "energy_samples", "seconds"}
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
    report = events.of(KEY)
    with pytest.warns(Fallback, match=rf"{missing} failed \(FileNotFoundError: .*\) and gets no more events"):
        send(report, (3, 6), events)
    assert recorder.iterations == [3, 6]
    assert len(rows(log)) == 2


def test_a_tracker_that_hangs_holds_nothing_up(zoo, monkeypatch, recorder):
    monkeypatch.setattr(trackers, "MOST", 2)
    events = Events(recorder, trackers=["zoo_of_tests:hanging"])
    report = events.of(KEY)
    with pytest.warns(Fallback, match="hanging has not taken 2 events and gets no more events"):
        send(report, range(1, 7), nullcontext())
    assert recorder.iterations == list(range(1, 7))
    (tracker,) = events._trackers
    tracker.close(0.01)  # it does not wait for ever, and says nothing more
    assert zoo.HANGING.is_set() is False
    zoo.HANGING.set()
    tracker._thread.join(10)
    assert not tracker._thread.is_alive()


def test_a_tracker_that_does_not_end_is_left_behind(zoo, recorder):
    zoo.HANGING.clear()
    events = Events(recorder, trackers=["zoo_of_tests:hanging"])
    events.of(KEY)(window(3))
    (tracker,) = events._trackers
    with pytest.warns(Fallback, match=r"hanging has not ended within 0.01 s and gets no more events"):
        tracker.close(0.01)
    zoo.HANGING.set()
    tracker._thread.join(10)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_window_is_given_once_also_to_the_next_process(zoo, store, tmp_path, forgets):
    """After a kill, training goes on from its checkpoint and sends what it repeats and what it knows of before."""
    log = tmp_path / "windows.jsonl"
    store.fit_folder(KEY).mkdir(parents=True)

    def process(*windows):
        with Events(None, store, [f"zoo_of_tests:windows:file={log}"]) as events:
            for each in windows:
                events.of(KEY)(each)

    process(window(1), window(2), window(3), window(4))
    if forgets:  # the fit's folder was removed, and it is trained again
        next(store.fit_folder(KEY).glob("tracked-*")).unlink()
    process(window(1), window(2), window(3), window(4), window(5), window(4, attempt=1), window(5, attempt=1))
    again = [1, 2, 3, 4] * forgets
    assert [row["done"] for row in rows(log)] == [1, 2, 3, 4, *again, 5, 4, 5]


def test_a_tracker_that_joins_late_gets_what_was_trained_before(plan, store, carry_out, tmp_path, monkeypatch):
    early, late = tmp_path / "early.jsonl", tmp_path / "late.jsonl"
    whole = plan("jem", settings=["checkpoint_every=12"])
    names = [f"zoo_of_tests:windows:file={log}" for log in (early, late)]
    from jembench.training import fit

    judge = fit._judge

    def killed(run, *window):
        if run.trainer.iteration == 18:
            raise KeyboardInterrupt
        return judge(run, *window)

    with monkeypatch.context() as patch:
        patch.setattr(fit, "_judge", killed)
        with pytest.raises(KeyboardInterrupt):
            carry_out(whole, store, names[:1])
    assert [row["done"] for row in rows(early)] == list(range(3, 16, 3))
    carry_out(whole, store, names)
    for log in (early, late):
        assert [row["done"] for row in rows(log)] == list(range(3, 37, 3))


@pytest.fixture
def measured_by(plan, store, tmp_path):
    """Carry out two metrics with trackers; gives the metrics of which each has got a result since the last time."""
    whole = plan("jem", "score raises")

    def measured_by(*names):
        logs = [tmp_path / name for name in names]
        specs = [f"zoo_of_tests:windows:file={log},everything=true" for log in logs]
        session.carry_out(whole, store, RunOptions("cpu", executor="local", trackers=specs), session.silent)
        found = [[row["metric"].partition(":")[2] for row in rows(log) if row["kind"] == "measured"] for log in logs]
        for log in logs:
            log.unlink(missing_ok=True)
        return found

    return measured_by


def test_a_tracker_gets_the_results_that_it_lacks_and_none_twice(measured_by):
    assert measured_by("early") == [["score", "raises"]]
    assert measured_by("early", "late") == [[], ["score", "raises"]]  # what fails is tried again, and fails alike
    assert measured_by("early", "late") == [[], []]


def test_what_the_driver_did_not_live_to_send_comes_with_the_next_run(measured_by, store, monkeypatch):
    write = Store.write_cell

    def killed(store, cell, arrays):
        write(store, cell, arrays)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_cell", killed)
        with pytest.raises(KeyboardInterrupt):
            measured_by("log")
    assert measured_by("log") == [["score", "raises"]]


OUTCOMES = [
    Outcome(status="failed", reason="ValueError: two\nlines \x1b[31m"),
    Outcome(status="ok", protocol="count", values={"count": Value(3, 1, 5, 9)}),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.status)
def test_a_result_from_the_store_is_the_one_that_was_sent(store, outcome):
    cell = Cell(id="c", fit=FitKey(model="m", dataset="d", recipe="r", seed=0, id="f"), metric="m", outcome=outcome)
    store.write_cell(cell, {})
    sent, again = (trackers._digest(measured(one, None)) for one in (cell, store.read_cell(cell)))
    assert sent == again


def test_a_command_may_load_the_trackers_that_the_variable_names(zoo, monkeypatch):
    spec = "zoo_of_tests:windows:file=x"
    monkeypatch.setenv(VARIABLE, spec)
    with trust.command(), Events(trackers=chosen_trackers()):
        pass
    with trust.command(), pytest.raises(SpecError, match="runs code that you did not name"):
        Events(trackers=[spec])


def test_every_thread_ends(zoo, tmp_path):
    before = threading.active_count()
    with Events(trackers=[f"zoo_of_tests:windows:file={tmp_path / 'x'}"]):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_what_is_new_is_sent_and_nothing_twice():
    events = queue.SimpleQueue()
    with progress.phase("reading", 10, "images") as at, beating(events.put, 0.001):
        at.done = 3
        event = events.get(timeout=10)
        assert (event.kind, event.text, event.done, event.total) == ("progress", "reading", 3, 10)
        assert event.values == {"unit": "images"}
        time.sleep(0.02)
        assert events.empty()
    time.sleep(0.02)
    assert events.empty()
