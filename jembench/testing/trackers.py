"""What every tracker promises: it takes all events of a run, in an empty folder, and changes none of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from jembench.catalog.discovery import Kind
from jembench.interfaces import Event, Tracker
from jembench.testing.checks import Subject, explained, promise, require

FIT = {"model": "jem:net=[a/b]", "dataset": "digits", "recipe": "digits", "seed": 0, "id": "0123456789"}

LOSSES: dict[str, float | str] = {"iteration": 20, "attempt": 0, "loss": 0.5, "energy_data": float("nan")}

EVENTS = [
    Event(kind="queued", total=1),
    Event(kind="started"),
    Event(kind="training", total=40),
    Event(kind="window", done=20, total=40, values=LOSSES),
    Event(kind="diverged", values={"iteration": 20, "reason": "loss", "returned_to": 10, "remedy": "seed"}),
    Event(kind="window", done=20, total=40, values=LOSSES | {"attempt": 1}),
    Event(kind="sampling"),
    Event(kind="picture", text="no such file.png"),
    Event(kind="measuring", metric="fid", done=1, total=2),
    Event(kind="measured", metric="fid", values={"status": "ok", "seconds": 1.0, "fid": 3.0, "fid/low": 2.0}),
    Event(kind="measured", metric="ood", values={"status": "na", "seconds": 0.0}, text="no images"),
    Event(kind="waiting"),
    Event(kind="warning", text="no picture"),
    Event(kind="ended", values={"how": "done"}),
]
"""A run of one fit, with everything that may happen."""


@dataclass(frozen=True)
class TrackerSubject(Subject):
    """A tracker under test."""

    kind: ClassVar[Kind] = "trackers"
    protocol: ClassVar[type] = Tracker
    parts: ClassVar[tuple[str, ...]] = ("event",)

    @contextmanager
    def elsewhere(self) -> Iterator[Tracker]:
        """A new tracker in a folder that is removed afterwards, so that relative paths lead there."""
        here = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                yield self.make()
            finally:
                os.chdir(here)


@promise("trackers")
def every_event(subject: TrackerSubject) -> None:
    """It takes every event of a run without an error, and leaves them as they are.

    Pass over kinds that you do not use: jembench.interfaces.Event lists them. A file that is named need not be here.
    """
    with subject.elsewhere() as tracker:
        for event in [*(replace(each, fit=dict(FIT)) for each in EVENTS), Event(kind="finished")]:
            before = repr(event)
            with explained(f"It fails at an event of the kind {event.kind}"):
                tracker.event(event)
            require(repr(event) == before, f"It has changed an event of the kind {event.kind}.")


@promise("trackers")
def the_end_of_nothing(subject: TrackerSubject) -> None:
    """A run in which nothing happened ends without an error."""
    with subject.elsewhere() as tracker, explained("It fails at the end of a run in which nothing happened"):
        tracker.event(Event(kind="finished"))
