"""The driver's loop, with an executor whose units end as a test says."""

import dataclasses
import time

import pytest

from jembench.errors import Fallback, OutOfTime, WorkFailed
from jembench.experiment.works import Work, WorkCell
from jembench.interfaces import Event
from jembench.interfaces.running import Ended
from jembench.running import dispatch, work
from jembench.running.dispatch import Dispatch
from jembench.running.events import Events
from jembench.stopping import Stopped
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store
from jembench.store.works import RunRecord

RUN = "run-1-1"


def unit(name, kind="measure", *after, seed=0, **given):
    """A unit on the fit of a seed; its one cell bears its name."""
    key = FitKey(model="jem", dataset="digits", recipe="digits", seed=seed, id=f"f{seed}")
    cells = (WorkCell("ece", name),)
    ids = tuple(each.id for each in after)
    return Work(
        kind=kind, model="jem", dataset="digits", recipe={}, fit=key, identity={}, cells=cells, after=ids, **given
    )


class Fake:
    """An executor that ends one unit a call, the first one submitted first.

    Args:
        store: in which it trains and measures.
        endings: how each unit ends, by the metric cell's id of the unit: "done" if a name is not there. The last one of
            several is repeated. A function is called, and gives the ending.
    """

    slots = 2
    gpus = False

    def __init__(self, store, endings, *, here=True):
        self.store, self.endings, self.here = store, {name: list(how) for name, how in endings.items()}, here
        self.submitted, self.queue, self.cancelled, self.closed = [], [], False, False
        self.names = {}

    def open(self, driver): ...

    def submit(self, jobs):
        for job in jobs:
            assert job.id not in self.queue
            assert self.store.works.path(job.id).exists()
            self.submitted.append(self.names[job.id])
            self.queue.append(job.id)

    def ended(self, seconds):
        if not self.queue:
            time.sleep(0.001)
            return []
        unit = self.queue.pop(0)
        if self.cancelled:
            return [Ended(id=unit, how="stopped")]
        return self.end(unit)

    def end(self, unit):
        endings = self.endings.get(self.names[unit], ["done"])
        how = endings.pop(0) if len(endings) > 1 else endings[0]
        how = how() if callable(how) else how
        if how == "done":
            self.do(unit)
        text = "" if how in ("done", "busy", "stopped") else "what went wrong."
        return [Ended(id=unit, how=how, text=text, host="node7", log="/logs/7" if how == "failed" else "")]

    def do(self, unit):
        work = self.works[unit]
        if work.kind == "train":
            self.store.trained_now.add(work.fit.id)
        elif work.kind == "measure":
            measured(self.store, work)

    def cancel(self):
        self.cancelled = True

    def close(self): ...


class FakeStore(Store):
    """A store whose models need no weights."""

    def __init__(self, root):
        super().__init__(root)
        self.trained_now = set()

    def is_trained(self, key):
        return key.id in self.trained_now


def measured(store, work, status="ok"):
    """Write the outcome of a unit's cell."""
    (cell,) = work.cells
    outcome = Outcome(status=status, values={}, reason="it diverged" if status == "failed" else "")
    if status == "ok":
        outcome = dataclasses.replace(outcome, details={"settled": True}, status="na")
    store.write_cell(Cell(id=cell.id, fit=work.fit, metric=cell.metric, outcome=outcome), {})


class Recorder:
    """Notes the endings and the windows that the display sees."""

    def __init__(self):
        self.ended, self.windows = [], []

    def event(self, event):
        if event.kind == "ended":
            self.ended.append(event)
        elif event.kind == "window":
            self.windows.append(event.done)


@pytest.fixture
def store(tmp_path):
    return FakeStore(tmp_path / "runs")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nothing waits for long."""
    monkeypatch.setattr(dispatch, "POLL", 0.001)
    monkeypatch.setattr(dispatch, "PAUSE", 0.001)


@pytest.fixture
def start(store):
    """Make the dispatch of units and its fake executor."""

    def start(units, endings=None, *, here=True, fake=Fake):
        executor = fake(store, endings or {}, here=here)
        executor.works = {unit.id: unit for unit in units}
        executor.names = {unit.id: unit.cells[0].id for unit in units}
        run = RunRecord(id=RUN, command="", host="", pid=1, time=0.0, units=len(units))
        store.works.write_run(run)
        recorder = Recorder()
        made = Dispatch(units, store, executor, Events(recorder, store), run, in_process=False)
        return made, executor, recorder

    return start


def left(store):
    """The files of units."""
    return sorted(path.name for path in store.works.folder.iterdir() if not path.name.startswith("run-"))


def chain():
    """A training, two parts of an attack, and what is measured afterwards."""
    train = unit("t", "train")
    parts = [unit("p0", "attack-shard", train, part=(0, 2)), unit("p1", "attack-shard", train, part=(1, 2))]
    return [train, *parts, unit("a", "measure", *parts), unit("m", "measure", train)]


# --- in order ---------------------------------------------------------------------------------------------------------


def test_units_start_when_those_that_they_wait_for_have_ended(start, store):
    made, executor, recorder = start(chain())
    made.run()
    assert executor.submitted == ["t", "p0", "p1", "m", "a"]
    assert [event.values["how"] for event in recorder.ended] == ["done"] * 5
    assert left(store) == []


def test_endings_in_any_order_and_twice(start, store):
    class Backwards(Fake):
        def ended(self, seconds):
            found = [ended for unit in reversed(self.queue) for ended in self.end(unit)]
            self.queue = []
            return [*found, *found, Ended(id="of no unit", how="failed")]

    made, executor, recorder = start(chain(), fake=Backwards)
    made.run()
    assert executor.submitted == ["t", "p0", "p1", "m", "a"]
    assert len(recorder.ended) == 5
    assert left(store) == []


def test_what_happened_to_a_unit_is_sent_on_once(start, store, monkeypatch):
    """Also if it is stopped, and goes on elsewhere."""
    (only,) = units = [unit("t", "train")]
    steps = iter([3, 6, 9])

    def work(how):
        def happen():
            for _ in range(2 if how == "stopped" else 1):
                store.works.append(Event(kind="window", work=only.id, done=next(steps)))
            return how

        return happen

    store.works.append(Event(kind="window", work=only.id, done=1))  # of a former run
    made, _, recorder = start(units, {"t": [work("stopped"), work("done")]})
    made.run()
    assert recorder.windows == [3, 6, 9]


# --- what does not end well -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["busy", "stopped"])
def test_what_was_busy_or_stopped_is_submitted_again(start, store, how):
    made, executor, _ = start(chain(), {"t": [how, how, "done"], "a": [how, "done"]})
    made.run()
    assert executor.submitted == ["t", "t", "t", "p0", "p1", "m", "a", "a"]
    assert left(store) == []


def test_what_another_process_has_done_meanwhile_is_not_submitted_again(start, store):
    units = chain()

    def done_elsewhere():
        store.trained_now.add("f0")
        return "busy"

    made, executor, _ = start(units, {"t": [done_elsewhere]})
    made.run()
    assert executor.submitted == ["t", "p0", "p1", "m", "a"]


def test_what_another_run_has_done_and_removed_is_no_failure(start, store):
    """Two runs on one store submit the same units; the file of one that is done is gone before the other's starts."""
    units = chain()

    def gone():
        store.works.remove(units[0].id)
        return "refused"

    made, executor, _ = start(units, {"t": [gone, "done"]})
    made.run()
    assert executor.submitted == ["t", "t", "p0", "p1", "m", "a"]


def test_what_waits_for_a_training_that_failed_is_left_out(start, store):
    """Its cells have their outcome, and the run goes on."""
    first, other = chain(), [unit("t2", "train", seed=1)]
    other.append(unit("m2", "measure", *other, seed=1))

    class Diverges(Fake):
        def end(self, unit):
            (ended,) = super().end(unit)
            return [dataclasses.replace(ended, text="it diverged" if self.names[unit] == "t" else "")]

    made, executor, recorder = start(first + other, fake=Diverges)
    made.run()
    assert executor.submitted == ["t", "t2", "m2"]
    endings = [(executor.names[event.work], event.values["how"], event.text) for event in recorder.ended]
    assert ("t", "done", "it diverged") in endings
    assert sorted(name for name, how, _ in endings if how == "dropped") == ["a", "m", "p0", "p1"]
    assert left(store) == []


@pytest.mark.parametrize("how", ["failed", "lost", "refused"])
def test_a_failure_is_told_at_the_end_with_all_that_is_needed(start, store, how):
    units = [*chain(), unit("t2", "train", seed=1)]
    made, executor, _ = start(units, {"p1": [how], "t2": ["done"]})
    with pytest.raises(WorkFailed) as caught:
        made.run()
    assert sorted(executor.submitted) == ["m", "p0", "p1", "t", "t2"]
    text, failed = str(caught.value), units[2].id
    assert "1 of 6 units of work were not carried out. The first one, attack-shard part 2 of 2 jem on digits" in text
    assert f"ended on node7 as {how}: what went wrong." in text
    assert ("Its log: /logs/7." in text) == (how == "failed")
    command = f"jembench work {failed} --store {store.root}"
    assert f"To run it by hand: `{command}`. `jembench status` shows all." in text
    assert caught.value.exit_code == (2 if how == "refused" else 1)
    assert left(store) == [f"{failed}.events", f"{failed}.json"]
    last = store.works.latest(failed).last
    assert (last.kind, last.values["how"], last.worker) == ("ended", how, "node7")


def test_after_the_deadline_no_unit_is_started(start, store, monkeypatch):
    """Neither one that waited for another, nor one that waits in the executor: it is cancelled."""
    now = time.time()
    in_time = [dataclasses.replace(each, deadline=now + 60) for each in (*chain(), unit("t2", "train", seed=1))]

    def late():
        monkeypatch.setattr(time, "time", lambda: now + 61)
        return "done"

    made, executor, _ = start(in_time, {"t": [late]})
    with pytest.raises(OutOfTime, match=r"The time is up. The same command goes on from there."):
        made.run()
    assert executor.submitted == ["t", "t2"]
    assert executor.cancelled
    assert left(store) == sorted(f"{in_time[-1].id}{ending}" for ending in (".json", ".events"))
    made, executor, _ = start(in_time)
    with pytest.raises(OutOfTime):
        made.run()
    assert executor.submitted == []


def test_before_the_deadline_what_was_stopped_is_submitted_again(start, store):
    made, executor, _ = start(
        [dataclasses.replace(each, deadline=time.time() + 60) for each in chain()], {"t": ["stopped", "done"]}
    )
    made.run()
    assert executor.submitted[:2] == ["t", "t"]


# --- several runs -----------------------------------------------------------------------------------------------------


def test_what_another_living_run_has_submitted_is_waited_for(start, store):
    """It is done there; what waited for it is submitted here."""
    units = [unit("t", "train"), unit("t2", "train", seed=1)]
    units.append(unit("m", "measure", units[0]))
    store.works.append(Event(kind="queued", work=units[0].id, text="run-2-2"))

    def meanwhile():
        store.trained_now.add("f0")
        return "done"

    made, executor, recorder = start(units, {"t2": [meanwhile]}, here=False)
    with store.lease("run-2-2"):
        made.run()
    assert executor.submitted == ["t2", "m"]
    assert sorted(executor.names[event.work] for event in recorder.ended) == ["m", "t", "t2"]
    assert left(store) == []


def test_what_a_run_has_submitted_that_died_is_taken_over(start, store):
    units = [unit("t", "train"), unit("t2", "train", seed=1)]
    store.works.append(Event(kind="queued", work=units[0].id, text="run-2-2"))
    other = store.lease("run-2-2")
    other.__enter__()

    def dies():
        other.__exit__(None, None, None)
        return "done"

    made, executor, _ = start(units, {"t2": [dies]}, here=False)
    made.run()
    assert executor.submitted == ["t2", "t"]


def test_on_the_same_machine_two_runs_share_the_work(start, store):
    """Whoever comes first does it: the other one's worker says that it is busy."""
    (only,) = units = [unit("t", "train")]
    store.works.append(Event(kind="queued", work=only.id, text="run-2-2"))
    made, executor, _ = start(units)
    with store.lease("run-2-2"):
        made.run()
    assert executor.submitted == ["t"]


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", [KeyboardInterrupt, Stopped])
def test_what_runs_is_asked_to_stop_and_waited_for(start, store, signal):
    units = [unit("t", "train"), unit("t2", "train", seed=1), unit("t3", "train", seed=2)]

    def interrupted():
        executor.queue.append(units[0].id)  # it goes on
        raise signal

    class Ends(Fake):
        """The one that was running when it was asked to stop is done all the same."""

        def cancel(self):
            super().cancel()
            self.ends = True

        def ended(self, seconds):
            if self.cancelled and self.ends:
                self.ends = False
                unit = self.queue.pop(0)
                self.do(unit)
                return [Ended(id=unit, how="done")]
            return super().ended(seconds)

    made, executor, _ = start(units, {"t": [interrupted]}, fake=Ends)
    with pytest.warns(Fallback, match="Stopping 3 units of work"), pytest.raises(signal):
        made.run()
    assert executor.queue == []
    assert left(store) == sorted(f"{each.id}{end}" for each in (units[0], units[2]) for end in (".json", ".events"))


def test_a_unit_whose_worker_has_died_by_its_lease_is_no_longer_shown_as_running(start, store, monkeypatch):
    """Whoever holds a lease runs; nothing is said of a worker that holds none."""
    units = [unit(name, "train", seed=seed) for seed, name in enumerate("abc")]
    alive = {"node1:1": True, "node2:2": False}
    monkeypatch.setattr(store, "workers", lambda: alive)

    def begun():
        for number, each in enumerate(units, 1):
            store.works.append(Event(kind="started", work=each.id, worker=f"node{number}:{number}"))
        return "busy"

    def look():
        made._next_note = 0.0
        return "busy"

    made, _, recorder = start(units, {"a": [begun, "busy", look, look, "done"], "b": [look, look, look, "done"]})
    made.run()
    (gone,) = [event for event in recorder.ended if event.values["how"] == "gone"]
    assert gone.work == units[1].id
    assert gone.text == "its worker node2:2 has died or lost its machine"


def test_how_far_the_run_is_can_be_read(start, store, monkeypatch):
    monkeypatch.setattr(dispatch, "SHARE", 1.0)
    seen = []

    def look():
        made._next_note = 0.0
        (run,) = store.works.runs()
        seen.append((run.units, run.done, run.failed, run.pid))
        return "done"

    units = [unit("t", "train"), unit("t2", "train", seed=1)]
    made, _, _ = start(units, {"t": [look], "t2": [look]})
    made.run()
    assert seen == [(2, 0, 0, 1), (2, 1, 0, 1)]


def test_what_killed_runs_left_is_removed_when_its_units_are_done(store):
    done, waits = unit("done"), unit("waits")
    for each in (done, waits):
        store.works.write(each.id, each.job(0).text)
        store.works.append(Event(kind="queued", work=each.id, text="run-0-1"))
    log = store.works.folder / "slurm" / "jembench-1" / "7.log"
    log.parent.mkdir(parents=True)
    log.touch()
    measured(store, done)
    other = RunRecord(id="run-2-2", command="", host="", pid=1, time=0.0, units=1)
    store.works.write_run(other)
    with store.lease(other.id):
        work.sweep(store, RUN)
    assert store.works.ids() == sorted([done.id, waits.id])
    work.sweep(store, RUN)
    assert store.works.ids() == [waits.id]
    assert log.exists()
    measured(store, waits)
    store.works.write_run(dataclasses.replace(other, id=RUN))
    work.sweep(store, RUN)
    assert [run.id for run in store.works.runs()] == [RUN]
    assert [path.name for path in store.works.folder.iterdir()] == [f"{RUN}.json"]
