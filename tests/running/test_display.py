"""What is shown while a run works."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from jembench.cli import main
from jembench.errors import Fallback
from jembench.interfaces import Event
from jembench.running import display as progress
from jembench.running.bars import Bars
from jembench.running.display import Lines

COMMAND = [sys.executable, "-c", "import sys; from jembench.cli.main import main; sys.exit(main())"]


def plan(model, dataset="digits", seed=0):
    key = SimpleNamespace(id=f"{model}{dataset}{seed}", model=model, dataset=dataset, recipe="quick", seed=seed)
    return SimpleNamespace(key=key)


def send(display, kind, fit, unit=None, **fields):
    """An event of a unit of a fit; None: of the only one."""
    about = {"work": unit.id, "unit": unit.kind} if unit else {"work": fit.key.id}
    display.event(Event(kind=kind, fit=vars(fit.key), **about, **fields))


def of(display, *fits):
    """A display of fits that are worked on one after the other."""
    for fit in fits:
        send(display, "queued", fit, total=1)
    return display


class Unit(NamedTuple):
    id: str
    kind: str
    fit: SimpleNamespace


def queue(display, fits, *kinds, slots=2):
    """Units of all fits, of each kind, that the display has seen."""
    units = [Unit(f"{kind} {fit.key.id}", kind, fit) for fit in fits for kind in kinds]
    for unit in units:
        send(display, "queued", unit.fit, unit, total=slots)
    return units


LOSSES = {"loss": 2.079, "energy_data": -3.12, "energy_samples": 1.5}


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(progress.time, "time", lambda: clock.now)
    monkeypatch.setattr(progress.platform, "node", lambda: "here")
    monkeypatch.setattr(progress.time, "strftime", lambda format: "12:00:00")
    return clock


def lines(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    return [line.removeprefix("12:00:00 ") for line in err.splitlines()]


# --- lines, for logs --------------------------------------------------------------------------------------------------


def test_a_fit_from_beginning_to_end(clock, capsys):
    jem = plan("jem")
    with of(Lines(), jem) as display:
        send(display, "training", jem)
        clock.now += 3600
        send(display, "measuring", jem, metric="accuracy")
        clock.now += 62.4
        send(display, "ended", jem)
    assert lines(capsys) == [
        "jem: training on digits, recipe quick, seed 0",
        "jem: trained and measured in 1:01:02",
    ]


def test_one_line_a_minute(clock, capsys):
    jem = plan("jem")
    with of(Lines(), jem) as display:
        send(display, "training", jem)
        for iteration in range(1, 14):
            clock.now += 10
            send(display, "window", jem, done=iteration, total=13, values={"loss": iteration})
            if iteration % 6 == 0:
                display.tick()
    assert lines(capsys)[1:] == [
        "0:01:00, about 70 s left; jem: 6 of 13 iterations, 6.0/min, about 70 s left, loss 6.000",
        "0:02:00, about 10 s left; jem: 12 of 13 iterations, 6.0/min, about 10 s left, loss 12.000",
    ]


def test_each_line_has_the_time(clock, capsys):
    jem = plan("jem")
    send(of(Lines(), jem), "training", jem)
    assert capsys.readouterr().err.startswith("12:00:00 jem: training")


def test_a_fit_that_was_trained_before(clock, capsys):
    jem = plan("jem")
    with of(Lines(), jem) as display:
        send(display, "sampling", jem)
        clock.now += 70
        send(display, "measuring", jem, metric="accuracy")
        clock.now += 7
        send(display, "ended", jem)
    assert lines(capsys) == ["jem: measured in 0:01:17"]


def test_a_fit_whose_training_failed(clock, capsys):
    jem = plan("jem")
    with of(Lines(), jem) as display:
        send(display, "training", jem)
        clock.now += 5
        send(display, "ended", jem)
    assert lines(capsys)[-1] == "jem: failed after 0:00:05"


def test_a_fit_of_which_nothing_can_be_computed(clock, capsys):
    jem, baseline = plan("jem"), plan("baseline")
    with of(Lines(), jem, baseline) as display:
        send(display, "training", jem)
        send(display, "measuring", jem, metric="accuracy")
        send(display, "ended", jem)
        send(display, "ended", baseline)
    assert lines(capsys)[-1] == "[2/2] baseline: nothing to be computed"


def test_that_another_process_is_at_work_is_told_once(clock, capsys):
    jem = plan("jem")
    display = of(Lines(), jem)
    for _ in range(3):
        send(display, "waiting", jem)
    assert lines(capsys) == ["jem: another process works on it; its results will be taken over"]


def test_trouble_is_told_at_once(clock, capsys):
    jem = plan("jem")
    send(of(Lines(), jem), "warning", jem, text="no picture [of the samples]")
    assert lines(capsys) == ["jem: no picture [of the samples]"]


def test_divergence_is_printed_in_words(clock, capsys):
    jem = plan("jem")
    found = {"iteration": 20.0, "reason": "loss was nan"}  # numbers from a file are floats
    send(of(Lines(), jem), "diverged", jem, values=found)
    send(of(Lines(), jem), "diverged", jem, values={**found, "returned_to": 16.0, "remedy": "seed"})
    assert lines(capsys) == [
        "jem: training diverged at iteration 20 (loss was nan); it goes on unchanged, because the guard only watches",
        "jem: training diverged and was repaired at iteration 20 (loss was nan): it went back to iteration 16 with "
        "a new seed",
    ]


def test_a_metric_that_takes_long_says_how_far_it_is(clock, capsys):
    jem = plan("jem")
    display = of(Lines(), jem)
    send(display, "measuring", jem, metric="pgd", done=3, total=4)
    values = {"unit": "images", "rate": 1234.5}
    # 50 images are attacked together: 10 of them would be done by now, then 60 images and 20 of the next
    for done, begun in ((0, 0), (0, 10), (60, 20), (60, 15)):
        send(display, "progress", jem, metric="pgd", done=done, total=1000, values={**values, "begun": begun})
        display.tick()
        clock.now += 30
    assert lines(capsys) == [
        "0:00:00; jem: 0 of 1,000 images, measuring pgd (3 of 4), 1,234 passes/s",
        "0:00:30; jem: 0 of 1,000 images, 20.0/min, about 50 min left, measuring pgd (3 of 4), 1,234 passes/s",
        "0:01:00; jem: 60 of 1,000 images, 1.3/s, about 12 min left, measuring pgd (3 of 4), 1,234 passes/s",
        "0:01:30; jem: 60 of 1,000 images, 53.3/min, about 17 min left, measuring pgd (3 of 4), 1,234 passes/s",
    ]


def test_what_reports_nothing_says_since_when_it_goes_on(clock, capsys):
    jem = plan("jem")
    display = of(Lines(), jem)
    send(display, "measuring", jem, metric="kid")
    clock.now += 20
    display.tick()
    assert lines(capsys) == ["0:00:20; jem: measuring kid, 20 s"]


def test_a_log_gets_its_line_a_minute_by_itself(capsys):
    jem = plan("jem")
    with of(Lines(seconds=0.001), jem) as display:
        send(display, "measuring", jem, metric="kid")
        deadline = time.monotonic() + 10
        while "measuring kid" not in capsys.readouterr().err:
            assert time.monotonic() < deadline


def test_what_is_done_before_any_fit_is_worked_on(drawn):
    last = drawn([], lambda display: display.event(Event(kind="progress", text="reading digits")))[-1]
    assert last.rstrip() == "0:00:00, reading digits"


def test_units_one_after_the_other_are_shown_as_one_fit(clock, capsys):
    fits = [plan("jem"), plan("baseline")]
    with Lines() as display:
        work = queue(display, fits, "train", "measure", slots=1)
        for fit, (train, measure) in zip(fits, (work[:2], work[2:]), strict=True):
            send(display, "started", fit, train)
            send(display, "training", fit, train)
            clock.now += 20
            send(display, "ended", fit, train, values={"how": "done"})
            clock.now += 100  # others run
            send(display, "started", fit, measure)
            send(display, "measuring", fit, measure, metric="accuracy")
            clock.now += 5
            send(display, "ended", fit, measure, values={"how": "done"})
    assert [line for line in lines(capsys) if "training" not in line] == [
        "[1/2] jem: trained and measured in 0:00:25",
        "[2/2] baseline: trained and measured in 0:00:25",
    ]


# --- several units at once --------------------------------------------------------------------------------------------


@pytest.fixture
def fits():
    return [plan("jem"), plan("baseline"), plan("jem", seed=1)]


def test_a_line_for_the_start_and_the_end_of_each_unit(clock, capsys, fits):
    with Lines() as display:
        work = queue(display, fits[:1], "train", "measure", "attack-shard")
        for unit, kind in zip(work, ("training", "measuring", "measuring"), strict=True):
            send(display, "started", fits[0], unit)
            send(display, kind, fits[0], unit)
            clock.now += 7
            send(display, "ended", fits[0], unit, values={"how": "done"})
        send(
            display, "ended", fits[0], work[-1], values={"how": "done"}
        )  # what the worker has said, the executor repeats
    assert lines(capsys) == [
        "jem: training on digits, recipe quick, seed 0",
        "jem: trained in 0:00:07",
        "jem: measuring",
        "jem: measured in 0:00:07",
        "jem: attacking",
        "jem: attacked in 0:00:07",
    ]


def test_once_a_minute_the_whole_run(clock, capsys, fits):
    with Lines() as display:
        one, two, three = work = queue(display, fits, "train")
        for fit, unit in zip(fits[:2], work[:2], strict=True):
            send(display, "training", fit, unit)
        for seconds in (50, 50, 100):
            clock.now += seconds
            send(display, "window", fits[0], one, done=int(clock.now) - 1000, total=400, values={"loss": 2})
            if seconds == 100 or clock.now == 1100:
                display.tick()
        send(display, "ended", fits[0], one, values={"how": "done"})
        send(display, "ended", fits[1], two, values={"how": "lost"}, worker="node7:3", text="killed by signal 9")
        send(display, "training", fits[2], three)
        clock.now += 60
        send(display, "window", fits[2], three, done=1, total=400, values={"loss": 2})
        display.tick()
    assert [line for line in lines(capsys) if "training on" not in line] == [
        # two of 300 s and one of 400 s, on two workers
        "0:01:40, 0 of 3 units done, 2 running, about 8 min left; "
        "[1/3] jem seed 0: 100 of 400 iterations, 1.0/s, about 5 min left, loss 2.000; "
        "[2/3] baseline seed 0: training, 2 min",
        "0:03:20, 0 of 3 units done, 2 running, about 7 min left; "
        "[1/3] jem seed 0: 200 of 400 iterations, 1.0/s, about 3 min left, loss 2.000; "
        "[2/3] baseline seed 0: training, 3 min",
        "[1/3] jem seed 0: trained in 0:03:20",
        "[2/3] baseline seed 0: lost on node7 after 0:03:20: killed by signal 9",
        "0:04:20, 1 of 3 units done, 1 failed, 1 running, about 2 min left; "
        "[3/3] jem seed 1: 1 of 400 iterations, loss 2.000",
    ]


@pytest.mark.parametrize(
    ("how", "text", "line"),
    [
        ("busy", "another process", []),
        ("stopped", "", ["jem: stopped after 0:00:09"]),
        ("stopped", "SIGTERM", ["jem: stopped after 0:00:09: SIGTERM"]),
        ("failed", "no space", ["jem: failed on node7 after 0:00:09: no space"]),
        ("refused", "other code", ["jem: refused on node7 after 0:00:09: other code"]),
        ("done", "training failed", ["jem: failed on node7 after 0:00:09: training failed"]),
        ("dropped", "", []),
        ("gone", "its worker has died", ["jem: stopped after 0:00:09: its worker has died"]),
    ],
)
def test_how_a_unit_may_end(clock, capsys, fits, how, text, line):
    with Lines() as display:
        (unit,) = queue(display, fits[:1], "measure")
        send(display, "started", fits[0], unit)
        clock.now += 9
        send(display, "ended", fits[0], unit, values={"how": how}, text=text, worker="node7:3")
    assert lines(capsys) == ["jem: measuring", *line]


def test_a_unit_that_was_stopped_goes_on_later(clock, capsys, fits):
    with Lines() as display:
        (unit,) = queue(display, fits[:1], "train")
        for how, seconds in {"stopped": 20, "done": 30}.items():
            send(display, "started", fits[0], unit)
            send(display, "training", fits[0], unit)
            clock.now += seconds
            send(display, "ended", fits[0], unit, values={"how": how})
    assert lines(capsys)[1::2] == ["jem: stopped after 0:00:20", "jem: trained in 0:00:50"]


def test_a_unit_whose_worker_is_gone_does_not_run_and_is_waited_for(clock, capsys, fits):
    with Lines() as display:
        one, two = queue(display, fits[:2], "train")
        for done in (1, 399):
            for fit, unit in zip(fits, (one, two), strict=False):
                send(display, "started" if done == 1 else "window", fit, unit, done=done, total=400, values=LOSSES)
                send(display, "window", fit, unit, done=done, total=400, values=LOSSES)
            clock.now += 398
        assert "2 running, about 1 s left" in display.whole()
        for fit, unit in zip(fits, (one, two), strict=False):
            send(display, "ended", fit, unit, values={"how": "gone"})
        assert display.whole() == "0:13:16, 0 of 2 units done, 0 running, waiting for workers"
        send(display, "started", fits[0], one)
        assert "1 running" in display.whole()


def test_a_unit_that_is_queued_again_does_not_run(clock, capsys, fits):
    with Lines() as display:
        one, two = queue(display, fits[:2], "train")
        for fit, unit in zip(fits, (one, two), strict=False):
            send(display, "training", fit, unit)
        send(display, "queued", fits[0], one, values={"reason": "its node was lost"})
        display.tick()
        send(display, "training", fits[0], one)
        display.tick()
    assert [line.split("; ")[0] for line in lines(capsys) if "units done" in line] == [
        "0:00:00, 0 of 2 units done, 1 running, 1 waiting (its node was lost)",
        "0:00:00, 0 of 2 units done, 2 running",
    ]


def test_what_was_dropped_is_no_longer_waited_for(clock, capsys, fits):
    with Lines() as display:
        train, measure, *others = queue(display, fits[:2], "train", "measure")
        send(display, "training", fits[0], train)
        clock.now += 9
        send(display, "ended", fits[0], measure, values={"how": "dropped"})
        send(display, "ended", fits[0], train, values={"how": "done"}, text="ValueError: no gradient")
        for unit in others:
            send(display, "ended", fits[1], unit, values={"how": "done"})
        assert display.whole() == "0:00:09, 2 of 4 units done, 1 failed, 0 running"
    assert lines(capsys)[1:] == ["[1/2] jem: failed after 0:00:09: ValueError: no gradient"] + 2 * [
        "[2/2] baseline: nothing to be computed"
    ]


def test_a_worker_s_log_names_each_fit_in_full(clock, capsys, fits):
    train, measure = Unit("1", "train", fits[0]), Unit("2", "measure", fits[2])
    with Lines() as display:
        for kind, unit in (("training", train), ("measuring", measure)):
            send(display, "started", unit.fit, unit)
            send(display, kind, unit.fit, unit)
            send(display, "ended", unit.fit, unit, values={"how": "done"})
    assert lines(capsys) == [
        "jem on digits, seed 0: training on digits, recipe quick, seed 0",
        "jem on digits, seed 0: trained in 0:00:00",
        "jem on digits, seed 1: measured in 0:00:00",
    ]


def test_workers_are_named_where_they_are_not_all_here(clock, capsys, fits):
    with Lines() as display:
        one, two, _ = queue(display, fits, "train")
        for fit, unit, worker in ((fits[0], one, "here:5"), (fits[1], two, "node7:6")):
            send(display, "started", fit, unit, worker=worker)
            send(display, "training", fit, unit, worker=worker)
    told = lines(capsys)
    assert told[0].endswith("seed 0")
    assert told[1].endswith("seed 0 on node7:6")


def test_a_thousand_units_are_cheap(clock, capsys, monkeypatch):
    """A refresh draws what fits, and events draw nothing."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    many = [plan("jem", seed=seed) for seed in range(1000)]
    with Bars() as display:
        work = queue(display, many, "train", slots=1000)
        monkeypatch.setattr(display._live, "refresh", pytest.fail)
        rows = []
        monkeypatch.setattr(display, "_row", lambda task, width: rows.append(task) or [])
        for fit, unit in zip(many, work, strict=True):
            send(display, "started", fit, unit)
            send(display, "window", fit, unit, done=1, total=10, values=LOSSES)
        monkeypatch.undo()
        rows.clear()
        display._rendered()
        assert len(rows) < 100


@pytest.mark.parametrize(
    ("fits", "name"),
    [
        ([plan("jem")], "jem"),
        ([plan("jem"), plan("baseline")], "[1/2] jem"),
        ([plan("jem"), plan("jem", seed=1)], "[1/2] jem seed 0"),
        ([plan("jem"), plan("jem", dataset="svhn")], "[1/2] jem digits"),
        ([plan("jem"), plan("jem", "svhn", 1)], "[1/2] jem digits seed 0"),
    ],
)
def test_a_fit_is_called_by_its_place_and_by_what_tells_it_from_the_others(fits, name):
    display = of(Lines(), *fits)
    display.print = lambda text: told.append(text)
    told = []
    send(display, "warning", fits[0], text="no picture")
    assert told == [f"{name}: no picture"]


# --- bars, for terminals ----------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch, capsys, clock):
    """What stands on a terminal 80 columns wide after some events."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")

    def draw(fits, events, slots=1):
        display = of(Bars(), *fits) if slots == 1 else Bars()
        with display:
            events(display)
            display._live.refresh()
            shown = capsys.readouterr().err
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()

    return draw


def test_a_bar_with_the_last_losses(drawn):
    jem = plan("jem:net=[b]")

    def events(display):
        send(display, "training", jem)
        send(display, "window", jem, done=20, total=1000, values=LOSSES)

    *_, last, whole = drawn([jem], events)
    assert whole.startswith("0:00:00")
    assert last.startswith("jem:net=[b] ━")  # brackets are no markup
    assert " 20/1000 " in last
    assert last.rstrip().endswith("loss 2.079 E(data) -3.12 E(samples) 1.50")


def test_a_long_note_stays_on_its_line(drawn):
    jem = plan("jem:net=mypackage.nets:a-very-long-name,norm=batch,width=1000")

    def events(display):
        send(display, "training", jem)
        send(display, "window", jem, done=20, total=1000, values={**LOSSES, "energy_samples": 1e30})

    *_, last, whole = drawn([jem], events)
    assert whole.startswith("0:00:00")
    assert last.startswith("jem:net=mypackage")
    assert " 20/1000 " in last
    assert "…" in last
    assert len(last) <= 80


def test_a_finished_fit_leaves_a_line_and_the_next_one_gets_the_bar(drawn):
    fits = [plan("jem"), plan("baseline")]

    def events(display):
        send(display, "training", fits[0])
        send(display, "window", fits[0], done=10, total=10, values=LOSSES)
        send(display, "measuring", fits[0], metric="fid")
        send(display, "warning", fits[0], text="no picture")
        send(display, "ended", fits[0])
        send(display, "measuring", fits[1], metric="ece")

    shown = drawn(fits, events)
    *above, last, whole = [line.rstrip() for line in shown if line.strip()]
    assert whole.startswith("0:00:00, 1 of 2 fits done")
    assert "[1/2] jem: no picture" in above
    assert "[1/2] jem: trained and measured in 0:00:00" in above
    assert last.startswith("[2/2] baseline ━")
    assert last.endswith("measuring ece")


def test_a_note_stands_above_the_bars(drawn):
    def events(display):
        send(display, "training", plan("jem"))
        display._live.refresh()
        main._note(None)(Fallback("it is slower"), Fallback)

    assert "Note: it is slower" in [line.rstrip() for line in drawn([plan("jem")], events)]


def test_a_bar_a_unit_and_a_line_for_the_run(drawn, clock, monkeypatch):
    monkeypatch.setenv("LINES", "6")
    fits = [plan("jem", seed=seed) for seed in range(5)]

    def events(display):
        work = queue(display, fits, "train", "measure", slots=8)
        for number, (fit, unit) in enumerate(zip(fits, work[::2], strict=True)):
            send(display, "started", fit, unit, worker=f"node{number}:{number}")
        for done in (100, 200):
            send(display, "window", fits[0], work[0], done=done, total=1000, values=LOSSES)
            clock.now += 60

    *_, first, second, third, more, whole = [line.rstrip() for line in drawn(fits, events, slots=8)]
    assert re.match(r"\[1/5\] jem seed 0 [━╺]+ +200/1000 +1.7/s +7 min +node0:0 +loss 2.079 E", first)
    assert re.match(r"\[2/5\] jem seed 1 ━+ +node1:1 +starting", second)
    assert re.match(r"\[3/5\] jem seed 2 ━+ +node2:2 +starting", third)
    assert more == "and 2 more"
    assert whole == "0:02:00, 0 of 10 units done, 5 running"  # how long measuring takes is not known


def test_all_that_a_real_terminal_gets(zoo_of_tests, tmp_path):
    """Bars on stderr, which is a terminal; the table on stdout, which is a file."""
    arguments = ["run", "hybrid", "--models", "zoo_of_tests:jem", "--metrics", "accuracy", "--format", "json"]
    arguments += ["--dataset", "zoo_of_tests:data", "--recipe", str(zoo_of_tests / "tiny.toml")]
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(zoo_of_tests), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        terminal = b""
        while chunk := _read(ours):
            terminal += chunk
        out = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert json.loads(out)["rows"][0]["model"] == "zoo_of_tests:jem"
    shown = terminal.decode()
    assert "━" in shown
    assert "/36" in shown  # how far it is; the last iterations may pass between two refreshes
    assert shown.index("\x1b[?25l") < shown.rindex("\x1b[?25h")  # the cursor is hidden, and comes back
    assert "trained and measured in " in shown
    assert "\x1b[2K" in shown[shown.rindex("━") :]  # the line of the bar is wiped


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""
