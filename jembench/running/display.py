"""The display of a run's progress on stderr: lines for a log, and what live bars on a terminal share with them."""

from __future__ import annotations

import datetime
import platform
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import click

from jembench.interfaces import Event
from jembench.running.eta import Eta, Speed, duration, pace
from jembench.training import guard

MINUTE = 60.0

MOST = 3
"""Up to this number, the line of the minute says what each running unit does."""

LONGEST = 200
"""Characters of the reason why a training failed."""

DOES: Mapping[str, tuple[str, str]] = {
    "train": ("training", "trained"),
    "measure": ("measuring", "measured"),
    "attack-shard": ("attacking", "attacked"),
    "prepare": ("training a feature network", "feature network trained"),
}
"""What each kind of unit does, and what it has done in the end."""

FAILURES = ("failed", "refused", "lost")

_WORDS = {"training": "training", "sampling": "drawing samples", "waiting": "waiting for another process"}


def display() -> Display:
    """The display that suits stderr."""
    if not sys.stderr.isatty():
        return Lines()
    from jembench.running.bars import Bars  # rich is not imported for a log

    return Bars()


@dataclass
class Task:
    """What is shown as one: a unit of work, or all units of a fit where one runs after the other."""

    key: str  # the id of the unit, or of the fit
    fit: Mapping[str, Any]
    kinds: set[str] = field(default_factory=set)  # of its units
    left: set[str] = field(default_factory=set)  # the units that have not ended
    start: float | None = None  # None: none of them runs
    seconds: float = 0.0  # that those took that have ended
    worker: str = ""
    did: dict[str, None] = field(default_factory=dict)  # what was done: "trained", "measured"
    shown: Event | None = None  # the last one that says what is being done
    since: float = 0.0  # when that began
    doing: str = ""  # what it does just now, in words
    passes: float = 0.0  # images through networks per second
    counted: str = ""  # iterations, images ...
    done: int = 0
    total: int = 0  # 0: nothing is counted
    speed: Speed = field(default_factory=Speed)  # of what is counted, and of what has begun of the next ones

    def count(self, what: str, done: int, total: int, now: float, begun: float = 0.0) -> None:
        """Take in how far it is."""
        if (what, total) != (self.counted, self.total) or done < self.done:
            self.speed = Speed()
        self.counted, self.done, self.total = what, done, total
        self.speed.report(max(done + begun, self.speed.done), now)

    @property
    def pace(self) -> str:
        """What is counted per second or minute; "": it is not known."""
        return pace(self.speed.rate) if self.total and self.speed.rate else ""

    @property
    def time_left(self) -> str:
        """How long until all that is counted will be done; "": it is not known."""
        end = self.speed.end(self.total) if self.total else None
        return "" if end is None else duration(end - time.time())


class Display:
    """A :class:`~jembench.interfaces.Tracker` that prints: what stays as lines, the rest as the subclass shows it.

    It learns from ``queued`` events what is to be done, and whether units run one after the other: then all units of a
    fit are shown as one. Fits are named by their numbers and by what differs between them; others, of which it has
    seen no such event, by all that names a fit. Events may come from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._fits: dict[str, Mapping[str, Any]] = {}  # that are queued, by their ids
        self._names: dict[str, str] | None = None  # None: they are not known yet
        self._by_fit = True
        self._units: set[str] = set()  # that have not ended
        self._count = 0
        self._ended: Counter[str] = Counter()
        self._tasks: dict[str, Task] = {}
        self.running: dict[str, Task] = {}
        self._waits: dict[str, str] = {}  # why units have not started, by their ids
        self._waited_for: set[str] = set()
        self._hosts = {platform.node()}
        self._start = time.time()
        self._doing = ""  # what this process does beside
        self.eta = Eta()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing to close."""

    def event(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            self._event(event)

    def _event(self, event: Event) -> None:
        if not event.fit:
            self._doing = event.text
            return
        if event.kind == "queued":
            self._queue(event)
            return
        if event.kind == "ended" and self._count and event.work not in self._units:
            return  # the worker has said it, and now the executor does
        task, now = self._task(event), event.time or time.time()
        if event.kind in ("started", "training", "sampling", "measuring"):
            self._begin(task, event, now)
            self.started(event, task)
        self._follow(task, event, now)
        if line := self._end(task, event, now) if event.kind == "ended" else self._line(event):
            self.print(f"{self.name(task)}: {line}")

    def started(self, event: Event, task: Task) -> None:
        """Take in that a worker has begun with a unit, or a unit with what the event says."""

    def print(self, text: str) -> None:
        """Print a line that stays."""
        raise NotImplementedError

    def place(self, task: Task) -> str:
        """The worker, if workers are on several hosts."""
        return task.worker if len(self._hosts) > 1 else ""

    def _follow(self, task: Task, event: Event, now: float) -> None:
        """Take in what is being done, and how far it is."""
        if event.kind in ("training", "sampling", "measuring", "waiting"):
            task.shown, task.since, task.doing, task.passes = event, now, "", 0.0
            task.count("", 0, 0, now)
        elif event.kind == "window":
            task.shown = event
        elif event.kind == "progress":
            task.doing, task.passes = event.text, float(event.values["rate"])
            task.count(str(event.values["unit"]), event.done, event.total, now, float(event.values["begun"]))
        trains = task.shown is not None and task.shown.kind in ("training", "window")
        if event.kind in ("training", "window"):
            task.count("iterations", event.done, event.total, now)
        if event.total and (trains or event.unit == "attack-shard") and event.kind != "picture":
            self.eta.progressed(event.work, task.speed.done / event.total, now)

    def name(self, task: Task) -> str:
        """The name of what a task is about."""
        fit = task.fit
        if fit["id"] not in self._fits:
            return f"{fit['model']} on {fit['dataset']}, seed {fit['seed']}"
        if self._names is None:
            self._names = _names(list(self._fits.values()))
        return self._names[fit["id"]]

    def whole(self) -> str:
        """The state of the whole run in a line."""
        done, of = self._ended["done"], self._count
        if self._by_fit:
            done, of = len(self._fits) - len(self._tasks), len(self._fits)
        failed = sum(self._ended[how] for how in FAILURES)
        left = self.eta.left(time.time()) if self._units else None
        parts = (
            str(datetime.timedelta(seconds=round(time.time() - self._start))),
            f"{done} of {of} {'fits' if self._by_fit else 'units'} done" * (of > 1),
            f"{failed} failed" * bool(failed),
            f"{len(self.running)} running" * (not self._by_fit),
            *(f"{count} waiting ({reason})" for reason, count in Counter(self._waits.values()).most_common(2)),
            "" if left is None else f"about {duration(left)} left",
            "" if self.running else self._doing or "waiting for workers" * bool(self._units and not self._waits),
        )
        return ", ".join(filter(None, parts))

    def note(self, task: Task) -> str:
        """What a task does, in a few words."""
        event, seconds = task.shown, time.time() - task.since
        words = "starting"
        if event and event.kind == "window":
            words = _losses(event.values)
        elif event and event.kind == "measuring":
            words = f"measuring {event.metric}{f' ({event.done} of {event.total})' * (event.total > 1)}"
        elif event:
            words = _WORDS[event.kind]
        took = "" if event is None or task.total or seconds < 2 else duration(seconds)
        passes = f"{pace(task.passes)[:-2]} passes/s" if task.passes else ""
        return ", ".join(filter(None, (words, took, task.doing, passes)))

    def _queue(self, event: Event) -> None:
        """Take in a unit that is to be done; ``total`` of them run at once."""
        if reason := str(event.values.get("reason", "")):  # it was queued before
            self._waits[event.work] = reason
            if task := self.running.pop(event.work, None):
                task.start = None
                self.eta.ended(event.work, event.time, done=False, again=True)
            return
        self._by_fit = event.total == 1
        self._fits.setdefault(event.fit["id"], event.fit)
        self._names = None
        task = self._task(event)
        task.left.add(event.work)
        self._count += event.work not in self._units
        self._units.add(event.work)
        self.eta.queued(event.work, (event.unit, *(str(event.fit[name]) for name in ("model", "dataset", "recipe"))))

    def _task(self, event: Event) -> Task:
        key = str(event.fit["id"]) if self._by_fit or not event.work else event.work
        task = self._tasks.setdefault(key, Task(key, event.fit))
        task.kinds.add(event.unit)
        return task

    def _begin(self, task: Task, event: Event, now: float) -> None:
        self._waits.pop(event.work, None)
        if event.worker:
            task.worker = event.worker
            self._hosts.add(_host(event.worker))
        if task.start is None or event.kind == "started":
            task.start, task.since, task.shown = now, now, None
            self.running[event.work] = task
            self.eta.started(event.work, now)
        if event.kind in ("training", "measuring"):
            task.did[DOES["train" if event.kind == "training" else event.unit or "measure"][1]] = None

    def _end(self, task: Task, event: Event, now: float) -> str:
        """The line of a unit that has ended; empty if there is none."""
        how = str(event.values.get("how", "done"))
        text = event.text
        if how == "done" and text:  # the outcomes of its cells say more
            how, text = "failed", textwrap.shorten(text, LONGEST, placeholder=" ...")
        ran, again = task.start is not None, how in ("busy", "stopped", "gone")
        if task.start is not None:
            task.seconds, task.start = task.seconds + max(now - task.start, 0), None
        self.running.pop(event.work, None)
        self._waits.pop(event.work, None)
        self.eta.ended(event.work, now, done=how == "done", again=again)
        elapsed = datetime.timedelta(seconds=round(task.seconds))
        if again:
            return f"stopped after {elapsed}{f': {text}' * bool(text)}" * (ran and how != "busy")
        self._ended[how] += 1
        self._units.discard(event.work)
        task.left.discard(event.work)
        if not task.left:
            del self._tasks[task.key]
        if how in FAILURES:
            host = _host(event.worker)
            place = f" on {host}" * (host not in ("", platform.node()))
            return f"{how}{place} after {elapsed}: {text}"
        if task.left or how == "dropped":
            return ""
        if "trained" in task.did and "measured" not in task.did and task.kinds != {"train"}:
            return f"failed after {elapsed}"
        place = f" on {self.place(task)}" * bool(self.place(task))
        return f"{' and '.join(task.did)} in {elapsed}{place}" if task.did else "nothing to be computed"

    def _line(self, event: Event) -> str:
        """The line that stays of an event; empty if there is none."""
        if event.kind == "waiting" and event.fit["id"] not in self._waited_for:
            self._waited_for.add(event.fit["id"])
            return "another process works on it; its results will be taken over"
        if event.kind == "diverged":
            return f"training {guard.describe_event(event.values)}"
        return event.text if event.kind == "warning" else ""


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
        left = f"about {task.time_left} left" * bool(task.time_left)
        return f"{self.name(task)}: {', '.join(filter(None, (counted, task.pace, left, self.note(task))))}"

    def started(self, event: Event, task: Task) -> None:
        """Print it."""
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


def _names(fits: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The name of each fit, by its id: its number and what differs between them."""
    several = {name for name in ("dataset", "seed") if len({str(fit[name]) for fit in fits}) > 1}
    return {
        fit["id"]: f"[{number}/{len(fits)}] " * (len(fits) > 1)
        + str(fit["model"])
        + f" {fit['dataset']}" * ("dataset" in several)
        + f" seed {fit['seed']}" * ("seed" in several)
        for number, fit in enumerate(fits, 1)
    }


def _host(worker: str) -> str:
    return worker.rpartition(":")[0] or worker


def _losses(values: Mapping[str, Any]) -> str:
    words = [f"loss {values['loss']:.3f}"]
    for prefix in ("", "joint_"):
        if f"{prefix}energy_data" in values:
            data, samples = values[f"{prefix}energy_data"], values[f"{prefix}energy_samples"]
            words.append(f"E(data) {data:.2f} E(samples) {samples:.2f}")
    return " ".join(words)
