"""The distribution of events to display, statuses in the store, and trackers."""

import os
import platform
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from types import TracebackType

from jembench import progress
from jembench.catalog import registry
from jembench.catalog.spec import split_list
from jembench.errors import (
    Fallback,
    JembenchError,
    OutOfTime,
    ProcessLost,
    StoreError,
    error_text,
    printable,
)
from jembench.experiment.works import Work
from jembench.interfaces import Event, Tracker
from jembench.interfaces.running import Ending
from jembench.stopping import Stopped, contained
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store
from jembench.store.works import WorkStatus

VARIABLE = "JEMBENCH_TRACKERS"
"""Environment variable: trackers, as registered names or import paths with options, separated by
commas.
"""

PERIOD = 1.0
"""Seconds between two reads of this process's progress."""

PATIENCE = 30.0
"""Seconds that a process waits at its end for a tracker to receive the remaining events."""

Report = Callable[[Event], None]
"""The function that sends one event."""


def chosen_trackers(specs: Sequence[str] | None = None) -> Sequence[str]:
    """Return the specs, or for None those in ``JEMBENCH_TRACKERS``."""
    if specs is None:
        return split_list(os.environ.get(VARIABLE, ""))
    return specs


def ending_of(error: BaseException) -> tuple[Ending, str]:
    """Return a unit's ending after an error, and a one-line reason."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "Received SIGINT"
    if not isinstance(error, (JembenchError, Stopped)):
        return "failed", printable(" ".join(error_text(error).splitlines()))
    how: Ending = "refused"
    if isinstance(error, (OutOfTime, Stopped)):
        how = "stopped"
    elif isinstance(error, (StoreError, ProcessLost)):
        how = "failed"
    return how, printable(" ".join(str(error).splitlines()))


class Events(AbstractContextManager["Events"]):
    """The receivers of events: a display, trackers, and units' statuses.

    The end of the context lets trackers finish.

    Args:
        display: shows the progress; None: nothing is shown.
        store: keeps the statuses of units; None: they are not kept.
        trackers: specs of trackers.

    Raises:
        SpecError: if there is no such tracker or option.
        Unavailable: if a tracker needs a package that is not installed.
    """

    def __init__(
        self,
        display: Tracker | None = None,
        store: Store | None = None,
        trackers: Sequence[str] = (),
    ) -> None:
        self._display = display
        self._store = store
        self._trackers = [Tracked(spec) for spec in trackers]

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for tracker in self._trackers:
            tracker.send(Event(kind="finished"))
        for tracker in self._trackers:
            tracker.close()

    @contextmanager
    def reporting(self, fit: FitKey, work: Work | None = None) -> Iterator[Report]:
        """Give the function that sends events of a fit or a unit.

        The function also writes the status of the unit, a unit of work on the fit.

        Within the context, another thread reads the progress of this process every ``PERIOD``, and
        sends it if it has changed.
        """
        unit, worker = work.id if work else "", f"{platform.node()}:{os.getpid()}"
        status = WorkStatus(state="running", worker=worker, since=time.time())
        lock, ended = threading.Lock(), threading.Event()

        def report(event: Event) -> None:
            nonlocal status
            if self._store and unit and event.kind in ("progress", "diverged", "warning"):
                with lock:
                    status = _after(status, event)
                    self._store.works.set_status(unit, status)
            self.send(replace(event, worker=worker), fit, unit)

        def beat() -> None:
            before = progress.now()
            while not ended.wait(PERIOD):
                now = progress.now()
                if now != before:
                    event = Event(kind="progress", text=now.text, done=now.done, total=now.total)
                    with suppress(StoreError):  # such as a full disk, which the main thread reports
                        report(replace(event, values={"unit": now.unit}))
                before = now

        report(Event(kind="progress"))
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield report
        finally:
            ended.set()
            thread.join()

    def send(self, event: Event, fit: FitKey, work: str = "") -> None:
        """Send an event of a fit, or of a unit of work.

        The display receives every event, and trackers all but progress.
        """
        about = {**fit.names._asdict(), "seed": fit.seed, "id": fit.id}
        event = replace(event, fit=about, work=work, time=event.time or time.time())
        if self._display:
            self._display.event(event)
        if event.kind != "progress":
            for tracker in self._trackers:
                tracker.send(event)


def _after(status: WorkStatus, event: Event) -> WorkStatus:
    """Return the status of a unit after an event of its work."""
    if event.kind != "progress":
        return replace(status, notes=(*status.notes, event.text))
    counted, text = str(event.values.get("unit", "")), event.text
    return replace(status, done=event.done, total=event.total, counted=counted, text=text)


def measurement_event(cell: Cell, fit: FitRecord | None) -> Event | None:
    """Return the event of an outcome; None while something is missing."""
    outcome = cell.outcome
    if not (outcome.is_settled or outcome.status == "failed"):
        return None
    values: dict[str, float | str] = {"status": outcome.status, "seconds": outcome.seconds}
    for label, value in outcome.values.items():
        if cell.split != "test":
            label = f"{cell.split}/{label}"
        ends = {label: value.value, f"{label}/low": value.low, f"{label}/high": value.high}
        for name, number in ends.items():
            if number is not None:
                values[name] = float(number)
    done, reason = fit.iteration if fit else 0, printable(outcome.reason)
    return Event(kind="measured", metric=cell.metric, done=done, values=values, text=reason)


class Tracked:
    """A tracker that receives events from a queue, in its own thread.

    A slow tracker cannot delay a training.

    Args:
        spec: the spec of the tracker.

    Raises:
        SpecError: if there is no such tracker, or an option is wrong.
        Unavailable: if the tracker needs a package that is not installed.
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._tracker: Tracker = registry.resolve("trackers", spec).make()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._failure = ""  # the reason why the tracker gets no more events
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Queue an event."""
        if not self._failure:
            self._events.put(event)

    def close(self, seconds: float = PATIENCE) -> None:
        """Wait for the tracker to receive the remaining events."""
        self._events.put(None)
        with progress.phase(f"waiting for the tracker {self.spec}"):
            self._thread.join(seconds)
        if self._thread.is_alive():
            self._leave_out(f"has not ended within {seconds:g} s")

    def _leave_out(self, why: str) -> None:
        if not self._failure:
            self._failure = why
            warnings.warn(
                f"The tracker {self.spec} {why} and gets no more events.", Fallback, stacklevel=3
            )

    def _work(self) -> None:
        try:
            while not self._failure and (event := self._events.get()):
                with contained("It"):
                    self._tracker.event(event)
        except Exception as error:
            self._leave_out(f"failed ({error_text(error)})")
