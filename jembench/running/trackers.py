"""A tracker at work: in a thread of its own, so that it cannot hold a training up, and given everything once."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from jembench import progress
from jembench.catalog import registry
from jembench.catalog.spec import stable_hash
from jembench.errors import DamagedError, Fallback, StoreError, error_text
from jembench.interfaces import Event, Tracker
from jembench.stopping import contained
from jembench.store import records
from jembench.store.outcome import FitKey
from jembench.store.store import Store

MOST = 10_000
"""Events that may wait for a tracker. One with more hangs, and is left out."""

PATIENCE = 30.0
"""Seconds that a run waits at its end for a tracker to take what is left."""


class Mark(NamedTuple):
    """The progress of a tracker in a fit."""

    attempt: int = 0
    iteration: int = 0
    results: Mapping[str, str] = {}  # metric -> a hash of its outcome

    @property
    def window(self) -> tuple[int, int]:
        """The last one."""
        return self.attempt, self.iteration


class Tracked:
    """A tracker that gets each window, and each result, once.

    What it has had is written into the fit's folder, since a killed process cannot say it.

    Args:
        spec: the tracker.
        store: where the fits lie; None: nothing is remembered.

    Raises:
        SpecError: if there is no such tracker, or an option is wrong.
        Unavailable: if it needs a package that is not installed.
    """

    def __init__(self, spec: str, store: Store | None = None) -> None:
        self.spec = spec
        self._tracker: Tracker = registry.resolve("trackers", spec).make()
        self._store = store
        self._marks: dict[str, Mark] = {}  # by the fit's id
        self._events: queue.Queue[Event | None] = queue.Queue(MOST)
        self._why = ""  # it is left out
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def send(self, event: Event | None, seconds: float = 0.0) -> None:
        """Give an event, soon; None is the end. Where too many wait, wait up to ``seconds``."""
        if not self._why:
            try:
                self._events.put(event, timeout=seconds)
            except queue.Full:
                self._leave_out(f"has not taken {MOST:,} events")

    def close(self, seconds: float = PATIENCE) -> None:
        """Wait for the tracker to take what is left."""
        with progress.phase(f"waiting for the tracker {self.spec}"):
            self.send(None, seconds)
            self._thread.join(seconds)
        if self._thread.is_alive():
            self._leave_out(f"has not ended within {seconds:g} s")

    def _leave_out(self, why: str) -> None:
        if not self._why:
            self._why = why
            warnings.warn(f"The tracker {self.spec} {why} and gets no more events.", Fallback, stacklevel=3)

    def _work(self) -> None:
        try:
            while not self._why and (event := self._events.get()):
                if self._is_new(event):
                    with contained("It"):
                        self._tracker.event(event)
                    self._remember(event)
        except Exception as error:
            self._leave_out(f"failed ({error_text(error)})")

    # --- everything once ----------------------------------------------------------------------------------------------

    def _is_new(self, event: Event) -> bool:
        if event.kind == "measured":
            return self._known(event.fit).results.get(event.metric) != _digest(event)
        is_counted = event.kind == "window"
        return not is_counted or _window(event) > self._known(event.fit).window

    def _remember(self, event: Event) -> None:
        if event.kind == "window":
            attempt, iteration = _window(event)
            mark = self._known(event.fit)._replace(attempt=attempt, iteration=iteration)
        elif event.kind == "measured":
            known = self._known(event.fit)
            mark = known._replace(results={**known.results, event.metric: _digest(event)})
        else:
            return
        self._marks[event.fit["id"]] = mark
        if self._store and (folder := self._store.fit_folder(FitKey(**event.fit))).is_dir():
            with suppress(StoreError):
                records.write(folder / self._file, mark._asdict(), durable=False)

    def _known(self, fit: Mapping[str, Any]) -> Mark:
        if fit["id"] not in self._marks:
            found = Mark()
            if self._store:
                with suppress(OSError, DamagedError):
                    found = records.read(self._store.fit_folder(FitKey(**fit)) / self._file).read(Mark)
            self._marks[fit["id"]] = found
        return self._marks[fit["id"]]

    @property
    def _file(self) -> str:
        return f"tracked-{stable_hash(self.spec, 8)}.json"


def _window(event: Event) -> tuple[int, int]:
    return int(event.values.get("attempt", 0)), event.done


def _digest(event: Event) -> str:
    """Return a digest of an outcome, whatever time it took: one that fails alike again is nothing new."""
    return stable_hash([{**event.values, "seconds": 0}, event.text], 16)
