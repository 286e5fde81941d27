"""Progress events: from training and measuring to the display and to the trackers that the user chose."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from jembench.catalog.spec import split_list
from jembench.experiment.works import Work
from jembench.interfaces import Event, Tracker
from jembench.running.trackers import Tracked
from jembench.store.outcome import FitKey
from jembench.store.store import Store

VARIABLE = "JEMBENCH_TRACKERS"
"""The environment variable that lists trackers: registered names or import paths, with options."""

Report = Callable[[Event], None]
"""Sends one event."""


def chosen_trackers() -> list[str]:
    """The specs in ``JEMBENCH_TRACKERS``."""
    return split_list(os.environ.get(VARIABLE, ""))


class Events:
    """Sends each event to the display, to the trackers and to the file of its unit of work.

    Closing it, as a context does, lets trackers finish.

    Args:
        display: what shows the progress, or None.
        store: where the events of units are written, or None.
        trackers: specs.

    Raises:
        SpecError: for a tracker or an option that does not exist.
        Unavailable: if a tracker needs a package that is not installed.
    """

    def __init__(
        self, display: Tracker | None = None, store: Store | None = None, trackers: Sequence[str] = ()
    ) -> None:
        self._display = display
        self._store = store
        self._trackers = [Tracked(spec, store) for spec in trackers]

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for tracker in self._trackers:
            tracker.send(Event(kind="finished"))
        for tracker in self._trackers:
            tracker.close()

    def of(self, fit: FitKey, work: Work | None = None) -> Report:
        """A function that sends the events of one fit, or of a unit of work on it."""
        names = {"model": fit.model, "dataset": fit.dataset, "recipe": fit.recipe, "seed": fit.seed, "id": fit.id}
        unit: dict[str, Any] = {"work": work.id, "unit": work.kind} if work else {}
        worker = f"{platform.node()}:{os.getpid()}"
        metric = ""  # that is being computed

        def report(event: Event) -> None:
            nonlocal metric
            if event.kind in ("started", "training", "sampling", "measuring"):
                metric = event.metric
            whole = dataclasses.replace(
                event, fit=names, worker=worker, time=time.time(), metric=event.metric or metric, **unit
            )
            if self._store and work:
                self._store.works.append(whole)
            self.send(whole)

        return report

    def send(self, event: Event) -> None:
        """Send an event that is whole, and in its file."""
        if self._display:
            self._display.event(event)
        if event.kind != "progress":
            for tracker in self._trackers:
                tracker.send(event)
