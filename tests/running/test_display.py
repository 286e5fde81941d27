"""What is shown while a run works."""

import json
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from jembench.interfaces import Event
from jembench.running import display as progress
from jembench.running.display import Bars, Lines

COMMAND = [sys.executable, "-c", "import sys; from jembench.cli.main import main; sys.exit(main())"]


def plan(model, dataset="digits", seed=0):
    key = SimpleNamespace(id=f"{model}{dataset}{seed}", model=model, dataset=dataset, recipe="quick", seed=seed)
    return SimpleNamespace(key=key)


def send(display, kind, fit, **fields):
    display.event(Event(kind=kind, fit=vars(fit.key), unit="measure", **fields))


LOSSES = {"loss": 2.079, "energy_data": -3.12, "energy_samples": 1.5}


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(progress.time, "strftime", lambda format: "12:00:00")
    return clock


def lines(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    return [line.removeprefix("12:00:00 ") for line in err.splitlines()]


# --- lines, for logs --------------------------------------------------------------------------------------------------


def test_a_fit_from_beginning_to_end(clock, capsys):
    jem = plan("jem")
    with Lines([jem]) as display:
        send(display, "training", jem)
        clock.now += 3600
        send(display, "measuring", jem, metric="accuracy")
        clock.now += 62.4
        send(display, "ended", jem)
    assert lines(capsys) == [
        "jem: training on digits, recipe quick, seed 0",
        "jem: measuring accuracy",
        "jem: trained and measured in 1:01:02",
    ]


def test_one_line_a_minute(clock, capsys):
    jem = plan("jem")
    with Lines([jem]) as display:
        send(display, "training", jem)
        for iteration in range(1, 14):
            clock.now += 10
            send(display, "window", jem, done=iteration, total=13, values={"loss": iteration})
    assert lines(capsys)[1:] == ["jem: iteration 6 of 13, loss 6.000", "jem: iteration 12 of 13, loss 12.000"]


def test_each_line_has_the_time(clock, capsys):
    jem = plan("jem")
    send(Lines([jem]), "training", jem)
    assert capsys.readouterr().err.startswith("12:00:00 jem: training")


def test_a_fit_that_was_trained_before(clock, capsys):
    jem = plan("jem")
    with Lines([jem]) as display:
        send(display, "sampling", jem)
        clock.now += 70
        send(display, "measuring", jem, metric="accuracy")
        clock.now += 7
        send(display, "ended", jem)
    assert lines(capsys) == ["jem: measuring accuracy", "jem: measured in 0:01:17"]


def test_a_fit_whose_training_failed(clock, capsys):
    jem = plan("jem")
    with Lines([jem]) as display:
        send(display, "training", jem)
        clock.now += 5
        send(display, "ended", jem)
    assert lines(capsys)[-1] == "jem: failed after 0:00:05"


def test_a_fit_of_which_nothing_can_be_computed(clock, capsys):
    jem, baseline = plan("jem"), plan("baseline")
    with Lines([jem, baseline]) as display:
        send(display, "training", jem)
        send(display, "measuring", jem, metric="accuracy")
        send(display, "ended", jem)
        send(display, "ended", baseline)
    assert lines(capsys)[-1] == "[2/2] baseline: nothing to be computed"


def test_that_another_process_is_at_work_is_told_once(clock, capsys):
    jem = plan("jem")
    display = Lines([jem])
    for _ in range(3):
        send(display, "waiting", jem)
    assert lines(capsys) == ["jem: another process works on it; its results will be taken over"]


def test_trouble_is_told_at_once(clock, capsys):
    jem = plan("jem")
    send(Lines([jem]), "warning", jem, text="no picture [of the samples]")
    assert lines(capsys) == ["jem: no picture [of the samples]"]


def test_divergence_is_printed_in_words(clock, capsys):
    jem = plan("jem")
    found = {"iteration": 20, "reason": "loss was nan"}
    send(Lines([jem]), "diverged", jem, values=found)
    send(Lines([jem]), "diverged", jem, values={**found, "returned_to": 16, "remedy": "seed"})
    assert lines(capsys) == [
        "jem: training diverged at iteration 20 (loss was nan); it goes on unchanged, because the guard only watches",
        "jem: training diverged and was repaired at iteration 20 (loss was nan): it went back to iteration 16 with "
        "a new seed",
    ]


def test_a_metric_that_takes_long_says_how_far_it_is(clock, capsys):
    jem = plan("jem")
    display = Lines([jem])
    clock.now += 61
    send(display, "measuring", jem, metric="pgd", done=64, total=1000)
    assert lines(capsys) == ["jem: 64 of 1000 images, pgd"]


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
    assert Lines(fits).name(vars(fits[0].key)) == name


# --- bars, for terminals ----------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch, capsys, clock):
    """What stands on a terminal 80 columns wide after some events."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")

    def draw(fits, events):
        display = Bars(fits)
        with display:
            events(display)
            display._progress.refresh()
            shown = capsys.readouterr().err
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()

    return draw


def test_a_bar_with_the_last_losses(drawn):
    jem = plan("jem:net=[b]")

    def events(display):
        send(display, "training", jem)
        send(display, "window", jem, done=20, total=1000, values=LOSSES)

    last = drawn([jem], events)[-1]
    assert last.startswith("jem:net=[b] ━")  # brackets are no markup
    assert " 20/1000 " in last
    assert last.rstrip().endswith("loss 2.079 E(data) -3.12 E(samples) 1.50")


def test_a_long_note_stays_on_its_line(drawn):
    jem = plan("jem:net=mypackage.nets:a-very-long-name,norm=batch,width=1000")

    def events(display):
        send(display, "training", jem)
        send(display, "window", jem, done=20, total=1000, values={**LOSSES, "energy_samples": 1e30})

    last = drawn([jem], events)[-1]
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
    *above, last = [line.rstrip() for line in shown if line.strip()]
    assert "[1/2] jem: no picture" in above
    assert "[1/2] jem: trained and measured in 0:00:00" in above
    assert last.startswith("[2/2] baseline ━")
    assert last.endswith("measuring ece")


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
