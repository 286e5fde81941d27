"""The progress of this process, recorded by the code that works and read by displays.

A loop that may take seconds is wrapped in :func:`track`, other work in :func:`phase`; both may be
nested. Recording takes less than a microsecond and calls no reader: any thread may call :func:`now`
at any time. Only the main thread records progress.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

LONG = 1.0
"""Seconds after which a nested phase is shown: shorter phases would only flicker."""


@dataclass(eq=False, slots=True)
class Phase:
    """A phase of work in progress."""

    text: str  # "bootstrap"; "": only the numbers are shown
    total: int = 0  # 0: unknown
    unit: str = ""  # of done and total: "images"
    done: int = 0
    start: float = field(default_factory=time.monotonic)


class Now(NamedTuple):
    """The progress at one moment."""

    # all long phases, the outermost first: "features, bootstrap 40 of 200 resamples"
    text: str = ""
    done: int = 0  # of the outermost phase with a total, whose numbers are not in the text
    total: int = 0  # 0: no phase has a total
    unit: str = ""


_open: list[Phase] = []


@contextmanager
def phase(text: str = "", total: int = 0, unit: str = "", done: int = 0) -> Iterator[Phase]:
    """Record a phase within the context, where ``done`` and ``total`` may be set."""
    opened = Phase(text, total, unit, done)
    _open.append(opened)
    try:
        yield opened
    finally:
        _open.remove(opened)


def track(
    items: Sequence[Item], text: str, unit: str = "", size: Callable[[Item], int] = lambda item: 1
) -> Iterator[Item]:
    """Yield the items, and record the progress of the loop over them.

    ``size`` returns how much an item adds to the count.
    """
    with phase(text, sum(map(size, items)), unit) as opened:
        for item in items:
            yield item
            opened.done += size(item)


def now() -> Now:
    """Return the present progress."""
    moment, opened = time.monotonic(), list(_open)
    shown = [
        entry for place, entry in enumerate(opened) if not place or moment - entry.start >= LONG
    ]
    counted = next((entry for entry in shown if entry.total), Phase(""))
    texts = []
    for entry in shown:
        numbers = (
            f"{entry.done:,} of {entry.total:,} {entry.unit}"
            if entry.total and entry is not counted
            else ""
        )
        texts.append(f"{entry.text} {numbers}".strip())
    return Now(", ".join(filter(None, texts)), counted.done, counted.total, counted.unit)


def duration(seconds: float) -> str:
    """Return a rough duration in words: ``40 s``, ``3 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
