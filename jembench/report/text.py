"""What stands in a grid of short texts: headings, values with their intervals, numbered footnotes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from jembench.report.references import Better
from jembench.report.rounding import decimals_for, fixed
from jembench.report.table import Entry

DAGGER = "†"
ABSENT = "—"
_ARROWS = {"higher": "↑", "lower": "↓", "": ""}


class Heading(NamedTuple):
    """The head of a column. What identifies a row (the model, its dataset) is aligned left, a number right."""

    label: str
    detail: str = ""  # unit and arrow
    identifies: bool = False
    marks: tuple[str, ...] = ()


class Text(NamedTuple):
    """What stands in one place of a grid."""

    value: str
    interval: str = ""
    marks: tuple[str, ...] = ()

    @property
    def in_one_line(self) -> str:
        """The value and its interval."""
        return f"{self.value} {self.interval}" if self.interval else self.value


class Footnote(NamedTuple):
    """``mark`` is empty for what is true of the whole grid."""

    mark: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Headings, rows of texts and the footnotes that they refer to."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Text, ...], ...]
    footnotes: tuple[Footnote, ...]


class Footnotes:
    """Gives every distinct text its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._taken = 0

    def mark(self, text: str) -> str:
        """The number of a footnote."""
        return self._numbers.setdefault(flat(text), str(len(self._numbers) + 1))

    def take(self) -> list[Footnote]:
        """The footnotes added since the last time."""
        new = [Footnote(mark, text) for text, mark in self._numbers.items()][self._taken :]
        self._taken = len(self._numbers)
        return new


def flat(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


def detail(unit: str, better: Better) -> str:
    """A unit, and an arrow towards the better: ``% ↑``."""
    return f"{unit} {_ARROWS[better]}".strip()


def entry_text(entry: Entry, footnotes: Footnotes) -> Text:
    """A value with the digits that its interval allows, or why there is none."""
    if entry.status == "not asked for":
        return Text(ABSENT)
    marks = (footnotes.mark(entry.reason),) if entry.reason else ()
    if entry.value is None:
        return Text("N/A" if entry.status == "na" else entry.status, marks=marks)
    if not math.isfinite(entry.value):
        return Text("not finite", marks=(*marks, footnotes.mark(f"the value is {entry.value}")))
    decimals = decimals_for(entry.value, entry.sd)
    interval = ""
    if entry.low is not None and entry.high is not None:
        of_interval = decimals_for(entry.value, (entry.high - entry.low) / 2)
        interval = f"[{fixed(entry.low, of_interval)}, {fixed(entry.high, of_interval)}]"
        decimals = min(max(decimals, of_interval), of_interval + 2) if entry.sd else of_interval
    value = fixed(entry.value, decimals)
    if entry.sd is not None:
        value += f" ± {fixed(entry.sd, decimals)}"
    return Text(value, interval, marks if entry.comparable else (DAGGER, *marks))
