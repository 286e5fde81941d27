"""Every check of trackers catches the fault planted for it."""

import sys
from pathlib import Path

import pytest

from jembench.interfaces.running import EventKind
from jembench.testing import check_tracker, perform
from jembench.testing.trackers import EVENTS


class Sound:
    def event(self, event):
        Path("log.txt").write_text(event.kind)


class NoEvent: ...


class WindowsAlone:
    def event(self, event):
        assert event.kind == "window"


class Changes:
    def event(self, event):
        if event.kind == "measured":
            event.values["status"] = "read"


class EndsWhatNeverBegan:
    def event(self, event):
        if event.kind == "finished":
            self.runs.close()
        self.runs = self


EndsWhatNeverBegan.close = lambda self: None


@pytest.mark.parametrize(
    ("tracker", "failed"),
    [
        (Sound, {}),
        (NoEvent, {"all-parts": "It has no event"}),
        (WindowsAlone, {"every-event": "an event of the kind queued", "the-end-of-nothing": "nothing happened"}),
        (Changes, {"every-event": "It has changed an event of the kind measured"}),
        (EndsWhatNeverBegan, {"the-end-of-nothing": "AttributeError"}),
    ],
)
def test_each_fault_is_found(tracker, failed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    results = [perform(check) for check in check_tracker(f"{__name__}:{tracker.__name__}")]
    found = {result.check.name: result.message for result in results if result.status == "failed"}
    assert found.keys() == failed.keys()
    assert all(part in found[name] for name, part in failed.items())
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_every_kind_of_event():
    sent = {event.kind for event in EVENTS}
    assert sent | {"progress", "finished"} == set(EventKind.__args__)


def test_one_whose_library_is_missing_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    results = [perform(check) for check in check_tracker("tensorboard")]
    assert {result.status for result in results} == {"skipped"}
    assert all('pip install "jembench[tensorboard]"' in result.message for result in results)
