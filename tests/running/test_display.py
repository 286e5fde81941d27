"""The display of a run, in a log and on a terminal."""

import re
import sys
from types import SimpleNamespace

import pytest

from jembench import progress
from jembench.interfaces import Event
from jembench.running import display as module
from jembench.running.display import Display


def fit(model, seed=0):
    return {
        "id": f"{model}{seed}",
        "model": model,
        "dataset": "digits",
        "recipe": "quick",
        "seed": seed,
    }


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("rich.console.monotonic", lambda: clock.now)
    monkeypatch.setattr(module.platform, "node", lambda: "here")
    monkeypatch.setattr(module.time, "strftime", lambda format: "12:00:00")
    return clock


class Sender:
    """Sends the events of units to a display, at the time of a clock."""

    def __init__(self, display, clock):
        self.display, self.clock = display, clock

    def __call__(self, kind, fit, unit="fit", **fields):
        if "counted" in fields:
            fields["values"] = {"unit": fields.pop("counted")}
        self.display.event(
            Event(kind=kind, fit=fit, time=self.clock.now, work=f"{unit} {fit['id']}", **fields)
        )

    def queue(self, units):
        for fit, unit in units:
            self("queued", fit, unit)


@pytest.fixture
def log(clock):
    """A display for a log."""
    return Sender(Display(), clock)


@pytest.fixture
def lines(capsys):
    """Return the lines that were printed since the last call, without their time."""

    def lines():
        out, err = capsys.readouterr()
        assert out == ""
        assert all(line.startswith("12:00:00 ") for line in err.splitlines())
        return [line.removeprefix("12:00:00 ") for line in err.splitlines()]

    return lines


@pytest.mark.parametrize(
    ("how", "text", "line"),
    [
        ("busy", "another process", []),
        ("stopped", "", ["stopped after 9 s"]),
        ("stopped", "SIGTERM", ["stopped after 9 s: SIGTERM"]),
        ("failed", "no space", ["failed on node7 after 9 s: no space"]),
        ("refused", "other code", ["refused on node7 after 9 s: other code"]),
        ("done", "", ["done on node7 in 9 s"]),
        ("done", "training failed", ["failed on node7 after 9 s: training failed"]),
        ("dropped", "", []),
    ],
)
def test_how_a_unit_may_end(log, clock, lines, how, text, line):
    jem = fit("jem")
    log.queue([(jem, "fit")])
    log("progress", jem)
    clock.now += 9
    log("ended", jem, values={"how": how}, text=text, worker="node7:3")
    assert lines() == [f"jem on digits, seed 0: {each}" for each in line]
    if how in ("busy", "stopped"):  # it will run again
        assert log.display.whole() == "0/1 units done, waiting for workers"
        log("progress", jem)
        log("ended", jem, values={"how": "done"})
        assert log.display.whole() == "1/1 units done"


def test_a_line_a_minute(log, clock, lines):
    fits = [fit("jem", seed) for seed in range(5)]
    log.queue([(of, "fit") for of in fits])
    for of in fits:
        log("progress", of, total=400, counted="iterations", text="training")
    for done in (100, 200):
        clock.now += 100
        log(
            "progress",
            fits[0],
            done=done,
            total=400,
            counted="iterations",
            text="training, loss 2.000",
        )
    log("queued", fits[1], text="its node was lost")
    lines()
    log.display.tick()
    first, second, third, fourth, more = lines()[0].split("; ")
    assert first == "0/5 units done, 1 waiting (its node was lost)"
    assert (
        second
        == "jem on digits, seed 0: 200/400 iterations, about 3 min left, training, loss 2.000"
    )
    assert third == "jem on digits, seed 2: 0/400 iterations, training"
    assert (fourth[:21], more) == ("jem on digits, seed 3", "and 1 more")


def test_a_fit_that_is_opened_without_a_run(log, lines):
    log("progress", fit("jem"), done=3, total=40, counted="steps", text="sampling")
    log.display.tick()
    assert lines() == ["jem on digits, seed 0: 3/40 steps, sampling"]


def test_a_unit_without_a_count_and_one_that_another_process_works_on(log, lines):
    log.queue([(fit("jem"), "fit")])
    log("queued", fit("jem"), text="another process works on it")
    assert log.display.whole() == "0/1 units done, 1 waiting (another process works on it)"
    log("progress", fit("jem"))
    log.display.tick()
    assert lines()[-1] == "0/1 units done; jem on digits, seed 0"


def test_a_training_that_resumes_says_from_where(log, lines):
    for seed, done in enumerate((0, 200)):
        for _ in range(2):
            log(
                "progress",
                fit("jem", seed),
                done=done,
                total=400,
                counted="iterations",
                text="training, loss 2.000",
            )
    log(
        "progress",
        fit("jem", 2),
        done=3,
        total=400,
        counted="iterations",
        text="measuring fid, feature network",
    )
    assert lines() == [
        "jem on digits, seed 0: training",
        "jem on digits, seed 1: training, 200 of 400 iterations done",
    ]


def test_what_is_told_at_once(log, lines):
    jem = fit("jem")
    log("warning", jem, text="no picture [of the samples]")
    log(
        "diverged",
        jem,
        values={"iteration": 20, "reason": "loss was nan"},
        text="training diverged at iteration 20",
    )
    assert [line.removeprefix("jem on digits, seed 0: ") for line in lines()] == [
        "no picture [of the samples]",
        "training diverged at iteration 20",
    ]


@pytest.fixture
def drawn(monkeypatch, capsys, clock):
    """Return what stands on a terminal 100 columns wide after some events."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "100")

    def draw(events):
        with Display(live=True) as display:
            events(Sender(display, clock))
            display.tasks.refresh()
            shown = capsys.readouterr().err
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n")
        return [line.rstrip() for line in plain.splitlines()]

    return draw


def test_a_bar_a_unit_below_that_of_the_run(drawn, clock):
    jem = fit("jem:net=[b]")

    def events(send):
        send.queue([(jem, "fit"), (jem, "attack-part")])
        for done in (0, 10, 20):
            clock.now += 10 * (done > 0)
            send(
                "progress",
                jem,
                done=done,
                total=1000,
                counted="iterations",
                text="training, loss 2.079 E(data) 1e30",
            )

    *_, run, unit = drawn(events)
    assert re.match(r"run +[━╺]+ 0/2 units done", run)
    # no markup
    assert re.match(
        r"jem:net=\[b\] on digits, seed… [━╸╺]+ 20/1,000 iterations 16:20 training", unit
    )
    assert unit.endswith("…")
    assert len(unit) <= 100


def test_what_this_process_does_before_any_unit_is_known(drawn):
    with progress.phase("reading digits"):
        run = drawn(lambda send: None)[-1]
    assert run.endswith("reading digits")


def test_a_unit_that_has_ended_leaves_a_line(drawn):
    jem = fit("jem")

    def events(send):
        send.queue([(jem, "fit"), (jem, "attack-part")])
        send("progress", jem, total=10, counted="iterations")
        print("Note: it is slower", file=sys.stderr)  # as commands print warnings
        send("ended", jem, values={"how": "done"})
        send("progress", jem, "attack-part", text="measuring ece")

    shown = drawn(events)
    assert "Note: it is slower" in shown
    assert "jem on digits, seed 0: done in 1 s" in shown
    assert shown[-2].endswith("1/2 units done --:--")
    assert shown[-1].endswith("measuring ece")
