"""From a table to grids of short texts with numbered footnotes: what the terminal, Markdown and LaTeX show alike."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jembench.report.references import Better, PublishedRow, PublishedTable
from jembench.report.rounding import decimals_for, fixed, plain
from jembench.report.table import Column, Entry, Row, Table, protocol_differences

NOTHING = "No results yet. `jembench run hybrid` makes some."
DAGGER = "†"
_ARROWS = {"higher": "↑", "lower": "↓", "": ""}
_ABSENT = "—"


class Heading(NamedTuple):
    """The head of a column. What identifies a row (the model, its dataset) is aligned left, a number right."""

    label: str
    detail: str = ""  # unit and arrow
    identifies: bool = False


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


def grids(table: Table) -> list[Grid]:
    """Our results, then one grid for each published table; footnotes are numbered through."""
    footnotes = _Footnotes()
    return [_measured(table, footnotes), *(_published(one, table, footnotes) for one in table.published)]


class _Footnotes:
    """Gives every distinct text its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._taken = 0

    def mark(self, text: str) -> str:
        return self._numbers.setdefault(_flat(text), str(len(self._numbers) + 1))

    def take(self) -> list[Footnote]:
        """The footnotes added since the last time."""
        new = [Footnote(mark, text) for text, mark in self._numbers.items()][self._taken :]
        self._taken = len(self._numbers)
        return new


def _flat(text: str) -> str:
    return " ".join(text.split())


# --- our results ------------------------------------------------------------------------------------------------------


def _measured(table: Table, footnotes: _Footnotes) -> Grid:
    if not table.rows:
        return Grid(title="Results", headings=(), rows=(), footnotes=(Footnote("", NOTHING),))
    context = {
        "dataset": [row.dataset for row in table.rows],
        "recipe": [row.recipe for row in table.rows],
        "seeds": [", ".join(map(str, row.seeds)) for row in table.rows],
    }
    differing = {name: texts for name, texts in context.items() if len(set(texts)) > 1}
    shared = {name: texts[0] for name, texts in context.items() if name not in differing}
    if "," not in shared.get("seeds", ","):
        shared["seed"] = shared.pop("seeds")
    return Grid(
        title=" · ".join(["Results", *(f"{name} {text}" for name, text in shared.items())]),
        headings=(
            *(Heading(name, identifies=True) for name in ("model", *differing)),
            *(_heading(column, table.columns) for column in table.columns),
        ),
        rows=tuple(
            (
                Text(row.model, marks=tuple(footnotes.mark(note) for note in row.notes)),
                *(Text(texts[index]) for texts in differing.values()),
                *(_text(entry, footnotes) for entry in row.entries),
            )
            for index, row in enumerate(table.rows)
        ),
        footnotes=(*_legend(table.rows), *_differing_protocols(table), *footnotes.take()),
    )


def _heading(column: Column, columns: Sequence[Column]) -> Heading:
    alone = [other.label for other in columns].count(column.label) == 1
    return Heading(column.label if alone else f"{column.label} ({column.metric})", _detail(column.unit, column.better))


def _detail(unit: str, better: Better) -> str:
    return f"{unit} {_ARROWS[better]}".strip()


def _text(entry: Entry, footnotes: _Footnotes) -> Text:
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


def _legend(rows: Sequence[Row]) -> list[Footnote]:
    entries = [entry for row in rows for entry in row.entries]
    intervals = any(entry.low is not None for entry in entries)
    legend = []
    if intervals:
        legend.append("[low, high]: 95 % interval over what was measured (test images, samples, timed iterations).")
    if any(entry.sd is not None for entry in entries):
        legend.append(
            "Value: mean over the seeds; ±: standard deviation over the seeds, how much training anew changes it."
            + (" The ends of the interval are means over the seeds: what other test images would change." * intervals)
        )
    if any(entry.status == "not run" for entry in entries):
        legend.append("not run: `jembench run` measures what is missing.")
    return [Footnote("", text) for text in legend]


def _differing_protocols(table: Table) -> list[Footnote]:
    found = []
    for index, column in enumerate(table.columns):
        rows = [row for row in table.rows if not row.entries[index].comparable and row.entries[index].status == "ok"]
        if not rows:
            continue
        differences = protocol_differences([row.entries[index].protocol for row in rows])
        which = "; ".join(f"{row.model}: {difference}" for row, difference in zip(rows, differences, strict=True))
        found.append(
            Footnote(DAGGER, f"{column.label} was measured under different protocols, do not compare: {which}")
        )
    return found


# --- published numbers ------------------------------------------------------------------------------------------------


def _published(published: PublishedTable, table: Table, footnotes: _Footnotes) -> Grid:
    return Grid(
        title=_published_title(published, {_bare(row.dataset) for row in table.rows}),
        headings=(
            Heading("model", identifies=True),
            Heading("dataset", identifies=True),
            *(Heading(column.label, _detail(column.unit, column.better)) for column in published.columns),
            Heading("standing"),
        ),
        rows=tuple(
            (
                Text(_published_label(row, table), marks=(footnotes.mark(row.note),) if row.note else ()),
                Text(row.dataset),
                *(_published_text(row, column.label) for column in published.columns),
                Text(row.status, marks=(footnotes.mark(_source(row, published)),)),
            )
            for row in published.rows
        ),
        footnotes=(*_published_legend(published), *footnotes.take()),
    )


def _published_title(published: PublishedTable, ours: set[str]) -> str:
    theirs = list(dict.fromkeys(row.dataset for row in published.rows))
    title = f"Published · dataset {', '.join(theirs)}"
    if ours.intersection(map(_bare, theirs)):
        return title
    return f"{title} · another dataset than ours: for orientation, not for comparison"


def _bare(name: str) -> str:
    """``CIFAR-10`` and ``cifar10:root=/data`` are the same dataset; ``jembench-jem/jem:net=wrn-28-10`` is a ``jem``."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())


def _published_label(row: PublishedRow, table: Table) -> str:
    """The paper's name of the model, and ours where the paper's does not tell it: ``Wide-ResNet (baseline)``."""
    ours = any(_bare(one.model) == _bare(row.model) for one in table.rows)
    told = set(re.findall(r"\w+", row.model.lower())) <= set(re.findall(r"\w+", row.label.lower()))
    return f"{row.label} ({row.model})" if ours and not told else row.label


def _published_text(row: PublishedRow, label: str) -> Text:
    return Text(plain(row.values[label])) if label in row.values else Text(_ABSENT)


def _source(row: PublishedRow, published: PublishedTable) -> str:
    return f"{row.source}, {published.url}" if published.url else row.source


def _published_legend(published: PublishedTable) -> list[Footnote]:
    legend = []
    if published.note:
        legend.append(f"{published.note[0].upper()}{published.note[1:]}.")
    if any(column.label not in row.values for column in published.columns for row in published.rows):
        legend.append(f"{_ABSENT}: not given there.")
    return [Footnote("", _flat(text)) for text in legend]
