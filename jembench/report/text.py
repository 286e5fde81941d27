"""Tables of short texts, for people: headings, values with their intervals, numbered footnotes.

A number shows two significant digits of its uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jembench.report.record import Column, Record, Subject
from jembench.report.references import Better

DAGGER = "†"
ABSENT = "—"
INTERVAL = "[low, high]: 95 % interval"
"""How the sentence on intervals begins."""

ENDS = " The ends of the interval are means over the seeds: what other test images would change."
_ARROWS = {"higher": "↑", "lower": "↓", "": ""}
_WITHOUT_UNCERTAINTY = 4  # significant digits
_MOST_DECIMALS = 6


class Heading(NamedTuple):
    """The head of a column. What identifies a row (the model, its dataset) is aligned left, a number right."""

    label: str
    detail: str = ""  # unit and arrow
    identifies: bool = False

    @property
    def in_one_line(self) -> str:
        """The label and its detail."""
        return f"{self.label} ({self.detail})" if self.detail else self.label


class Text(NamedTuple):
    """What stands in one place of a table."""

    value: str
    interval: str = ""
    marks: tuple[str, ...] = ()
    record: Record | None = None  # that it shows
    best: bool = False  # of its column, with significance

    @property
    def half(self) -> str:
        """Half the width of the interval, of a value without a deviation over seeds."""
        shown = self.record
        if shown is None or shown.value is None or shown.low is None or shown.high is None or shown.sd is not None:
            return ""
        half = (shown.high - shown.low) / 2
        return fixed(half, decimals_for(shown.value, half))

    @property
    def in_one_line(self) -> str:
        """The value and its interval."""
        return f"{self.value} {self.interval}" if self.interval else self.value


class Footnote(NamedTuple):
    """Without a mark, it is true of the whole table."""

    text: str
    mark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Headings, rows of texts and the footnotes that they refer to."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Text, ...], ...]
    footnotes: tuple[Footnote, ...]
    groups: tuple[int, ...] = ()  # the rows before which another group begins

    def blocks(self, fit: Callable[[Sequence[int]], bool]) -> list[list[int]]:
        """Its columns in as few blocks as fit, each with those that identify a row; else one block a column.

        They are evenly filled: six columns read better as 3 + 3 than as 5 + 1.
        """
        names = [index for index, heading in enumerate(self.headings) if heading.identifies]
        numbers = [index for index in range(len(self.headings)) if index not in names]
        blocks = [names]
        for count in range(1, len(numbers) + 1):
            size = -(-len(numbers) // count)
            blocks = [names + numbers[start : start + size] for start in range(0, len(numbers), size)]
            if all(map(fit, blocks)):
                break
        return blocks


class Line(NamedTuple):
    """What a view shows under one choice of its options."""

    options: tuple[str, ...]  # a value of each
    columns: tuple[Column | None, ...]  # of the results, one a heading; None: nothing is known there
    names: tuple[str, ...]  # of its places, for footnotes
    records: tuple[tuple[Record | None, ...], ...]  # of each model; None: not asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A selection of the results that becomes a table: the records of some models, under some choices of options."""

    titles: tuple[str, ...]
    headings: tuple[Heading, ...]  # of the records
    labels: tuple[str, ...]  # of the values shown
    rows: tuple[Subject, ...]
    lines: tuple[Line, ...]
    options: tuple[str, ...] = ()  # that differ from line to line

    @property
    def results(self) -> set[tuple[str, ...]]:
        """The values that it shows, or says why there are none: model, dataset, recipe, metric and label of each."""
        records = (record for line in self.lines for of_row in line.records for record in of_row if record)
        return {(r.model, r.dataset, r.recipe, r.metric, r.label) for r in records if r.model}


class Footnotes:
    """Gives every distinct text its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._taken = 0

    def marks(self, *texts: str) -> tuple[str, ...]:
        """The number of each footnote; an empty text has none."""
        return tuple(self._numbers.setdefault(flat(text), str(len(self._numbers) + 1)) for text in texts if text)

    def take(self, of_table: Iterable[str] = ()) -> tuple[Footnote, ...]:
        """Return what is true of a whole table, and the footnotes added since the last time."""
        new = [Footnote(text, mark) for text, mark in self._numbers.items()][self._taken :]
        self._taken = len(self._numbers)
        return (*map(Footnote, of_table), *new)


def flat(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


def detail(unit: str, better: Better) -> str:
    """A unit, and an arrow towards the better: ``% ↑``."""
    return f"{unit} {_ARROWS[better]}".strip()


def record_text(record: Record | None, footnotes: Footnotes) -> Text:
    """A value with the digits that its interval allows, or why there is none; None: it is not asked for."""
    if record is None:
        return Text(ABSENT)
    marks = footnotes.marks(record.reason)
    if record.value is None:
        return Text("N/A" if record.status == "na" else record.status, "", marks, record)
    if not math.isfinite(record.value):
        return Text("not finite", "", (*marks, *footnotes.marks(f"the value is {record.value}")), record)
    decimals = decimals_for(record.value, record.sd)
    interval = ""
    if record.low is not None and record.high is not None:
        of_interval = decimals_for(record.value, (record.high - record.low) / 2)
        interval = f"[{fixed(record.low, of_interval)}, {fixed(record.high, of_interval)}]"
        decimals = min(max(decimals, of_interval), of_interval + 2) if record.sd else of_interval
    value = fixed(record.value, decimals)
    if record.sd is not None:
        value += f" ± {fixed(record.sd, decimals)}"
    return Text(value, interval, (DAGGER, *marks) if record.comparable is False else marks, record)


# --- digits -----------------------------------------------------------------------------------------------------------


def decimals_for(value: float, uncertainty: float | None) -> int:
    """The decimals that show two significant digits of the uncertainty, or four of the value where none is known."""
    if uncertainty is not None and math.isfinite(uncertainty) and uncertainty > 0:
        return max(0, 1 - math.floor(math.log10(uncertainty)))
    magnitude = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    return max(0, _WITHOUT_UNCERTAINTY - 1 - magnitude)


def fixed(value: float, decimals: int) -> str:
    """``value`` with that number of decimals, or in scientific notation if that would be many digits."""
    if not math.isfinite(value):
        return "not finite"
    if decimals > _MOST_DECIMALS or abs(value) >= 10**_MOST_DECIMALS:
        return f"{value:.2e}"
    return f"{round(value, decimals) or 0.0:.{decimals}f}"  # no "-0.0"


def plain(value: float) -> str:
    """A published number as it is printed, without digits of ours: 92.9, 300, 0.0001."""
    return f"{value:.10g}" if math.isfinite(value) else "not finite"
