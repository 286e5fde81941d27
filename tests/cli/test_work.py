import io
import json
import re
import sys
from types import SimpleNamespace

import pytest

from jembench.cli import work
from jembench.errors import OutOfTime, StoreError, Unavailable
from jembench.interfaces.running import Ended
from jembench.store.store import Store


@pytest.mark.parametrize(
    ("result", "how", "text"),
    [
        (Ended(id="u1", how="done", text="It diverged."), "done", "It diverged."),
        (Ended(id="u1", how="busy"), "busy", ""),
        (OutOfTime("The time is up."), "stopped", "The time is up."),
        (KeyboardInterrupt(), "stopped", "Received SIGINT"),
        (StoreError("The disk\nis full."), "failed", "The disk is full."),
        (ZeroDivisionError("by 0"), "failed", "ZeroDivisionError: by 0"),
        (Unavailable("There is no digits."), "refused", "There is no digits."),
    ],
)
def test_how_a_unit_ends_is_told_to_the_driver(tmp_path, monkeypatch, result, how, text):
    def carry_out(unit):
        if isinstance(result, BaseException):
            raise result
        return result

    queued = SimpleNamespace(id="u1", is_late=False)
    monkeypatch.setattr(work, "_read", lambda store, unit: queued)
    store = Store(tmp_path)
    ended = work._work_on(lambda: SimpleNamespace(carry_out=carry_out), store, "u1")
    assert (ended.id, ended.how, ended.text) == ("u1", how, text)
    assert ended.error == (type(result).__name__ if isinstance(result, BaseException) else "")
    # its deadline came while it waited in a queue: it does not begin, nor is torch imported
    queued.is_late = True
    ended = work._work_on(pytest.fail, store, "u1")
    assert (ended.how, ended.text.partition(".")[0]) == (
        "stopped",
        "The run's time was up before the unit began",
    )


@pytest.mark.parametrize("unit", ["0123456789abcdef", "nowhere.json", "../up", "works"])
def test_a_unit_that_is_not_there(jembench, unit):
    done = jembench("work", unit)
    assert done.code == 2
    assert re.search(
        r"There is no unit of work \S+\.json\. `jembench status` lists the units of a store",
        done.err,
    )


def test_several_units_and_the_worst_of_their_endings(jembench):
    done = jembench("work", "a", "b")
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["a", "b"]
    assert done.code == 2


def test_further_units_are_lines_of_stdin_each_as_soon_as_it_is_there(monkeypatch):
    lines = (line for line in ["b c\n", "d\n"])
    monkeypatch.setattr(sys, "stdin", lines)
    units = work._listed(["a", "-"])
    assert [next(units) for _ in range(3)] == ["a", "b", "c"]
    assert next(lines) == "d\n"  # is not read before the line before it is carried out
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert list(work._listed(["-", "e"])) == ["e"]
