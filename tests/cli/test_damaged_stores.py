"""Commands that read a store in which something is damaged: it is named, and the rest is shown."""

import contextlib
import json
import signal

import pytest
from small_store import damaged_copies, small_store


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("damaged") / "whole").root


@contextlib.contextmanager
def at_once():
    """A read that waits for somebody never ends."""

    def late(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_damaged_file_is_one_paragraph_and_the_rest_is_shown(jembench, whole, tmp_path):
    cells = {"accuracy", "ece", "nll", "iteration-time"}
    for root, path, how in damaged_copies(whole, tmp_path / "copies", 16):
        with at_once():
            done = jembench("report", "--format", "json", "--store", root)
            checked = jembench("store", "verify", "--store", root)
            compared = jembench("compare", "jem", "baseline", "--resamples", "10", "--store", root)
        where = f"{how} {path.relative_to(root)}"
        for command in (done, checked, compared):
            assert "This is a bug" not in command.err, where
            assert "Traceback" not in command.err, where
        rows = json.loads(done.out)["rows"]
        shown = {(row["model"], row["metric"]) for row in rows if row["status"] == "ok"}
        assert {("jem", metric) for metric in cells} | {
            ("baseline", metric) for metric in cells
        } <= shown, where
