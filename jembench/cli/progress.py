"""What a run shows while it works: live bars on a terminal, one line a minute elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

import click

from jembench.monitor import Monitor

if TYPE_CHECKING:
    from jembench.suite import CellPlan, FitPlan


def monitor() -> LiveMonitor | LineMonitor:
    """The one that fits where stderr goes."""
    return LiveMonitor() if sys.stderr.isatty() else LineMonitor()


class LiveMonitor(Monitor):
    """A bar for each fit, with the last losses."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[note]}"),
            console=Console(stderr=True),
        )

    def __enter__(self) -> LiveMonitor:
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def fit_started(self, fit: FitPlan) -> None:
        """Open a bar."""
        self._task = self._progress.add_task(_short(fit), total=None, note="")

    def training(self, done: int, total: int, note: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, total=total, note=note)

    def cell_started(self, cell: CellPlan) -> None:
        """Say what is being measured."""
        name = f"{_short(cell.fit)}"
        known = [task.id for task in self._progress.tasks if task.description == name]
        self._task = known[0] if known else self._progress.add_task(name, total=None, note="")
        self._progress.update(self._task, note=f"measuring {cell.metric}")

    def fit_finished(self, fit: FitPlan) -> None:
        """Close the bar."""
        for task in self._progress.tasks:
            if task.description == _short(fit):
                total = task.total or 1
                self._progress.update(task.id, total=total, completed=total, note="done")


class LineMonitor(Monitor):
    """One line a minute, and one for each beginning and end: for logs."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._last = time.monotonic()
        self._fit = ""

    def __enter__(self) -> LineMonitor:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing stays open."""

    def fit_started(self, fit: FitPlan) -> None:
        """Say what is trained."""
        self._fit = _short(fit)
        self._say(f"training {fit}")

    def training(self, done: int, total: int, note: str) -> None:
        """Say how far it is, if a minute has gone by."""
        if time.monotonic() - self._last >= self._seconds:
            self._say(f"{self._fit}: iteration {done} of {total}, {note}")

    def cell_started(self, cell: CellPlan) -> None:
        """Say what is measured, if a minute has gone by."""
        if time.monotonic() - self._last >= self._seconds:
            self._say(f"{_short(cell.fit)}: measuring {cell.metric}")

    def fit_finished(self, fit: FitPlan) -> None:
        """Say that it is done."""
        self._say(f"{_short(fit)}: done")

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _short(fit: FitPlan) -> str:
    return f"{fit.key.model} seed {fit.seed}"
