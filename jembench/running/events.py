"""Progress events: from training and measuring to the display and to the trackers that the user chose."""

from __future__ import annotations

import dataclasses
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from jembench import progress
from jembench.catalog import trust
from jembench.catalog.spec import split_list
from jembench.errors import StoreError, printable
from jembench.experiment.works import Work
from jembench.interfaces import Event, Tracker
from jembench.running.trackers import Tracked
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store

VARIABLE = "JEMBENCH_TRACKERS"
"""The environment variable that lists trackers: registered names or import paths, with options."""

PERIOD = 1.0
"""Seconds between two looks at what this process is doing."""

Report = Callable[[Event], None]
"""Sends one event."""


def chosen_trackers() -> list[str]:
    """Return the specs in ``JEMBENCH_TRACKERS``. They may name code: the user has set it."""
    text = os.environ.get(VARIABLE, "")
    trust.name([text])
    return split_list(text)


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
        self._trackers = [Tracked(spec) for spec in trackers]

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for tracker in self._trackers:
            tracker.send(Event(kind="finished"))
        for tracker in self._trackers:
            tracker.close()

    def of(self, fit: FitKey, work: Work | None = None) -> Report:
        """Return a function that sends the events of one fit, or of a unit of work on it."""
        names = fields_of(fit)
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


def fields_of(fit: FitKey) -> dict[str, Any]:
    """Return what events say of a fit."""
    return {"model": fit.model, "dataset": fit.dataset, "recipe": fit.recipe, "seed": fit.seed, "id": fit.id}


def measured(cell: Cell, fit: FitRecord | None) -> Event | None:
    """Return an outcome as an event; None if it will be computed again for another reason than that it failed."""
    outcome = cell.outcome
    if not (outcome.is_settled or outcome.status == "failed"):
        return None
    values: dict[str, float | str] = {"status": outcome.status, "seconds": outcome.seconds}
    for label, value in outcome.values.items():
        ends = {label: value.value, f"{label}/low": value.low, f"{label}/high": value.high}
        values |= {name: float(number) for name, number in ends.items() if number is not None}
    iterations = fit.iteration if fit else 0
    return Event(kind="measured", metric=cell.metric, done=iterations, values=values, text=printable(outcome.reason))


@contextmanager
def beating(report: Report, seconds: float = PERIOD) -> Iterator[None]:
    """Send what this process is doing every ``seconds``, from a thread of its own, if there is anything new."""
    ended = threading.Event()

    def beat() -> None:
        before = progress.now()
        while not ended.wait(seconds):
            now = progress.now()
            if now != before:
                with suppress(StoreError):  # of a full disk: the main thread will say so
                    values = {"unit": now.unit}
                    report(Event(kind="progress", text=now.text, done=now.done, total=now.total, values=values))
            before = now

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
