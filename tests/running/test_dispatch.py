"""The driver's loop, with an executor whose units end as a test says."""

import dataclasses
import time

import pytest

from jembench import stopping
from jembench.catalog.spec import Spec
from jembench.errors import Fallback, OutOfTime, Remark, Unavailable, WorkFailed
from jembench.experiment.works import Work, WorkCell
from jembench.files import write_atomically
from jembench.interfaces.running import Ended
from jembench.running import dispatch
from jembench.running.dispatch import Dispatch
from jembench.running.events import Events
from jembench.stopping import Stopped
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store
from jembench.store.works import WorkStatus


def unit(name, *after, kind="fit", seed=0, **given):
    """Make a unit on the fit of a seed; its one cell bears its name."""
    key = FitKey(
        model=Spec("jem"), dataset=Spec("digits"), recipe="digits", seed=seed, id=f"f{seed}"
    )
    cells = (WorkCell("ece", name),)
    ids = tuple(each.id for each in after)
    return Work(
        kind=kind,
        model="jem",
        dataset="digits",
        recipe={},
        fit=key,
        identity={},
        cells=cells,
        after=ids,
        **given,
    )


class Fake:
    """An executor that ends one unit a call, the first one submitted first.

    Args:
        store: in which it measures.
        endings: how each unit ends, by the metric cell's id of the unit: "done" if a name is not
            there. The last one of several is repeated. A function is called, and gives the ending.
    """

    slots = 2
    here = True
    in_process = False

    def __init__(self, store, endings):
        self.store, self.endings = store, {name: list(how) for name, how in endings.items()}
        self.submitted, self.queue, self.cancelled = [], [], False
        self.names = {}

    def submit(self, jobs):
        for job in jobs:
            assert job.id not in self.queue
            assert self.store.works.path(job.id).exists()
            assert self.store.works.status(job.id).state == "queued"
            self.submitted.append(self.names[job.id])
            self.queue.append(job.id)

    def ended(self, seconds):
        if not self.queue:
            time.sleep(0.001)
            return []
        unit = self.queue.pop(0)
        return [Ended(id=unit, how="stopped")] if self.cancelled else self.end(unit)

    def end(self, unit):
        endings = self.endings.get(self.names[unit], ["done"])
        how = endings.pop(0) if len(endings) > 1 else endings[0]
        how = how() if callable(how) else how
        if how == "done" and self.works[unit].kind == "fit":
            measured(self.store, self.works[unit])
        text = "" if how in ("done", "busy", "stopped") else "what went wrong."
        return [
            Ended(
                id=unit, how=how, text=text, host="node7", log="/logs/7" if how == "failed" else ""
            )
        ]

    def cancel(self):
        self.cancelled = True


def measured(store, work):
    """Write the outcome of a unit's cell."""
    (cell,) = work.cells
    outcome = Outcome(status="na", values={}, reason="", details={"settled": True})
    store.write_cell(Cell(id=cell.id, fit=work.fit, metric=Spec(cell.metric), outcome=outcome), {})


class Recorder:
    """Notes the endings, how far the units are, and why they wait."""

    def __init__(self):
        self.ended, self.seen = [], []

    def event(self, event):
        if event.kind == "ended":
            self.ended.append(event)
        elif event.text:
            self.seen.append((event.kind, event.text))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nothing waits for long."""
    monkeypatch.setattr(dispatch, "POLL", 0.0)
    monkeypatch.setattr(dispatch, "PAUSE", 0.001)
    monkeypatch.setattr(dispatch, "SHARE", 1e9)


@pytest.fixture
def start(store):
    """Make the dispatch of units and its fake executor."""

    def start(units, endings=None, *, fake=Fake):
        executor = fake(store, endings or {})
        executor.works = {unit.id: unit for unit in units}
        executor.names = {unit.id: unit.cells[0].id for unit in units}
        recorder = Recorder()
        return (
            Dispatch({unit.id: unit for unit in units}, store, executor, Events(recorder)),
            executor,
            recorder,
        )

    return start


def chain():
    """Make a fit, two parts of an attack on it, what is measured of them, and another fit."""
    fit = unit("t")
    parts = [unit("a", fit, kind="attack-part", part=(number, 2)) for number in range(2)]
    return [fit, *parts, unit("a", *parts), unit("t2", seed=1)]


def test_units_start_once_when_those_that_they_wait_for_have_ended(start, store):

    class Backwards(Fake):
        def ended(self, seconds):
            found = [ended for unit in reversed(self.queue) for ended in self.end(unit)]
            self.queue = []
            return [*found, *found, Ended(id="of no unit", how="failed")]

    for fake in (Fake, Backwards):
        made, executor, recorder = start(chain(), fake=fake)
        made.run()
        assert executor.submitted == ["t", "t2", "a", "a", "a"]
        assert [event.values["how"] for event in recorder.ended] == ["done"] * 5
        assert store.works.ids() == []
        for cell in list(store.cells()):
            store.cell_path(cell).unlink()


def test_the_status_of_a_unit_is_sent_on(start, store):
    (only,) = units = [unit("t")]

    def write(*, text="training", notes=(), state="running"):
        def look():
            status = WorkStatus(
                state=state, worker="n:1", since=5.0, done=3, total=9, text=text, notes=notes
            )
            store.works.set_status(only.id, status)
            return []

        return look

    looks = iter(
        [write(state="queued", text="Resources"), write(), write(text="kid", notes=("diverged",))]
    )

    class Runs(Fake):
        def ended(self, seconds):
            return next(looks, lambda: super(Runs, self).ended(seconds))()

    made, _, recorder = start(units, fake=Runs)
    made.run()
    assert recorder.seen == [
        ("queued", "Resources"),
        ("progress", "training"),
        ("progress", "kid"),
        ("warning", "diverged"),
    ]


@pytest.mark.parametrize("how", ["busy", "stopped"])
def test_what_was_busy_or_stopped_is_submitted_again(start, store, how):
    made, executor, _ = start(chain()[:1], {"t": [how, how, "done"]})
    made.run()
    assert executor.submitted == ["t", "t", "t"]
    assert store.works.ids() == []


@pytest.mark.parametrize("how", ["busy", "refused"])
def test_what_another_run_has_done_is_not_submitted_again(start, store, how):
    """Two runs on one store submit the same units; the file of one that is done may be gone before
    the other starts.
    """
    units = chain()

    def done_elsewhere():
        measured(store, units[0])
        store.works.remove(units[0].id)
        return how

    made, executor, _ = start(units, {"t": [done_elsewhere]})
    made.run()
    assert executor.submitted.count("t") == 1


@pytest.mark.parametrize("lease", ["f0", "t", "unit"])
def test_what_another_process_works_on_is_held_until_its_lease_is_free(start, store, lease):
    units = [unit("t"), unit("t2", seed=1)]
    other = store.lease(units[0].id if lease == "unit" else lease)
    other.__enter__()

    def frees():
        other.__exit__(None, None, None)
        return "done"

    made, executor, recorder = start(units, {"t2": [frees]})
    made.run()
    assert executor.submitted == ["t2", "t"]
    assert recorder.seen == [("queued", dispatch.BUSY)] * len(recorder.seen)


def test_what_waits_for_a_training_that_failed_is_left_out(start, store):

    class Diverges(Fake):
        def end(self, unit):
            (ended,) = super().end(unit)
            return [
                dataclasses.replace(ended, text="it diverged" if self.names[unit] == "t" else "")
            ]

    made, executor, recorder = start(chain(), fake=Diverges)
    made.run()
    assert executor.submitted == ["t", "t2"]
    endings = [
        (executor.names[event.work], event.values["how"], event.text) for event in recorder.ended
    ]
    assert ("t", "done", "it diverged") in endings
    assert [name for name, how, _ in endings if how == "dropped"] == ["a", "a", "a"]
    assert store.works.ids() == []


@pytest.mark.parametrize("how", ["failed", "lost", "refused"])
def test_a_failure_is_told_at_the_end_with_all_that_is_needed(start, store, how):
    units = chain()
    made, executor, _ = start(units, {"t": [how]})
    with pytest.raises(WorkFailed) as caught:
        made.run()
    assert executor.submitted == ["t", "t2"]
    text, failed = str(caught.value), units[0].id
    assert "1 of 5 units of work were not carried out. The first one, fit jem on digits" in text
    assert f"ended on node7 as {how}: what went wrong." in text
    assert ("Its log: /logs/7." in text) == (how == "failed")
    command = f"jembench work {failed} --store {store.root}"
    assert f"To run it by hand: `{command}`. `jembench status` shows all." in text
    assert caught.value.exit_code == (2 if how == "refused" else 1)
    assert store.works.ids() == [failed]
    status = store.works.status(failed)
    assert (status.state, status.text, status.log) == (
        how,
        "what went wrong.",
        "/logs/7" * (how == "failed"),
    )


def checked():
    """Make two checks, and two fits that wait for both."""
    checks = [unit(f"c{seed}", seed=seed, kind="check", run="r") for seed in range(2)]
    return [*checks, *(unit(f"t{seed}", *checks, seed=seed) for seed in range(2))]


def says(*texts, **fields):
    """Make an executor whose checks say these texts."""

    class Says(Fake):
        def end(self, unit):
            (ended,) = super().end(unit)
            is_check = self.works[unit].kind == "check"
            return [
                dataclasses.replace(ended, text=texts[self.works[unit].fit.seed], **fields)
                if is_check
                else ended
            ]

    return Says


def test_nothing_starts_before_all_checks_have_ended_and_each_remark_is_said(start, store):
    made, executor, recorder = start(checked(), fake=says("", "mirrored\ncopied"))
    with pytest.warns(Remark) as remarks:
        made.run()
    assert [str(each.message) for each in remarks] == ["mirrored", "copied"]
    assert executor.submitted == ["c0", "c1", "t0", "t1"]
    assert [event.values["how"] for event in recorder.ended] == [
        "checked",
        "checked",
        "done",
        "done",
    ]
    assert store.works.ids() == []


def test_what_checks_refuse_is_the_error_of_the_run_and_nothing_starts(start, store):
    refuses = says("no CIFAR-10", "no weights", how="refused", error="Unavailable")
    made, executor, _ = start(checked(), fake=refuses)
    with pytest.raises(Unavailable, match=r"^no CIFAR-10 no weights$"):
        made.run()
    assert executor.submitted == ["c0", "c1"]
    assert store.works.ids() == []
    same = says("no CIFAR-10", "no CIFAR-10", how="refused", error="Unavailable")
    made, _, _ = start(checked(), fake=same)
    with pytest.raises(Unavailable, match=r"^no CIFAR-10$"):
        made.run()


def test_a_check_whose_workers_die_is_a_failure_of_the_run(start, store):
    made, executor, _ = start(checked(), {"c0": ["lost"]})
    with pytest.raises(
        WorkFailed, match=r"1 of 2 units .* The first one, check jem on digits.* as lost"
    ):
        made.run()
    assert executor.submitted == ["c0", "c1"]


def test_after_the_deadline_no_unit_is_started(start, store, monkeypatch):
    now = time.time()
    in_time = [dataclasses.replace(each, deadline=now + 60) for each in chain()]

    def late():
        monkeypatch.setattr(time, "time", lambda: now + 61)
        return "done"

    made, executor, _ = start(in_time, {"t": [late]})
    with pytest.raises(OutOfTime, match=r"The time is up. The same command goes on from there."):
        made.run()
    assert executor.submitted == ["t", "t2"]
    assert executor.cancelled
    made, executor, _ = start(in_time)
    with pytest.raises(OutOfTime):
        made.run()
    assert executor.submitted == []


@pytest.mark.parametrize("signal", [KeyboardInterrupt, Stopped])
def test_what_runs_is_asked_to_stop_and_waited_for(start, store, signal):
    units = [unit(f"t{seed}", seed=seed) for seed in range(3)]

    def interrupted():
        executor.queue.append(units[0].id)  # it goes on
        raise signal

    class Ends(Fake):
        """The one that was running when it was asked to stop is done all the same."""

        def ended(self, seconds):
            if self.cancelled and len(self.queue) == 3:
                return [Ended(id=self.queue.pop(0), how="done")]
            return super().ended(seconds)

    made, executor, _ = start(units, {"t0": [interrupted]}, fake=Ends)
    with pytest.warns(Fallback, match="Stopping 3 units of work"), pytest.raises(signal):
        made.run()
    assert executor.queue == []
    assert store.works.ids() == sorted([units[0].id, units[2].id])
    reason = "Received SIGINT" if signal is KeyboardInterrupt else stopping.reason()
    for each in store.works.ids():
        status = store.works.status(each)
        assert (status.state, status.text) == ("stopped", f"{reason} before it started")


def test_what_killed_runs_left_is_removed_when_its_units_are_done(store):
    done, waits = unit("done"), unit("waits")
    for each in (done, waits):
        write_atomically(store.works.path(each.id), each.job(0).text.encode())
        store.works.set_status(each.id, WorkStatus(state="running"))
    log, other = (store.works.folder / name for name in ("worker-1-0.log", "mine.txt"))
    log.touch(), other.touch()
    measured(store, done)
    dispatch.sweep(store)
    assert store.works.ids() == [waits.id]
    assert log.exists()
    measured(store, waits)
    dispatch.sweep(store)
    assert list(store.works.folder.iterdir()) == [other]
