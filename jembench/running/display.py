"""The display of a run's progress on stderr.

A terminal shows a bar for each running unit of work, and a log gets lines.
"""

from __future__ import annotations

import functools
import platform
import sys
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from jembench import progress
from jembench.catalog.spec import without_digest
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.interfaces import Event
from jembench.progress import duration
from jembench.training import guard

MINUTE = 60.0
"""Seconds between two lines about the running units in a log."""

SPEED_WINDOW = 600.0
"""Seconds over which a unit's speed is averaged. In a large training, minutes lie between windows.
"""

MOST = 3
"""The largest number of running units in a log's line of each minute."""

FAILURES = ("failed", "refused", "lost")

BLANK: dict[str, Any] = {"unit": "", "counted": "", "note": "", "idle": None, "began": 0.0}
"""The fields of a new task. ``idle`` is what the run waits for while no unit runs; None: a unit
runs, or the task is a unit.
"""


class _Note(TextColumn):
    """A column with the work of each unit.

    While no unit runs, it shows the work of this process, beside the whole run.
    """

    def render(self, task: Task) -> Text:
        return Text(_note(task))


class Display:
    """A tracker that shows the running units of work, and prints their endings.

    It is a :class:`~jembench.interfaces.Tracker`.

    Each running unit is a task of rich; the first task is the whole run. Events may come from
    several threads.

    Args:
        names: display names of models by their specs and recipes.
        live: True to draw the tasks as bars, for a terminal; False to print a line about them each
            minute; None: True if stderr is a terminal.
    """

    def __init__(self, names: DisplayNames = NO_NAMES, *, live: bool | None = None) -> None:
        self._names = names
        self._live = sys.stderr.isatty() if live is None else live
        self._next = time.monotonic() + MINUTE
        text = functools.partial(TextColumn, markup=False)
        cut = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self.tasks = Progress(
            text("{task.description}", table_column=cut),
            BarColumn(bar_width=16),
            text("{task.fields[counted]}"),
            TimeRemainingColumn(compact=True),
            _Note("", table_column=cut),
            console=Console(stderr=True),
            refresh_per_second=4,
            speed_estimate_period=SPEED_WINDOW,
            transient=True,
            expand=True,
        )
        self._lock = threading.RLock()
        self.tasks.add_task("run", total=None, **{**BLANK, "idle": ""})
        self._run = self.tasks.tasks[0]
        self._running: dict[str, Task] = {}  # by the id of the unit
        self._queued: dict[str, str] = {}  # units that have not ended -> the reason why they wait
        self._ended: Counter[str] = Counter()  # number of ended units, by ending

    def __enter__(self) -> Display:
        if self._live:
            self.tasks.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live:
            self.tasks.stop()

    def print(self, text: str) -> None:
        """Print a line: above bars, or in a log with the time."""
        if self._live:
            self.tasks.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)

    def tick(self) -> None:
        """Print the progress of the run and its first units."""
        with self._lock:
            self._next = time.monotonic() + MINUTE
            if not (self._queued or self._running):
                return
            running = list(self._running.values())
            parts = [self.whole()]
            for task in running[:MOST]:
                parts.append(": ".join(filter(None, [task.description, _state(task)])))
            if len(running) > MOST:
                parts.append(f"and {len(running) - MOST} more")
            self.print("; ".join(filter(None, parts)))

    def whole(self) -> str:
        """Describe the state of the run in a line."""
        return ", ".join(filter(None, [self._run.fields["counted"], _note(self._run)]))

    def event(self, event: Event) -> None:
        """Show one event of a fit."""
        with self._lock:
            key = event.work or str(event.fit["id"])
            model, recipe, data = (event.fit[part] for part in ("model", "recipe", "dataset"))
            shown = self._names.model(model, recipe)
            name = f"{shown} on {without_digest(data)}, seed {event.fit['seed']}"
            if event.kind in ("queued", "ended"):
                task = self._running.pop(key, None)
                if task:
                    self.tasks.remove_task(task.id)
                if event.kind == "queued":
                    self._queued[key] = event.text
                else:
                    self._end(key, name, event, task)
            elif event.kind == "progress":
                self._advance(key, name, event)
            elif event.kind in ("diverged", "warning"):
                self.print(f"{name}: {event.text}")
            self._count_units()
            if not self._live and time.monotonic() >= self._next:
                self.tick()

    def _advance(self, key: str, name: str, event: Event) -> None:
        """Show the progress of a unit."""
        if key in self._queued:
            self._queued[key] = ""
        if key not in self._running:
            self.tasks.add_task(name, total=None, **{**BLANK, "began": event.time})
            self._running[key] = self.tasks.tasks[-1]
        task, unit = self._running[key], str(event.values.get("unit", ""))
        is_first = unit and task.fields["unit"] != unit
        if is_first and event.text.startswith(guard.TRAINING):
            start = ""
            if event.done:
                start = f", {event.done:,} of {event.total:,} iterations done"
            self.print(f"{name}: training{start}")
        self._count_to(task, event.done, event.total, unit, note=event.text)

    def _count_units(self) -> None:
        """Update the task of the whole run."""
        notes = []
        if failed := sum(self._ended[how] for how in FAILURES):
            notes.append(f"{failed} failed")
        waiting = Counter(filter(None, self._queued.values()))
        for reason, count in waiting.items():
            notes.append(f"{count} waiting ({reason})")
        idle = None
        if not self._running:
            idle = "waiting for workers" if "" in self._queued.values() else ""
        total = len(self._queued) + self._ended.total()
        done = self._ended["done"]
        self._count_to(self._run, done, total, "units done", note=", ".join(notes), idle=idle)

    def _end(self, key: str, name: str, event: Event, task: Task | None) -> None:
        """Print the ending of a unit, which may start again if stopped."""
        how, text = str(event.values.get("how", "done")), event.text
        # ``text`` is the reason why training failed, which the outcomes of the cells have too
        if how == "done" and text:
            how, text = "failed", " ".join(text.split())
        host = event.worker.rpartition(":")[0] or event.worker
        place = f" on {host}" if host not in ("", platform.node()) else ""
        elapsed = duration(event.time - task.fields["began"] if task else 0)
        if how == "stopped" and task:
            why = f": {text}" if text else ""
            self.print(f"{name}: stopped after {elapsed}{why}")
        elif how in FAILURES:
            self.print(f"{name}: {how}{place} after {elapsed}: {text}")
        elif how == "done" and task:
            self.print(f"{name}: done{place} in {elapsed}")
        if how not in ("busy", "stopped", "checked"):
            self._queued.pop(key, None)
            self._ended[how] += 1

    def _count_to(self, task: Task, done: int, total: int, unit: str, **fields: str | None) -> None:
        """Update a task's numbers and fields; another unit or total resets speed."""
        values: dict[str, Any] = {**fields, "counted": ""}
        if total:
            values["counted"] = f"{done:,}/{total:,} {unit}"
        if (total or None, unit) != (task.total, task.fields["unit"]):
            task.total = total or None
            values = {**task.fields, "unit": unit, **values}
            self.tasks.reset(task.id, completed=done, **values)
        else:
            self.tasks.update(task.id, completed=done, **values)


def _state(task: Task) -> str:
    left = "" if task.time_remaining is None else f"about {duration(task.time_remaining)} left"
    parts = [task.fields["counted"], left, task.fields["note"]]
    return ", ".join(filter(None, parts))


def _note(task: Task) -> str:
    """Return a task's note and, while no unit runs, this process's work."""
    idle, doing = task.fields["idle"], ""
    if idle is not None:
        doing = progress.now().text or idle
    return ", ".join(filter(None, [task.fields["note"], doing]))
