"""Tidy records: what each model has under each metric, over its seeds. Tables are queries over them.

A record is one value of one metric of one model (model x dataset x recipe), summarised over its seeds, or the reason
why there is none.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from jembench.interfaces import Value
from jembench.report.names import NO_NAMES, Names
from jembench.report.protocols import parsed, peculiarities
from jembench.report.references import Standing
from jembench.store.outcome import Cell, Outcome

Status = Literal["ok", "na", "failed", "not run"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A value over the seeds of a model, or why there is none. Its fields are the columns of the CSV.

    The interval is that of the test set (of the samples, of the timed iterations), its ends averaged over the seeds;
    ``sd`` is the standard deviation of the value over the seeds. The two answer different questions.
    """

    kind: Literal["measured", Standing] = "measured"
    model: str = ""
    printed_as: str = ""  #: the model: its display name, or its name in a published table
    dataset: str = ""
    recipe: str = ""
    metric: str = ""  #: canonical spec
    label: str = ""  #: of the metric's values
    status: Status
    value: float | None = None  #: the mean over the seeds
    low: float | None = None
    high: float | None = None
    sd: float | None = None  #: None: one seed
    n: int | None = None  #: of one seed; the least, should they differ
    seeds: tuple[int, ...] = ()  #: that gave the value
    unit: str = ""
    better: Literal["higher", "lower", ""] = ""
    protocol: str = ""
    comparable: bool | None = None  #: False: most models have another protocol in this column, or none is that of most
    reason: str = ""  #: why there is no value, or which seeds gave none
    source: str = ""
    notes: tuple[str, ...] = ()  #: what else a reader must know of the model


class Column(NamedTuple):
    """One value of one metric."""

    metric: str  #: canonical spec
    label: str
    unit: str = ""
    better: Literal["higher", "lower", ""] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A model trained on one dataset by one recipe, whatever the seed: what a row of a table is of."""

    model: str  # canonical spec
    dataset: str  # canonical spec
    recipe: str  # label
    printed_as: str = ""  # its display name, if it has one
    dataset_name: str  # what tables call the dataset
    cells: tuple[Cell, ...] = ()  # what was measured on it
    notes: tuple[str, ...] = ()  # what else a reader must know of it
    records: Mapping[Column, Record] = field(default_factory=dict)  # what is not asked for of it is missing

    @property
    def names(self) -> tuple[str, str, str]:
        """Return what cells and parts of a plan know it by, as the names of their fits."""
        return self.model, self.dataset, self.recipe

    @property
    def name(self) -> str:
        """Return what tables and figures call the model."""
        return self.printed_as or self.model

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds with any result."""
        return tuple(sorted({cell.fit.seed for cell in self.cells}))

    def __str__(self) -> str:
        return f"{self.model} on {self.dataset}, recipe {self.recipe}"

    def knows(self, column: Column) -> bool:
        """Return whether it was measured there, or it is known why there is no value."""
        record = self.records.get(column)
        return record is not None and record.status != "not run"

    def has(self, column: Column) -> bool:
        """Return whether it has a value there."""
        record = self.records.get(column)
        return record is not None and record.value is not None


def subjects(cells: Iterable[Cell], names: Names = NO_NAMES) -> list[Subject]:
    """Every model of some cells, in their order, with its display name."""
    found = []
    groups = grouped(cells, lambda cell: cell.fit.names)
    datasets = _dataset_names(cell for group in groups for cell in group)
    for group in groups:
        model, dataset, recipe = group[0].fit.names
        found.append(
            Subject(
                model=model,
                dataset=dataset,
                recipe=recipe,
                printed_as=names.get((model, recipe), ""),
                dataset_name=datasets[dataset],
                cells=tuple(group),
            )
        )
    return found


def _dataset_names(cells: Iterable[Cell]) -> dict[str, str]:
    """What tables call each dataset: what its results are filed under, or its spec where that is not one name or two
    datasets have it.
    """
    filed: dict[str, set[str]] = {}
    for dataset, protocol in {(cell.fit.dataset, cell.outcome.protocol) for cell in cells}:
        known = parsed(protocol)
        name = dict(known.arguments).get("data") if known else None
        filed.setdefault(dataset, set()).update([name] if name else [])
    names = {dataset: found.pop() if len(found) == 1 else dataset for dataset, found in filed.items()}
    taken = Counter(names.values())
    return {dataset: name if taken[name] == 1 else dataset for dataset, name in names.items()}


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """The items with the same key together, in the order in which they first come."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


# --- from cells -------------------------------------------------------------------------------------------------------


def columns_of(metric: str, cells: Iterable[Cell]) -> list[Column]:
    """A column for each value that a metric gave; one for the metric itself where it gave none."""
    found: dict[str, Value] = {}
    for cell in cells:
        for label, value in cell.outcome.values.items() if cell.outcome.status == "ok" else ():
            found.setdefault(label, value)
    return [Column(metric, label, value.unit, value.better) for label, value in found.items()] or [
        Column(metric, metric)
    ]


def record(cells: Sequence[Cell], column: Column, subject: Subject) -> Record:
    """Return what the cells of one metric of a model say of a column.

    Args:
        cells: at most one for each seed.
        column: one of the metric's values.
        subject: the model.
    """
    base = Record(
        model=subject.model,
        printed_as=subject.printed_as,
        dataset=subject.dataset,
        recipe=subject.recipe,
        notes=subject.notes,
        status="ok",
        comparable=True,
        **column._asdict(),
    )
    measured = {
        cell.fit.seed: cell
        for cell in sorted(cells, key=lambda cell: cell.fit.seed)
        if cell.outcome.status == "ok" and column.label in cell.outcome.values
    }
    gaps = {cell.fit.seed: _gap(cell.outcome, column) for cell in cells if cell.fit.seed not in measured}
    gaps |= {seed: _Gap("not run", "") for seed in subject.seeds if seed not in measured and seed not in gaps}
    if measured:
        reason = "; ".join(f"seed {seed} {gap}" for seed, gap in sorted(gaps.items()))
        return replace(base, **_summary(list(measured.values()), column.label, reason))
    worst = max((gap.status for gap in gaps.values()), key=_SEVERITY.index)
    reasons = {gap.reason for gap in gaps.values() if gap.status == worst}
    return replace(base, status=worst, reason="; ".join(sorted(reasons - {""})))


_SEVERITY: tuple[Status, ...] = ("na", "not run", "failed")


class _Gap(NamedTuple):
    """Why a seed has no value."""

    status: Status
    reason: str

    def __str__(self) -> str:
        status = "N/A" if self.status == "na" else self.status
        return f"{status}: {self.reason}" if self.reason else status


def _gap(outcome: Outcome, column: Column) -> _Gap:
    if outcome.status == "ok":
        return _Gap("na", f"{column.metric} gives {', '.join(outcome.values) or 'nothing'} here, not {column.label}")
    return _Gap(outcome.status, outcome.reason)


def _summary(cells: Sequence[Cell], label: str, gaps: str) -> dict[str, Any]:
    """The fields of a record that depend on what was measured."""
    protocols = list(dict.fromkeys(cell.outcome.protocol for cell in cells))
    if len(protocols) > 1:
        different = "; ".join(peculiarities(protocols))
        return {"status": "na", "reason": f"measured under protocols that must not be averaged: {different}"}
    values = [cell.outcome.values[label] for cell in cells]
    mean = mean_of(values)
    several = len(values) > 1 and math.isfinite(mean.value)
    return {
        "value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "sd": statistics.stdev(value.value for value in values) if several else None,
        "n": min(value.n for value in values),
        "protocol": protocols[0],
        "seeds": tuple(cell.fit.seed for cell in cells),
        "reason": gaps,
    }


def mean_of(values: Sequence[Value]) -> Value:
    """The mean of some values and that of either end of their intervals, None where one is not known.

    Of values that are not all finite it is not finite, where ``statistics`` may raise.
    """

    def mean(numbers: Sequence[float | None]) -> float | None:
        known = [number for number in numbers if number is not None]
        return sum(known) / len(known) if len(known) == len(numbers) else None

    low, high = mean([value.low for value in values]), mean([value.high for value in values])
    return values[0]._replace(value=sum(value.value for value in values) / len(values), low=low, high=high)


# --- protocols --------------------------------------------------------------------------------------------------------


def mark_incomparable(rows: Sequence[Subject]) -> list[Subject]:
    """Numbers on one dataset may stand in one column only if their protocols are the same.

    Those under another protocol than most models have are marked; all are where there is no such majority.

    A model that draws its images directly has no chains to choose from: its samples stand beside the kept chains of
    others, as in Table 1 of the JEM paper, and a note says so.
    """
    protocols: dict[tuple[str, Column], Counter[str]] = {}
    for row in rows:
        for column, found in row.records.items():
            if found.status == "ok":
                protocols.setdefault((row.dataset, column), Counter())[_as_of_chains(found)] += 1

    def marked(column: Column, found: Record) -> Record:
        usual = found.status != "ok" or _is_usual(found, protocols[found.dataset, column])
        return found if found.comparable == usual else replace(found, comparable=usual)

    return [replace(row, records={column: marked(column, r) for column, r in row.records.items()}) for row in rows]


def _as_of_chains(found: Record) -> str:
    return DIRECT.sub(r"\1source=buffer\2", found.protocol)


def _is_usual(found: Record, protocols: Counter[str]) -> bool:
    own = _as_of_chains(found)
    return all(protocols[own] > count for protocol, count in protocols.items() if protocol != own)


DIRECT = re.compile(r"([:,])source=direct(,|$)")
BUFFER = re.compile(r"[:,]source=buffer(,|$)")
"""In the protocol of samples that were drawn directly, and of samples that are chains of the replay buffer."""
