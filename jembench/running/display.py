"""The display of a run's progress on stderr: live bars on a terminal, one line a minute elsewhere."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from jembench.interfaces import Event
from jembench.training import guard

if TYPE_CHECKING:
    from rich.progress import TaskID

    from jembench.experiment.plan import FitPlan

MINUTE = 60.0


def display(fits: Sequence[FitPlan]) -> Display:
    """The display that suits stderr."""
    return Bars(fits) if sys.stderr.isatty() else Lines(fits)


class Display:
    """A :class:`~jembench.interfaces.Tracker` that prints: what stays as lines, the rest as the subclass shows it.

    Args:
        fits: all fits whose events may come. A fit is named by its number and by what differs between fits.
    """

    def __init__(self, fits: Sequence[FitPlan]) -> None:
        self._numbers = {fit.key.id: f"[{number}/{len(fits)}] " for number, fit in enumerate(fits, 1) if len(fits) > 1}
        self._datasets = {fit.key.dataset for fit in fits}
        self._seeds = {fit.key.seed for fit in fits}
        self._waited_for: set[str] = set()
        self._begin("")

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing to close."""

    def _begin(self, fit_id: str) -> None:
        self._fit_id = fit_id
        self._start = time.monotonic()
        self._trained = False
        self._measured = False

    def event(self, event: Event) -> None:
        """Show one event."""
        works = event.kind in ("training", "sampling", "measuring")
        if works and (event.fit["id"] != self._fit_id or event.kind == "training"):
            self._begin(event.fit["id"])
        self._trained |= event.kind == "training"
        self._measured |= event.kind == "measuring"
        self.update(event)
        if line := self._line(event):
            self.print(f"{self.name(event.fit)}: {line}")

    def update(self, event: Event) -> None:
        """Show an event that is replaced by the next."""
        raise NotImplementedError

    def print(self, text: str) -> None:
        """Print a line that stays."""
        raise NotImplementedError

    def name(self, fit: Mapping[str, Any]) -> str:
        """A short name: what all fits have in common is left out."""
        dataset = f" {fit['dataset']}" if len(self._datasets) > 1 else ""
        seed = f" seed {fit['seed']}" if len(self._seeds) > 1 else ""
        return f"{self._numbers.get(fit['id'], '')}{fit['model']}{dataset}{seed}"

    def _line(self, event: Event) -> str:
        """The line that stays of an event; empty if there is none."""
        if event.kind == "waiting" and event.fit["id"] not in self._waited_for:
            self._waited_for.add(event.fit["id"])
            return "another process works on it; its results will be taken over"
        if event.kind == "diverged":
            return _divergence(event.values)
        return event.text if event.kind == "warning" else self._summary(event.fit["id"]) if _is_over(event) else ""

    def _summary(self, fit_id: str) -> str:
        if fit_id != self._fit_id:
            return "nothing to be computed"
        elapsed = datetime.timedelta(seconds=round(time.monotonic() - self._start))
        return f"{'trained and ' * self._trained}measured in {elapsed}" if self._measured else f"failed after {elapsed}"


def _is_over(event: Event) -> bool:
    """Whether nothing is left to be done for a fit."""
    return event.kind == "ended" and (event.unit == "measure" or bool(event.text))


def _divergence(values: Mapping[str, Any]) -> str:
    if "remedy" in values:
        return f"training diverged and was repaired {guard.Intervention(**values)}"
    return f"training diverged {guard.Divergence(**values)}; it goes on unchanged, because the guard only watches"


def _note(event: Event) -> str:
    """An event in a few words; empty if there is nothing to show."""
    if event.kind == "window":
        return _losses(event.values)
    if event.kind == "measuring":
        done = f"{event.done} of {event.total} images, " if event.total else "measuring "
        return f"{done}{event.metric}"
    return "drawing samples" if event.kind == "sampling" else ""


def _losses(values: Mapping[str, Any]) -> str:
    words = [f"loss {values['loss']:.3f}"]
    for prefix in ("", "joint_"):
        if f"{prefix}energy_data" in values:
            data, samples = values[f"{prefix}energy_data"], values[f"{prefix}energy_samples"]
            words.append(f"E(data) {data:.2f} E(samples) {samples:.2f}")
    return " ".join(words)


class Bars(Display):
    """A bar for the current fit, with the last losses, and a line for each finished fit."""

    def __init__(self, fits: Sequence[FitPlan]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        super().__init__(fits)
        console = Console(stderr=True)
        name = Column(no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
        rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # cut before anything else is
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False, table_column=name),
            BarColumn(bar_width=console.width // 8),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim", markup=False, table_column=rest),
            console=console,
            expand=True,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def update(self, event: Event) -> None:
        """Open, move or close the bar."""
        if event.kind == "training" or _is_over(event):  # "training" also closes the bar of a fit that failed
            self._close()
        note = _note(event)
        if self._task is None and (note or event.kind == "training"):
            self._task = self._progress.add_task(self.name(event.fit), total=None, note="starting")
        if self._task is not None and event.kind == "window":
            self._progress.update(self._task, completed=event.done, total=event.total, note=note)
        elif self._task is not None and note:
            self._progress.update(self._task, note=note)

    def print(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _close(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class Lines(Display):
    """One line a minute, and one at the start and end of each fit: for logs."""

    def __init__(self, fits: Sequence[FitPlan], seconds: float = MINUTE) -> None:
        super().__init__(fits)
        self._seconds = seconds
        self._last = time.monotonic()

    def update(self, event: Event) -> None:
        """Print the start of a training, and all else if a minute has passed."""
        name, fit = self.name(event.fit), event.fit
        if event.kind == "training":
            self.print(f"{name}: training on {fit['dataset']}, recipe {fit['recipe']}, seed {fit['seed']}")
        elif (note := _note(event)) and time.monotonic() - self._last >= self._seconds:
            iteration = f"iteration {event.done} of {event.total}, " if event.kind == "window" else ""
            self.print(f"{name}: {iteration}{note}")

    def print(self, text: str) -> None:
        """Print a line with the time."""
        self._last = time.monotonic()
        click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
