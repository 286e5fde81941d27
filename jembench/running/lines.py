"""The display of a run's progress in a log: lines."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import click

from jembench.interfaces import Event
from jembench.running.display import DOES, Display, Task
from jembench.running.eta import duration, pace

MINUTE = 60.0

MOST = 3
"""Up to this number, the line of the minute says what each running unit does."""


class Lines(Display):
    """A line at the start and the end of each unit, and one a minute of the whole run and of what runs: for logs."""

    def __init__(self, seconds: float = MINUTE) -> None:
        super().__init__()
        self._seconds = seconds
        self._ended_all = threading.Event()

    def __enter__(self) -> Lines:
        threading.Thread(target=self._every_minute, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended_all.set()

    def _every_minute(self) -> None:
        while not self._ended_all.wait(self._seconds):
            self.tick()

    def tick(self) -> None:
        """Print how far the run is."""
        with self._lock:
            running = list(self.running.values())
            if running or self._units:
                more = [f"and {len(running) - MOST} more"] * (len(running) > MOST)
                self.print("; ".join([self.whole(), *map(self._state, running[:MOST]), *more]))

    def _state(self, task: Task) -> str:
        counted = f"{task.done:,} of {task.total:,} {task.counted}" * bool(task.total)
        rate = pace(task.rate) if task.rate else ""
        left = task.time_left(time.time())
        parts = filter(None, (counted, rate, "" if left is None else f"about {duration(left)} left", self.note(task)))
        return f"{self.name(task)}: {', '.join(parts)}"

    def update(self, event: Event, task: Task) -> None:
        """Print the start of a unit."""
        fit = event.fit
        place = f" on {self.place(task)}" * bool(self.place(task))
        if event.kind == "training":
            resumed = f", after {event.done} of {event.total} iterations" * bool(event.done)
            about = f"{fit['dataset']}, recipe {fit['recipe']}, seed {fit['seed']}"
            self.print(f"{self.name(task)}: training on {about}{place}{resumed}")
        elif event.kind == "started" and not self._by_fit and event.unit != "train":
            self.print(f"{self.name(task)}: {DOES[event.unit][0]}{place}")

    def print(self, text: str) -> None:
        """Print a line with the time."""
        click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
