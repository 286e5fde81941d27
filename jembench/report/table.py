"""From cells to a table: a row a model, a column a value; seeds are summarised, gaps are explained.

Legend: a row is one model x dataset x recipe, over all its seeds; an entry is what stands in a row under a column.
The table is flat, and says besides which of its columns belong together: :mod:`jembench.report.sections` reads that.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from jembench.catalog import spec
from jembench.errors import SpecError
from jembench.experiment.plan import Part
from jembench.experiment.sweep import compares_with_itself
from jembench.interfaces import Value
from jembench.report.places import Places
from jembench.report.references import PublishedTable
from jembench.store.outcome import Cell, Outcome

EntryStatus = Literal["ok", "na", "failed", "not run", "not asked for"]


class Column(NamedTuple):
    """One value of one metric."""

    metric: str  # canonical spec
    label: str
    unit: str = ""
    better: Literal["higher", "lower", ""] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A value over the seeds of a row, or why there is none.

    The interval is that of the test set (of the samples, of the timed iterations), its ends averaged over the seeds;
    ``sd`` is the standard deviation of the value over the seeds. The two answer different questions.
    """

    status: EntryStatus
    value: float | None = None  # the mean over the seeds
    low: float | None = None
    high: float | None = None
    sd: float | None = None  # None: one seed
    n: int | None = None  # of one seed; the least, should they differ
    protocol: str = ""
    comparable: bool = True  # False: most rows of this column have another protocol, or none is that of most
    seeds: tuple[int, ...] = ()  # that gave the value
    reason: str = ""  # why there is no value, or which seeds gave none


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What is known of one model."""

    model: str
    dataset: str
    recipe: str
    seeds: tuple[int, ...]
    entries: tuple[Entry, ...]  # one a column
    notes: tuple[str, ...] = ()  # what else a reader must know of these fits

    @property
    def key(self) -> tuple[str, str, str]:
        """What a part of a plan knows it by."""
        return self.model, self.dataset, self.recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Our results, and the published numbers to be shown beside or below them."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    parts: tuple[Part, ...]
    published: tuple[PublishedTable, ...] = ()
    recipe_names: Mapping[str, str] = field(default_factory=dict)  # the label of a variant's recipe -> the variant


def build(
    cells: Iterable[Cell],
    *,
    metrics: Sequence[str] = (),
    parts: Sequence[Part] = (),
    published: Sequence[PublishedTable] = (),
    recipe_names: Mapping[str, str] | None = None,
) -> Table:
    """Lay out cells as a table.

    Args:
        cells: in the order in which their models shall appear.
        metrics: canonical specs, in the order of the columns; metrics that only the cells name follow.
        parts: what belongs together, each with metrics of its own, in place of ``metrics``.
        published: the reference tables to show.
        recipe_names: what to call a recipe, given by its label, where the table is for human eyes.
    """
    cells = list(cells)
    parts = [_completed(part, cells) for part in parts] or [Part("", _and_those_of(metrics, cells), ())]
    order = dict.fromkeys(metric for part in parts for metric in (*part.metrics, *_of_grids(part, cells)))
    of_metric: dict[str, list[Cell]] = {}
    for cell in cells:
        of_metric.setdefault(cell.metric, []).append(cell)
    columns = tuple(column for metric in order for column in _columns(metric, of_metric.get(metric, ())))
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.fit.model, cell.fit.dataset, cell.fit.recipe), []).append(cell)
    rows = [_row(group, columns, parts) for group in groups.values()]
    return Table(
        columns=columns,
        rows=tuple(
            replace(row, notes=(*row.notes, *_how_drawn(row, rows))) for row in mark_incomparable(rows, columns)
        ),
        parts=tuple(parts),
        published=tuple(published),
        recipe_names=recipe_names or {},
    )


def _and_those_of(metrics: Sequence[str], cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*metrics, *(cell.metric for cell in cells)]))


def _completed(part: Part, cells: Sequence[Cell]) -> Part:
    """The part with what the cells hold of its metrics under other options, where a fit has none under its own.

    ``run --set ece.bins=15`` measures another metric than the suite's, in its place; what a grid of any suite has
    measured stands there.
    """
    names, places = {spec.parse(metric).name for metric in part.metrics}, Places(part.grids)
    as_asked = {(cell.fit.id, spec.parse(cell.metric).name) for cell in cells if cell.metric in part.metrics}
    others = [
        cell
        for cell in cells
        if (name := spec.parse(cell.metric).name) in names
        and (cell.fit.id, name) not in as_asked
        and not any(places.of(cell.metric))
    ]
    return part._replace(metrics=_and_those_of(part.metrics, others))


def _of_grids(part: Part, cells: Sequence[Cell]) -> list[str]:
    places = Places(part.grids)
    asked_for = [] if part.rows is None else places.metrics
    return [*asked_for, *(cell.metric for cell in cells if any(places.of(cell.metric)))]


def _columns(metric: str, cells: Sequence[Cell]) -> list[Column]:
    found: dict[str, Value] = {}
    for cell in cells:
        if cell.outcome.status == "ok":
            found |= {label: value for label, value in cell.outcome.values.items() if label not in found}
    return [Column(metric, label, value.unit, value.better) for label, value in found.items()] or [
        Column(metric, metric)
    ]


def _row(cells: Sequence[Cell], columns: Sequence[Column], parts: Sequence[Part]) -> Row:
    fit = cells[0].fit
    seeds = tuple(sorted({cell.fit.seed for cell in cells}))
    of_metric: dict[str, list[Cell]] = {}
    for cell in cells:
        of_metric.setdefault(cell.metric, []).append(cell)
    row = Row(model=fit.model, dataset=fit.dataset, recipe=fit.recipe, seeds=seeds, entries=())
    asked = {metric for part in parts for metric in _asked(part, row)} | of_metric.keys()
    entries = (
        _entry(of_metric.get(column.metric, []), column, seeds) if column.metric in asked else NOT_ASKED_FOR
        for column in columns
    )
    return replace(row, entries=tuple(entries), notes=(*_divergences(cells, seeds), *_remarks(cells, seeds)))


NOT_ASKED_FOR = Entry(status="not asked for")


def _asked(part: Part, row: Row) -> list[str]:
    """The metrics that a part asks for of a row, as they are planned."""
    if part.rows is None:
        return list(part.metrics)
    if row.key not in part.rows:
        return []
    of_grids = (place.metric for grid in part.grids if grid.covers(row.dataset) for place in grid.places)
    return [metric for metric in (*part.metrics, *of_grids) if not compares_with_itself(metric, row.dataset)]


def _divergences(cells: Sequence[Cell], seeds: Sequence[int]) -> Iterator[str]:
    """Which of these fits diverged, what was done about it, and what they were really trained with."""
    provenance = {cell.fit.seed: cell.provenance for cell in cells}
    for seed in seeds:
        training = f"training of seed {seed}" if len(seeds) > 1 else "training"
        repairs, stability = provenance[seed].get("interventions"), provenance[seed].get("stability") or {}
        if repairs:
            end = f"; it ended with {ended_with}" if (ended_with := stability.get("ended_with")) else ""
            yield f"{training} diverged and was repaired {'; '.join(repairs)}{end}"
        elif (iteration := stability.get("diverged_at")) is not None:
            yield f"{training} diverged at iteration {iteration} ({stability['reason']}) and was not repaired"


def _remarks(cells: Sequence[Cell], seeds: Sequence[int]) -> Iterator[str]:
    """What a metric says of its own numbers: that they are of fewer images, or that something is wrong with them."""
    for cell in cells:
        of_seed = f" of seed {cell.fit.seed}" if len(seeds) > 1 else ""
        if partial := cell.outcome.details.get("partial"):
            yield f"{cell.metric}{of_seed}: {partial} so far; the same command goes on"
        for sentence in cell.outcome.details.get("suspicious", ()):
            yield f"{cell.metric}{of_seed} is suspicious: {sentence}"


class _Seed(NamedTuple):
    """What one seed gave for one column."""

    seed: int
    value: Value
    protocol: str


def _entry(cells: Sequence[Cell], column: Column, seeds: Sequence[int]) -> Entry:
    measured = [
        _Seed(cell.fit.seed, cell.outcome.values[column.label], cell.outcome.protocol)
        for cell in sorted(cells, key=lambda cell: cell.fit.seed)
        if cell.outcome.status == "ok" and column.label in cell.outcome.values
    ]
    known = {seed.seed for seed in measured}
    gaps = {cell.fit.seed: _gap(cell.outcome, column) for cell in cells if cell.fit.seed not in known}
    gaps |= {seed: _Gap("not run", "") for seed in seeds if seed not in {cell.fit.seed for cell in cells}}
    if measured:
        return _summary(measured, "; ".join(f"seed {seed} {gap}" for seed, gap in sorted(gaps.items())))
    worst = max((gap.status for gap in gaps.values()), key=_SEVERITY.index)
    reasons = {gap.reason for gap in gaps.values() if gap.status == worst}
    return Entry(status=worst, reason="; ".join(sorted(reasons - {""})))


_SEVERITY: tuple[EntryStatus, ...] = ("na", "not run", "failed")


class _Gap(NamedTuple):
    """Why a seed has no value."""

    status: EntryStatus
    reason: str

    def __str__(self) -> str:
        status = "N/A" if self.status == "na" else self.status
        return f"{status}: {self.reason}" if self.reason else status


def _gap(outcome: Outcome, column: Column) -> _Gap:
    if outcome.status == "ok":
        return _Gap("na", f"{column.metric} gives {', '.join(outcome.values) or 'nothing'} here, not {column.label}")
    return _Gap(outcome.status, outcome.reason)


def _summary(measured: Sequence[_Seed], gaps: str) -> Entry:
    protocols = list(dict.fromkeys(seed.protocol for seed in measured))
    if len(protocols) > 1:
        reason = f"measured under protocols that must not be averaged: {'; '.join(protocol_differences(protocols))}"
        return Entry(status="na", reason=reason)
    values = [seed.value for seed in measured]
    mean = _mean([value.value for value in values])
    several = len(values) > 1 and math.isfinite(mean)
    return Entry(
        status="ok",
        value=mean,
        low=_mean_if_all_known([value.low for value in values]),
        high=_mean_if_all_known([value.high for value in values]),
        sd=statistics.stdev(value.value for value in values) if several else None,
        n=min(value.n for value in values),
        protocol=protocols[0],
        seeds=tuple(seed.seed for seed in measured),
        reason=gaps,
    )


def protocol_differences(protocols: Sequence[str]) -> list[str]:
    """What is peculiar to each protocol: the arguments that differ, or the whole text where they are no specs."""
    try:
        parsed = [dict(spec.parse(protocol).arguments) for protocol in protocols]
    except SpecError:
        return list(protocols)
    keys = sorted({key for arguments in parsed for key in arguments})
    differing = [key for key in keys if len({arguments.get(key) for arguments in parsed}) > 1]
    if not differing:
        return list(protocols)
    return [", ".join(f"{key}={arguments.get(key, 'none')}" for key in differing) for arguments in parsed]


def _mean(values: Sequence[float]) -> float:
    """The mean; of values that are not all finite it is not finite, where ``statistics`` may raise."""
    return sum(values) / len(values)


def _mean_if_all_known(ends: Sequence[float | None]) -> float | None:
    known = [end for end in ends if end is not None]
    return _mean(known) if len(known) == len(ends) else None


def mark_incomparable(rows: Sequence[Row], columns: Sequence[Column]) -> tuple[Row, ...]:
    """Numbers on one dataset may stand in one column only if their protocols are the same.

    Those under another protocol than most rows have are marked; all are where there is no such majority.

    A model that draws its images directly has no chains to choose from: its samples stand beside the kept chains of
    others, as in Table 1 of the JEM paper, and a note says so.
    """
    protocols: dict[tuple[str, int], Counter[str]] = {}
    for row in rows:
        for index in range(len(columns)):
            if row.entries[index].status == "ok":
                protocols.setdefault((row.dataset, index), Counter())[_as_of_chains(row.entries[index])] += 1
    return tuple(
        replace(
            row,
            entries=tuple(
                replace(entry, comparable=entry.status != "ok" or _is_usual(entry, protocols[row.dataset, index]))
                for index, entry in enumerate(row.entries)
            ),
        )
        for row in rows
    )


def _as_of_chains(entry: Entry) -> str:
    return _DIRECT.sub(r"\1source=buffer\2", entry.protocol)


def _is_usual(entry: Entry, protocols: Counter[str]) -> bool:
    of_this = protocols[_as_of_chains(entry)]
    return all(of_this > of_other for protocol, of_other in protocols.items() if protocol != _as_of_chains(entry))


_DIRECT = re.compile(r"([:,])source=direct(,|$)")
_BUFFER = re.compile(r"[:,]source=buffer(,|$)")


def _how_drawn(row: Row, rows: Sequence[Row]) -> list[str]:
    """That a row's samples are drawn directly, where other rows on its dataset have those of chains."""
    if not any(_DIRECT.search(entry.protocol) for entry in row.entries):
        return []
    others = (entry for other in rows if other.dataset == row.dataset for entry in other.entries)
    chained = any(_BUFFER.search(entry.protocol) for entry in others)
    return ["its samples are drawn directly; those of the others are the chains that training kept"] if chained else []
