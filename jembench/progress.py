"""What this process is doing and how far it is, noted by the code that does it and read by what shows it.

A loop that may take seconds is wrapped in :func:`track`, other work in :func:`phase`; both may lie within others. To
note costs less than a microsecond and calls nothing: a reader looks at :func:`now` when it likes, from any thread.
Work is noted in the main thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

PASSES = "network passes"
"""The unit of a phase that counts images through networks: :func:`passed` counts them. Its total is an estimate."""

LONG = 1.0
"""Seconds after which a phase within another one is worth a look: shorter ones would only flicker."""


@dataclass(eq=False, slots=True)
class Phase:
    """Work that is under way."""

    text: str  # "bootstrap"; "": only what is counted is shown
    total: int = 0  # of what is counted; 0: it is not known
    unit: str = ""  # what is counted: "images"
    done: int = 0
    start: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        about = "about " * (self.unit == PASSES)
        counted = f"{self.done:,} of {about}{self.total:,} {self.unit}".rstrip() if self.total else ""
        return f"{self.text} {counted}".strip()


class Now(NamedTuple):
    """The work of this moment."""

    text: str = ""  # every phase that takes long, the outermost first: "features, bootstrap 40 of 200 resamples"
    done: int = 0  # of the outermost phase that counts, whose numbers are not in the text
    total: int = 0  # 0: none does
    unit: str = ""


_open: list[Phase] = []


@contextmanager
def phase(text: str = "", total: int = 0, unit: str = "", done: int = 0) -> Iterator[Phase]:
    """Note work that is under way; within the context its ``done`` and ``total`` may be set."""
    opened = Phase(text, total, unit, done)
    _open.append(opened)
    try:
        yield opened
    finally:
        _open.remove(opened)


def track(
    items: Sequence[Item], text: str, unit: str = "", size: Callable[[Item], int] = lambda item: 1
) -> Iterator[Item]:
    """Yield the items, counted as the loop over them goes on; ``size`` says what an item counts for."""
    with phase(text, sum(map(size, items)), unit) as opened:
        for item in items:
            yield item
            opened.done += size(item)


def passed(images: int) -> None:
    """Note that images have passed through a network, once each."""
    for each in _open:
        if each.unit == PASSES:
            each.done = min(each.done + images, each.total)


def now() -> Now:
    """Return what is being done."""
    moment, opened = time.monotonic(), list(_open)
    shown = [each for place, each in enumerate(opened) if not place or moment - each.start >= LONG]
    counted = next((each for each in shown if each.total), Phase(""))
    text = ", ".join(filter(None, (each.text if each is counted else str(each) for each in shown)))
    return Now(text, counted.done, counted.total, counted.unit)


def duration(seconds: float) -> str:
    """Return a rough duration in words: ``40 s``, ``3 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
