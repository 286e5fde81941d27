"""The display of a run's progress on stderr: a bar for each unit of work on a terminal, lines in a log."""

from __future__ import annotations

import datetime
import functools
import platform
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Column

from jembench.interfaces import Event
from jembench.progress import duration
from jembench.training import guard

MINUTE = 60.0

SPEED_WINDOW = 600.0
"""Seconds over which the speed of a unit is averaged: windows of a large training are minutes apart."""

MOST = 3
"""Number of running units that the line of a minute describes."""

LONGEST = 200
"""Characters of the reason why a training failed."""

WORDS: Mapping[str, tuple[str, str]] = {
    "train": ("training", "trained"),
    "measure": ("measuring", "measured"),
    "attack-shard": ("attacking", "attacked"),
    "prepare": ("training a feature network", "feature network trained"),
}
"""Present and past of each kind of unit."""

FAILURES = ("failed", "refused", "lost")


def display() -> Display:
    """Return the display that suits stderr."""
    return Bars() if sys.stderr.isatty() else Lines()


class _Tasks(Progress):
    """As many tasks as the terminal has lines."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the table of the first tasks."""
        yield self.make_tasks_table(self.tasks[: max(Console(stderr=True).height - 1, 2)])


class Display:
    """A :class:`~jembench.interfaces.Tracker` that shows the running units of work, and prints how each ended.

    It knows a run by its events alone. Each unit that runs is a task of rich's; the first task is the whole run.
    Events may come from several threads.
    """

    def __init__(self) -> None:
        text, left = functools.partial(TextColumn, markup=False), Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self.tasks = _Tasks(
            text("{task.description}", table_column=left),
            BarColumn(bar_width=16),
            text("{task.fields[counted]}"),
            TimeRemainingColumn(compact=True),
            text("{task.fields[note]} {task.fields[detail]}", table_column=left),
            console=Console(stderr=True),
            refresh_per_second=4,
            speed_estimate_period=SPEED_WINDOW,
            transient=True,
            expand=True,
        )
        self._lock = threading.RLock()
        self._run = self._add("run")
        self._running: dict[str, Task] = {}  # by the ids of units
        self._units: dict[str, None] = {}  # that are queued or run
        self._count = 0  # of the units that were queued
        self._ended: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}  # why units have not started
        self._waited_for: set[str] = set()  # fits that another process works on
        self._doing = ""  # what this process does beside

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing to close."""

    def print(self, text: str) -> None:
        """Print a line that stays."""
        raise NotImplementedError

    def event(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            key = event.work or str(event.fit.get("id", ""))
            if not event.fit:
                self._doing = event.text
            elif event.kind == "queued":
                self._queue(key, event)
            elif event.kind == "ended":
                if key in self._units:  # the worker says it, and then the executor
                    self._end(key, event)
            else:
                self._follow(self._task(key, event), event)
            self._count_units()

    def whole(self) -> str:
        """Return the state of the run in a line."""
        return ", ".join(filter(None, [self._run.fields["counted"], self._run.fields["note"]]))

    def _add(self, name: str, **fields: Any) -> Task:
        self.tasks.add_task(name, total=None, **{"unit": "", "counted": "", "note": "", "detail": "", **fields})
        return self.tasks.tasks[-1]

    def _task(self, key: str, event: Event) -> Task:
        """Return the task of a unit that runs."""
        self._reasons.pop(key, None)
        self._units[key] = None
        if key not in self._running:
            self._running[key] = self._add(_name(event.fit), began=event.time, is_told=False)
        task = self._running[key]
        if event.kind in ("training", "sampling", "measuring") and not task.fields["is_told"]:
            task.fields["is_told"] = True
            self.started(task, event)
        return task

    def started(self, task: Task, event: Event) -> None:
        """Take note of the first event that says what a unit does."""

    def _queue(self, key: str, event: Event) -> None:
        """Take note that a unit waits, and of the reason if it was queued before."""
        if reason := str(event.values.get("reason", "")):
            self._reasons[key] = reason
            self._stop(key)
        elif event.work:
            self._count += key not in self._units
            self._units[key] = None

    def _follow(self, task: Task, event: Event) -> None:
        """Show what a unit does, and how far it is."""
        match event.kind:
            case "training":
                self._restart(task, event.done, event.total, "iterations", note="training")
            case "window":
                self._move(task, event.done, event.total, "iterations", note=_losses(event.values))
            case "measuring":
                number = f" ({event.done} of {event.total})" * (event.total > 1)
                self._restart(task, note=f"measuring {event.metric}{number}")
            case "sampling":
                self._restart(task, note="drawing samples")
            case "waiting":
                self._restart(task, note="waiting for another process")
                if event.fit["id"] not in self._waited_for:
                    self._waited_for.add(event.fit["id"])
                    self.print(f"{task.description}: another process works on it; its results will be taken over")
            case "progress":
                if event.total:
                    self._move(task, event.done, event.total, str(event.values["unit"]))
                self.tasks.update(task.id, detail=event.text)
            case "diverged":
                self.print(f"{task.description}: training {guard.describe_event(event.values)}")
                if "returned_to" in event.values:
                    self._restart(task, int(event.values["returned_to"]), int(task.total or 0), "iterations")
            case "warning":
                self.print(f"{task.description}: {event.text}")
            case _:
                pass

    def _move(self, task: Task, done: int, total: int, unit: str, **fields: Any) -> None:
        """Show that more is done of what is counted."""
        if (total, unit) != (task.total, task.fields["unit"]):
            self._restart(task, done, total, unit, **fields)
        else:
            counted = f"{done:,}/{total:,} {unit}"
            self.tasks.update(task.id, completed=done, counted=counted, **fields)

    def _restart(self, task: Task, done: int = 0, total: int = 0, unit: str = "", **fields: Any) -> None:
        """Count something else, or from somewhere else: rich's speed begins anew."""
        task.total = total or None
        counted = f"{done:,}/{total:,} {unit}" if total else ""
        self.tasks.reset(
            task.id, completed=done, **{**task.fields, "detail": "", **fields, "unit": unit, "counted": counted}
        )

    def _end(self, key: str, event: Event) -> None:
        """Print how a unit ended; one that was stopped will start again."""
        how, text = str(event.values.get("how", "done")), event.text
        if how == "done" and text:  # training failed; the outcomes of its cells say more
            how, text = "failed", textwrap.shorten(text, LONGEST, placeholder=" ...")
        task = self._stop(key)
        began = task.fields["began"] if task else event.time
        elapsed = datetime.timedelta(seconds=round(max(event.time - began, 0)))
        name = _name(event.fit)
        if how in ("busy", "stopped", "gone"):
            if task and how != "busy":
                self.print(f"{name}: stopped after {elapsed}{f': {text}' * bool(text)}")
            return
        del self._units[key]
        self._ended[how] += 1
        host = event.worker.rpartition(":")[0] or event.worker
        place = f" on {host}" if host not in ("", platform.node()) else ""
        if how in FAILURES:
            self.print(f"{name}: {how}{place} after {elapsed}: {text}")
        elif how == "done" and task:
            self.print(f"{name}: {WORDS[event.unit][1]}{place} in {elapsed}")

    def _stop(self, key: str) -> Task | None:
        """Return the task of a unit that runs no longer, after removing its bar."""
        task = self._running.pop(key, None)
        if task:
            self.tasks.remove_task(task.id)
        return task

    def _count_units(self) -> None:
        """Show the state of the whole run."""
        failed = sum(self._ended[how] for how in FAILURES)
        note = [
            f"{failed} failed" * bool(failed),
            *(f"{count} waiting ({reason})" for reason, count in Counter(self._reasons.values()).most_common(2)),
            "" if self._running else self._doing or "waiting for workers" * bool(self._units and not self._reasons),
        ]
        self._move(self._run, self._ended["done"], self._count, "units done", note=", ".join(filter(None, note)))


class Bars(Display):
    """A bar for each running unit, below the lines of those that have ended: for terminals."""

    def __enter__(self) -> Bars:
        self.tasks.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.tasks.stop()

    def print(self, text: str) -> None:
        """Print a line above the bars."""
        self.tasks.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Lines(Display):
    """A line at the start and the end of each unit, and one a minute of the whole run and of what runs: for logs."""

    def __init__(self, seconds: float = MINUTE) -> None:
        super().__init__()
        self._seconds = seconds
        self._closed = threading.Event()

    def __enter__(self) -> Lines:
        threading.Thread(target=self._every_minute, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._closed.set()

    def _every_minute(self) -> None:
        while not self._closed.wait(self._seconds):
            self.tick()

    def tick(self) -> None:
        """Print how far the run is."""
        with self._lock:
            if self._units:
                running = list(self._running.values())
                more = [f"and {len(running) - MOST} more"] * (len(running) > MOST)
                self.print("; ".join(filter(None, [self.whole(), *map(_state, running[:MOST]), *more])))

    def started(self, task: Task, event: Event) -> None:
        """Print it."""
        resumed = f", after {event.done} of {event.total} iterations" * bool(event.kind == "training" and event.done)
        self.print(f"{task.description}: {WORDS[event.unit or 'train'][0]}{resumed}")

    def print(self, text: str) -> None:
        """Print a line with the time."""
        click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _state(task: Task) -> str:
    left = "" if task.time_remaining is None else f"about {duration(task.time_remaining)} left"
    words = filter(None, [task.fields["counted"], left, task.fields["note"], task.fields["detail"]])
    return f"{task.description}: {', '.join(words)}"


def _name(fit: Mapping[str, Any]) -> str:
    return f"{fit['model']} on {fit['dataset']}, seed {fit['seed']}"


def _losses(values: Mapping[str, Any]) -> str:
    words = [f"loss {values['loss']:.3f}"]
    for prefix in ("", "joint_"):
        if f"{prefix}energy_data" in values:
            data, samples = values[f"{prefix}energy_data"], values[f"{prefix}energy_samples"]
            words.append(f"E(data) {data:.2f} E(samples) {samples:.2f}")
    return " ".join(words)
