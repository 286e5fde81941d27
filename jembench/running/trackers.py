"""A tracker at work: in a thread of its own, so that it cannot hold a training up."""

from __future__ import annotations

import queue
import threading
import warnings

from jembench import progress
from jembench.catalog import registry
from jembench.errors import Fallback, error_text
from jembench.interfaces import Event, Tracker
from jembench.stopping import contained

MOST = 10_000
"""Events that may wait for a tracker. One with more hangs, and is left out."""

PATIENCE = 30.0
"""Seconds that a run waits at its end for a tracker to take what is left."""


class Tracked:
    """A tracker that gets events from a queue.

    Args:
        spec: the tracker.

    Raises:
        SpecError: if there is no such tracker, or an option is wrong.
        Unavailable: if it needs a package that is not installed.
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._tracker: Tracker = registry.resolve("trackers", spec).make()
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
                with contained("It"):
                    self._tracker.event(event)
        except Exception as error:
            self._leave_out(f"failed ({error_text(error)})")
