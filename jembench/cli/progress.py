"""What a run shows while it works: live bars on a terminal, one line a minute elsewhere. All of it on stderr."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import click

from jembench.running.monitor import Monitor

if TYPE_CHECKING:
    from rich.progress import TaskID

    from jembench.experiment.plan import CellPlan, FitPlan

MINUTE = 60.0


def monitor(fits: Sequence[FitPlan]) -> Watch:
    """The one that fits where stderr goes."""
    return LiveMonitor(fits) if sys.stderr.isatty() else LineMonitor(fits)


class Watch(Monitor):
    """Follows one fit after the other and sums each one up at its end. The others differ in how they show it.

    Args:
        fits: all that may come; each is called by its place and by what tells it from the others.
    """

    def __init__(self, fits: Sequence[FitPlan]) -> None:
        self._places = {fit.key.id: f"[{place}/{len(fits)}] " for place, fit in enumerate(fits, 1) if len(fits) > 1}
        self._datasets = {fit.key.dataset for fit in fits}
        self._seeds = {fit.seed for fit in fits}
        self._waited_for: set[str] = set()
        self._begin("")

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Nothing stays open."""

    def _begin(self, fit_id: str) -> None:
        self._fit_id = fit_id
        self._start = time.monotonic()
        self._trains = False
        self._measures = False

    def fit_started(self, fit: FitPlan) -> None:
        """Training begins."""
        self._begin(fit.key.id)
        self._trains = True

    def drawing(self, fit: FitPlan) -> None:
        """The first that is seen of a model that was trained before."""
        if fit.key.id != self._fit_id:
            self._begin(fit.key.id)

    def cell_started(self, cell: CellPlan) -> None:
        """A metric is being computed."""
        if cell.fit.key.id != self._fit_id:
            self._begin(cell.fit.key.id)
        self._measures = True

    def waiting(self, fit: FitPlan) -> None:
        """Tell once."""
        if fit.key.id not in self._waited_for:
            self._waited_for.add(fit.key.id)
            self.tell(f"{self.name(fit)}: another process works on it; its results will be taken over")

    def trouble(self, fit: FitPlan, text: str) -> None:
        """Tell at once."""
        self.tell(f"{self.name(fit)}: {text}")

    def fit_finished(self, fit: FitPlan) -> None:
        """Sum it up."""
        self.tell(self.summary(fit))

    def tell(self, text: str) -> None:
        """Print a line that stays."""
        raise NotImplementedError

    def name(self, fit: FitPlan) -> str:
        """Short: what all fits have in common is left out."""
        place = self._places.get(fit.key.id, "")
        dataset = f" {fit.key.dataset}" if len(self._datasets) > 1 else ""
        seed = f" seed {fit.seed}" if len(self._seeds) > 1 else ""
        return f"{place}{fit.key.model}{dataset}{seed}"

    def summary(self, fit: FitPlan) -> str:
        """What became of a fit, as far as a monitor is told."""
        if fit.key.id != self._fit_id:
            return f"{self.name(fit)}: nothing to be computed"
        elapsed = datetime.timedelta(seconds=round(time.monotonic() - self._start))
        if not self._measures:
            return f"{self.name(fit)}: failed after {elapsed}"
        return f"{self.name(fit)}: {'trained and ' * self._trains}measured in {elapsed}"


class LiveMonitor(Watch):
    """A bar for the fit in hand, with the last losses, and a line for each that is finished."""

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

    def __enter__(self) -> LiveMonitor:
        self._progress.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def fit_started(self, fit: FitPlan) -> None:
        """Open a bar."""
        super().fit_started(fit)
        self._open(fit)

    def training(self, done: int, total: int, note: str) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total, note=note)

    def drawing(self, fit: FitPlan) -> None:
        """Say so."""
        super().drawing(fit)
        self._note(fit, "drawing samples")

    def cell_started(self, cell: CellPlan) -> None:
        """Say what is being measured."""
        super().cell_started(cell)
        self._note(cell.fit, f"measuring {cell.metric}")

    def _note(self, fit: FitPlan, text: str) -> None:
        if self._task is None:
            self._open(fit)
        assert self._task is not None
        self._progress.update(self._task, note=text)

    def measuring(self, cell: CellPlan, done: int, total: int) -> None:
        """Say how far it is."""
        assert self._task is not None
        self._progress.update(self._task, note=f"{done} of {total} images: {cell.metric}")

    def fit_finished(self, fit: FitPlan) -> None:
        """Put a line in place of the bar."""
        self._close()
        super().fit_finished(fit)

    def tell(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _open(self, fit: FitPlan) -> None:
        self._close()  # of a fit that failed before its end
        self._task = self._progress.add_task(self.name(fit), total=None, note="starting")

    def _close(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class LineMonitor(Watch):
    """One line a minute, and one for each beginning and end: for logs."""

    def __init__(self, fits: Sequence[FitPlan], seconds: float = MINUTE) -> None:
        super().__init__(fits)
        self._seconds = seconds
        self._last = time.monotonic()
        self._name = ""

    def fit_started(self, fit: FitPlan) -> None:
        """Say what is trained."""
        super().fit_started(fit)
        self._name = self.name(fit)
        self.tell(f"{self._name}: training on {fit.key.dataset}, recipe {fit.key.recipe}, seed {fit.seed}")

    def training(self, done: int, total: int, note: str) -> None:
        """Say how far it is, if a minute has gone by."""
        self._say_at_times(f"{self._name}: iteration {done} of {total}, {note}")

    def drawing(self, fit: FitPlan) -> None:
        """Say so, if a minute has gone by."""
        super().drawing(fit)
        self._say_at_times(f"{self.name(fit)}: drawing samples")

    def cell_started(self, cell: CellPlan) -> None:
        """Say what is measured, if a minute has gone by."""
        super().cell_started(cell)
        self._say_at_times(f"{self.name(cell.fit)}: measuring {cell.metric}")

    def measuring(self, cell: CellPlan, done: int, total: int) -> None:
        """Say how far it is, if a minute has gone by."""
        self._say_at_times(f"{self.name(cell.fit)}: {done} of {total} images, {cell.metric}")

    def _say_at_times(self, text: str) -> None:
        if time.monotonic() - self._last >= self._seconds:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print a line with the time."""
        self._last = time.monotonic()
        click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
