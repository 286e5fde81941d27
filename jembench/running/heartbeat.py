"""What this process is doing, sent once a second: whatever takes long, something on the screen changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from jembench import progress
from jembench.errors import StoreError
from jembench.interfaces import Event

PERIOD = 1.0
"""Seconds between two looks."""


@contextmanager
def beating(report: Callable[[Event], None], seconds: float = PERIOD) -> Iterator[None]:
    """Send a ``progress`` event every ``seconds``, from a thread of its own, if there is anything new."""
    ended = threading.Event()

    def beat() -> None:
        before, start = progress.now(), time.monotonic()
        while not ended.wait(seconds):
            now, moment = progress.now(), time.monotonic()
            if now != before:
                values: dict[str, float | str] = {
                    "unit": now.unit,
                    "rate": (now.passes - before.passes) / (moment - start),
                }
                with suppress(StoreError):  # of a full disk: the main thread will say so
                    report(Event(kind="progress", text=now.text, done=now.done, total=now.total, values=values))
            before, start = now, moment

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
