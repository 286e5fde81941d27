"""The display of a run's progress on a terminal: live bars."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from jembench.running.display import Display, Task

REFRESHES = 4
"""A second."""


class Bars(Display):
    """A bar for each running unit, with the last losses, and a line for each that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(stderr=True)
        self._live = Live(
            console=self._console,
            get_renderable=self._rendered,
            refresh_per_second=REFRESHES,
            transient=True,
        )

    def __enter__(self) -> Bars:
        self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._live.stop()

    def print(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _rendered(self) -> RenderableType:
        width, fitting = self._console.width, max(self._console.height - 3, 1)
        running = list(self.running.values())
        table = Table.grid(
            Column(no_wrap=True, overflow="ellipsis", max_width=width // 3),
            *(Column(no_wrap=True) for _ in range(5)),
            Column(no_wrap=True, overflow="ellipsis", ratio=1),  # cut before anything else is
            padding=(0, 1),
            expand=True,
        )
        for task in running[:fitting]:
            table.add_row(*self._row(task, width // 8))
        below = [f"and {len(running) - fitting} more"] if len(running) > fitting else []
        return Group(*[table] * bool(running), *map(Text, filter(None, [*below, self.whole()])))

    def _row(self, task: Task, width: int) -> Iterator[RenderableType]:
        yield Text(self.name(task), "bold")
        yield ProgressBar(task.total or None, task.speed.done, width, animation_time=time.monotonic())
        yield Text(f"{task.done}/{task.total}" * bool(task.total), "green")
        yield Text(task.pace, "dim")
        yield Text(task.time_left, "cyan")
        yield Text(self.place(task), "dim")
        yield Text(self.note(task), "dim")
