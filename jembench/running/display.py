"""The display of a run's progress on stderr: lines for a log, and what live bars on a terminal share with them."""

from __future__ import annotations

import datetime
import platform
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from jembench.interfaces import Event
from jembench.running.eta import Eta, duration
from jembench.training import guard

if TYPE_CHECKING:
    from jembench.experiment.plan import FitPlan

MINUTE = 60.0

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


def display(fits: Sequence[FitPlan]) -> Display:
    """The display that suits stderr."""
    if not sys.stderr.isatty():
        return Lines(fits)
    from jembench.running.bars import Bars  # a log needs no rich

    return Bars(fits)


@dataclass
class Task:
    """What is shown as one: a unit of work, or all units of a fit where one runs after the other."""

    name: str
    kinds: set[str] = field(default_factory=set)  # of its units
    left: set[str] = field(default_factory=set)  # the units that have not ended
    unit: str = ""  # that runs, or ran last
    start: float | None = None  # None: none of them runs
    seconds: float = 0.0  # that those took that have ended
    worker: str = ""
    did: dict[str, None] = field(default_factory=dict)  # what was done: "trained", "measured"
    done: int = 0
    total: int = 0  # iterations or images; 0: not known
    shown: Event | None = None  # the last one that says what is being done


class Display:
    """A :class:`~jembench.interfaces.Tracker` that prints: what stays as lines, the rest as the subclass shows it.

    It learns from ``queued`` events what is to be done, and whether units run one after the other: then all units of a
    fit are shown as one.

    Args:
        fits: all fits whose events may come. They are named by their numbers and by what differs between them; others
            by all that names a fit.
    """

    def __init__(self, fits: Sequence[FitPlan]) -> None:
        keys = {fit.key.id: fit.key for fit in fits}
        numbers = {each: f"[{number}/{len(keys)}] " for number, each in enumerate(keys, 1) if len(keys) > 1}
        several = [name for name in ("dataset", "seed") if len({getattr(key, name) for key in keys.values()}) > 1]
        self._names = {
            each: f"{numbers.get(each, '')}{key.model}"
            f"{f' {key.dataset}' * ('dataset' in several)}{f' seed {key.seed}' * ('seed' in several)}"
            for each, key in keys.items()
        }
        self._by_fit = True
        self._units: set[str] = set()  # that have not ended
        self._count = 0
        self._ended: Counter[str] = Counter()
        self._tasks: dict[str, Task] = {}
        self.running: dict[str, Task] = {}
        self._waited_for: set[str] = set()
        self._hosts = {platform.node()}
        self.eta = Eta()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing to close."""

    def event(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "queued":
            self._queue(event)
            return
        if event.kind == "ended" and self._count and event.work not in self._units:
            return  # the worker has said it, and now the executor does
        task, now = self._task(event), event.time or time.time()
        if event.kind in ("started", "training", "sampling", "measuring"):
            self._begin(task, event, now)
        if event.kind in ("window", "measuring", "sampling", "waiting"):
            task.shown = event
        if event.total and (event.kind == "window" or not self._by_fit):
            task.done, task.total = event.done, event.total
            self.eta.progressed(event.work, event.done / event.total, now)
        self.update(event, task)
        if line := self._end(task, event, now) if event.kind == "ended" else self._line(event):
            self.print(f"{task.name}: {line}")

    def update(self, event: Event, task: Task) -> None:
        """Show an event that is replaced by the next."""

    def print(self, text: str) -> None:
        """Print a line that stays."""
        raise NotImplementedError

    def place(self, task: Task) -> str:
        """The worker, if workers are on several hosts."""
        return task.worker if len(self._hosts) > 1 else ""

    def whole(self) -> str:
        """The state of the whole run in a line; empty if units run one after the other."""
        if self._by_fit:
            return ""
        failed = sum(self._ended[how] for how in FAILURES)
        left = self.eta.left(time.time()) if self._units else None
        parts = (
            f"{self._ended['done']} of {self._count} units done",
            f"{failed} failed" * bool(failed),
            f"{len(self.running)} running",
            "" if left is None else f"about {duration(left)} left",
        )
        return ", ".join(filter(None, parts))

    def _queue(self, event: Event) -> None:
        """Take in a unit that is to be done; ``total`` of them run at once."""
        self._by_fit = event.total == 1
        task = self._task(event)
        task.left.add(event.work)
        self._count += event.work not in self._units
        self._units.add(event.work)
        self.eta.queued(event.work, (event.unit, *(str(event.fit[name]) for name in ("model", "dataset", "recipe"))))

    def _key(self, event: Event) -> str:
        return str(event.fit["id"]) if self._by_fit or not event.work else event.work

    def _task(self, event: Event) -> Task:
        key, fit = self._key(event), event.fit
        if key not in self._tasks:
            name = self._names.get(fit["id"]) or f"{fit['model']} on {fit['dataset']}, seed {fit['seed']}"
            self._tasks[key] = Task(name)
        self._tasks[key].kinds.add(event.unit)
        return self._tasks[key]

    def _begin(self, task: Task, event: Event, now: float) -> None:
        if event.worker:
            task.worker = event.worker
            self._hosts.add(_host(event.worker))
        if task.start is None or event.kind == "started":
            task.start, task.unit, task.shown = now, event.work, None
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
        ran, again = task.start is not None, how in ("busy", "stopped")
        if task.start is not None:
            task.seconds, task.start = task.seconds + max(now - task.start, 0), None
        self.running.pop(event.work, None)
        self.eta.ended(event.work, now, done=how == "done", again=again)
        elapsed = datetime.timedelta(seconds=round(task.seconds))
        if again:
            return f"stopped after {elapsed}{f': {text}' * bool(text)}" * (ran and how == "stopped")
        self._ended[how] += 1
        self._units.discard(event.work)
        task.left.discard(event.work)
        if not task.left:
            del self._tasks[self._key(event)]
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
            return _divergence(event.values)
        return event.text if event.kind == "warning" else ""


def _host(worker: str) -> str:
    return worker.rpartition(":")[0] or worker


def _divergence(event: Mapping[str, float | str]) -> str:
    values: dict[str, Any] = {name: int(each) if isinstance(each, float) else each for name, each in event.items()}
    if "remedy" in values:
        return f"training diverged and was repaired {guard.Intervention(**values)}"
    return f"training diverged {guard.Divergence(**values)}; it goes on unchanged, because the guard only watches"


def note(event: Event | None) -> str:
    """An event in a few words."""
    if event is None:
        return "starting"
    if event.kind == "window":
        return _losses(event.values)
    if event.kind == "measuring":
        done = f"{event.done} of {event.total} images, " if event.total else "measuring "
        return f"{done}{event.metric}"
    return "drawing samples" if event.kind == "sampling" else "waiting for another process"


def _losses(values: Mapping[str, Any]) -> str:
    words = [f"loss {values['loss']:.3f}"]
    for prefix in ("", "joint_"):
        if f"{prefix}energy_data" in values:
            data, samples = values[f"{prefix}energy_data"], values[f"{prefix}energy_samples"]
            words.append(f"E(data) {data:.2f} E(samples) {samples:.2f}")
    return " ".join(words)


class Lines(Display):
    """A line at the start and the end of each unit, and one a minute: for logs.

    The line of the minute is about the whole run; where units run one after the other, about the one that runs.
    """

    def __init__(self, fits: Sequence[FitPlan], seconds: float = MINUTE) -> None:
        super().__init__(fits)
        self._seconds = seconds
        self._last = time.monotonic()

    def update(self, event: Event, task: Task) -> None:
        """Print the start of a unit, and how far the run is if a minute has passed."""
        name, fit = task.name, event.fit
        place = f" on {self.place(task)}" * bool(self.place(task))
        if event.kind == "training":
            self.print(f"{name}: training on {fit['dataset']}, recipe {fit['recipe']}, seed {fit['seed']}{place}")
        elif event.kind == "started" and not self._by_fit and event.unit != "train":
            self.print(f"{name}: {DOES[event.unit][0]}{place}")
        elif event is task.shown and time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            iteration = f"iteration {event.done} of {event.total}, " if event.kind == "window" else ""
            self.print(self.whole() or f"{name}: {iteration}{note(event)}")

    def print(self, text: str) -> None:
        """Print a line with the time."""
        click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
