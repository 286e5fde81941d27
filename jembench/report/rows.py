"""Results as flat rows: values of seeds, or means over seeds.

Tables are pivots of these rows.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from jembench.catalog.spec import NO_SPEC, Spec
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report.headings import distinct, in_words, known_as, split
from jembench.report.protocols import parsed, parts_of, peculiarities
from jembench.report.select import T
from jembench.store.outcome import Cell, FitKey, Trained

Status = Literal["ok", "na", "failed", "not run"]
Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A metric's value on a model, or the reason why it is missing.

    Most of the fields are columns of the CSV.

    The interval is that of the test set or of the samples, its ends averaged over the seeds; ``sd``
    is the standard deviation of the value over the seeds. The two answer different questions.
    """

    model: Spec = NO_SPEC  #: canonical
    name: str  #: of the model: its display name, or its name in a published table
    dataset: Spec  #: canonical, or the name in a published table
    recipe: str = ""  #: label
    seeds: tuple[int, ...] = ()  #: the seed, or all seeds of the mean
    metric: Spec = NO_SPEC  #: canonical
    label: str = ""  #: of the value; "": the metric gave no value anywhere
    status: Status = "ok"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None  #: None: one seed
    n: int | None = None  #: of one seed; the least if seeds differ
    unit: str = ""
    better: Better = ""
    protocol: str = ""
    #: False: another protocol is as frequent in this column, or more
    comparable: bool | None = None
    reason: str = ""  #: why there is no value, which seeds gave none, or a remark on the value
    source: str = ""  #: of a published number; "": ours
    notes: tuple[str, ...] = ()  #: remarks on the model
    dataset_name: str = ""  #: for tables
    #: the value of guessing; None: not known, or not to be compared with
    chance: float | None = None
    headed: str = ""  #: the heading that the user or the suite gave the column
    cell: Cell | None = field(default=None, repr=False, compare=False)  #: the outcome, of a seed

    @property
    def fit(self) -> Trained:
        """Model, dataset and recipe."""
        return Trained(self.model, self.dataset, self.recipe)

    @property
    def place(self) -> tuple[Spec, str]:
        """The metric and the label: the column of a table."""
        return self.metric, self.label

    @property
    def column(self) -> str:
        """The name of the column: the label, or the metric."""
        return self.label or self.metric

    @property
    def heading(self) -> tuple[str, str]:
        """The heading of the column, and the feature network."""
        text, network = split(self.label or self.metric.bare)
        if self.headed:
            return (self.headed, "")
        return (in_words(text), in_words(network))

    @property
    def options(self) -> dict[str, str]:
        """The metric's options that are not at their defaults."""
        return dict(self.metric.options)

    @property
    def at_chance(self) -> str:
        """A remark on a value that is at chance, or ""."""
        if self.chance is None or self.low is None or self.low > self.chance:
            return ""
        guessing = f"the {self.chance:.3g} {self.unit} of guessing"
        return f"at chance: not above {guessing}, by the 95 % interval"

    def as_dict(self) -> dict[str, Any]:
        """Return the row for programs.

        The row of a seed also has the fields of ``ORIGIN``.
        """
        flat = {name: getattr(self, name) for name in FIELDS} | {"notes": "; ".join(self.notes)}
        if self.cell is None:
            return flat
        cell, fit, outcome = self.cell, self.cell.fit, self.cell.outcome
        passes = cell.provenance.get("training_passes"), outcome.details.get("sample_passes")
        place = fit.seed, cell.limit, cell.split, fit.id, cell.id
        origin = (*place, cell.time, outcome.seconds, *passes)
        return flat | dict(zip(ORIGIN, origin, strict=True))


_INTERNAL = ("cell", "dataset_name", "chance", "headed")

FIELDS = tuple(field.name for field in fields(Row) if field.name not in _INTERNAL)
"""The columns of the CSV."""

ORIGIN = (
    "seed",
    "limit",
    "split",
    "fit",
    "cell",
    "time",
    "seconds",
    "training_passes",
    "sample_passes",
)
"""Further columns of the CSV of seeds."""

BySeed = Mapping[int, Row]
"""One value of a metric on a model, by seed."""


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Group items by keys, in order of first appearance."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def measured(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that have a value."""
    return [row for row in rows if row.value is not None]


def values_of(rows: Iterable[Row]) -> list[float]:
    """Return the values of the rows that have one."""
    return [row.value for row in rows if row.value is not None]


# --- from cells -----------------------------------------------------------------------------------


def rows(cells: Iterable[Cell], names: DisplayNames = NO_NAMES) -> list[Row]:
    """Return the values of cells, a row each.

    A cell without values has rows as :func:`spread` makes them.

    Args:
        cells: in the order of the rows.
        names: display names by canonical specs and recipes.
    """
    cells = list(cells)
    datasets = _dataset_names(cells)
    values: list[Row] = []
    for cell in cells:
        values += _of_cell(cell, names, datasets[cell.fit.dataset])
    return [headed(row, names) for row in spread(values, lambda row: row.metric)]


def _of_cell(cell: Cell, names: DisplayNames, dataset_name: str) -> Iterator[Row]:
    """Yield a row per value of a cell, or its reason."""
    fit, outcome = cell.fit, cell.outcome
    name = names.model(fit.model, fit.recipe)
    remarks = [outcome.reason]
    partial = outcome.details.get("partial")
    if partial:
        remarks.append(f"{partial} so far; the same command goes on")
    for sentence in outcome.details.get("suspicious", ()):
        remarks.append(f"suspicious: {sentence}")
    base = Row(
        model=fit.model,
        name=name,
        dataset=fit.dataset,
        recipe=fit.recipe,
        seeds=(fit.seed,),
        metric=cell.metric,
        status=outcome.status,
        protocol=outcome.protocol,
        reason=joined(remarks),
        notes=(*_added(fit, name), *_training(cell), *_outputs(cell)),
        dataset_name=dataset_name,
        chance=outcome.details.get("chance"),
        cell=cell,
    )
    if outcome.status != "ok":
        yield base
        return
    for label, value in outcome.values.items():
        yield replace(base, label=label, **value._asdict())
    for label, reason in outcome.details.get("undefined", {}).items():
        yield replace(base, label=label, status="na", reason=reason)


def joined(texts: Iterable[str]) -> str:
    """Return the texts that are not empty as one."""
    return "; ".join(text for text in texts if text)


def spread(rows: Sequence[Row], like: Callable[[Row], Hashable]) -> list[Row]:
    """Spread rows without a value over the labels of their column.

    Args:
        rows: with and without values.
        like: a function from a row to a key; rows without a value take the labels of values with
            the same key.
    """
    columns: dict[Hashable, dict[str, Row]] = {}
    for row in measured(rows):
        columns.setdefault(like(row), {}).setdefault(row.label, row)
    spread_rows: list[Row] = []
    for row in rows:
        by_label = columns.get(like(row), {})
        labels = [row.label] if row.label else list(by_label)
        if row.value is not None or by_label.keys().isdisjoint(labels):
            spread_rows.append(row)
            continue
        for label in labels:
            column = by_label[label]
            unit, better, headed = column.unit, column.better, column.headed
            of_label = replace(row, label=label, unit=unit, better=better, headed=headed)
            spread_rows.append(of_label)
    return spread_rows


def headed(row: Row, names: DisplayNames) -> Row:
    """Return a row with the heading that the names give its column."""
    for text in known_as(row.metric, row.label):
        if names.headings.get(text):
            return replace(row, headed=names.headings[text])
    return replace(row, headed="")


def _dataset_names(cells: Iterable[Cell]) -> dict[str, str]:
    """Return the names of datasets in protocols, or specs where ambiguous."""
    in_protocols: dict[Spec, set[str]] = {}
    for dataset, protocol in {(cell.fit.dataset, cell.outcome.protocol) for cell in cells}:
        names = in_protocols.setdefault(dataset, set())
        name = parts_of(protocol).get("data")
        if name:
            names.add(name)
    short: dict[str, str] = {}
    for dataset, names in in_protocols.items():
        short[dataset] = names.pop() if len(names) == 1 else dataset
    return distinct(short)


def _added(fit: FitKey, name: str) -> Iterator[str]:
    """Yield the recipe's options that the name of a model lacks."""
    named, whole = parsed(name), fit.model
    if named is None or named.name != whole.name:
        return
    added = sorted(whole.options.items() - named.options.items())
    if added:
        options = ", ".join(map("=".join, added))
        yield f"added by the recipe {fit.recipe}: {options}"


def _training(cell: Cell) -> Iterator[str]:
    """Yield what a training started from, and how it diverged."""
    training, record = f"training of seed {cell.fit.seed}", cell.provenance
    start = record.get("started_from")
    if start:
        source = start["model"].removesuffix(f", seed {cell.fit.seed}")
        not_included = "hours and passes do not include those of that training"
        yield f"training started from the weights of {source}; {not_included}"
    repairs, stability = record.get("interventions"), record.get("stability") or {}
    iteration, ended_with = stability.get("diverged_at"), stability.get("ended_with")
    if repairs:
        if ended_with:
            repairs = [*repairs, f"it ended with {ended_with}"]
        yield f"{training} diverged and was repaired {'; '.join(repairs)}"
    elif iteration is not None:
        when = f"at iteration {iteration} ({stability['reason']})"
        yield f"{training} diverged {when} and was not repaired"


def _outputs(cell: Cell) -> Iterator[str]:
    """Yield remarks on random or dependent outputs of the model."""
    yield from cell.provenance.get("outputs", ())


# --- over seeds -----------------------------------------------------------------------------------

_SEVERITY: tuple[Status, ...] = ("na", "not run", "failed")


def mean(rows: Iterable[Row]) -> list[Row]:
    """Return means over seeds, in order of first appearance."""
    groups = grouped(rows, lambda row: (row.fit, row.place))
    seeds: dict[Trained, set[int]] = {}
    for group in groups:
        for row in group:
            seeds.setdefault(row.fit, set()).update(row.seeds)
    means = []
    for group in groups:
        in_order = sorted(group, key=lambda row: row.seeds)
        means.append(_mean(in_order, sorted(seeds[group[0].fit])))
    return means


class _Gap(NamedTuple):
    """The reason why a seed has no value."""

    status: Status
    reason: str = ""

    def __str__(self) -> str:
        word = "N/A" if self.status == "na" else self.status
        if self.reason:
            return f"{word}: {self.reason}"
        return word


def _mean(group: Sequence[Row], seeds: Sequence[int]) -> Row:
    """Return the mean over seeds, or why there is none."""
    gaps = dict.fromkeys(seeds, _Gap("not run"))
    notes: dict[str, None] = {}
    for row in group:
        gaps[row.seeds[0]] = _Gap(row.status, row.reason)
        notes |= dict.fromkeys(row.notes)
    valued = measured(group)
    for row in valued:
        gaps.pop(row.seeds[0], None)
    base = replace((valued or group)[0], seeds=tuple(seeds), notes=tuple(notes), cell=None)
    if not valued:
        worst = max(gaps.values(), key=lambda gap: _SEVERITY.index(gap.status)).status
        reasons = {gap.reason for gap in gaps.values() if gap.status == worst}
        return replace(base, status=worst, reason=joined(sorted(reasons)))

    base = replace(base, seeds=tuple(row.seeds[0] for row in valued))
    protocols = list(dict.fromkeys(row.protocol for row in valued))
    if len(protocols) > 1:
        differing = "; ".join(peculiarities(protocols))
        reason = f"measured under protocols that must not be averaged: {differing}"
        return replace(
            base, status="na", value=None, low=None, high=None, n=None, protocol="", reason=reason
        )
    value, low, high = mean_of(valued)
    deviation = None
    if len(valued) > 1 and math.isfinite(value):
        deviation = statistics.stdev(values_of(valued))
    return replace(
        base,
        value=value,
        low=low,
        high=high,
        sd=deviation,
        n=min(row.n or 0 for row in valued),
        reason=_of_seeds(valued, gaps, name_seeds=len(seeds) > 1),
    )


def _of_seeds(rows: Iterable[Row], gaps: Mapping[int, _Gap], *, name_seeds: bool) -> str:
    """Return the remarks on seeds, and why some are missing."""
    remarks = {row.seeds[0]: row.reason for row in rows if row.reason}
    remarks |= {seed: str(gap) for seed, gap in gaps.items()}
    if not name_seeds:
        return "; ".join(remarks.values())
    return "; ".join(f"seed {seed} {text}" for seed, text in sorted(remarks.items()))


class Mean(NamedTuple):
    """The means of values and of the ends of their intervals."""

    value: float
    low: float | None  # None: an interval is missing
    high: float | None


def mean_of(rows: Sequence[Row]) -> Mean:
    """Return the means of values and of intervals' ends.

    The mean of values that are not all finite is not finite; ``statistics`` might raise.
    """
    values = values_of(rows)
    low = _mean_if_all([row.low for row in rows])
    high = _mean_if_all([row.high for row in rows])
    return Mean(sum(values) / len(values), low, high)


def _mean_if_all(ends: Sequence[float | None]) -> float | None:
    """Return the mean of the ends of intervals; None if one is missing."""
    present = [end for end in ends if end is not None]
    if len(present) < len(ends):
        return None
    return sum(present) / len(present)


def sides(rows: Iterable[Row]) -> dict[tuple[Trained, Spec, str], BySeed]:
    """Return the values of seeds by fit, metric and label."""
    by_place: dict[tuple[Trained, Spec, str], dict[int, Row]] = {}
    for row in measured(rows):
        by_place.setdefault((row.fit, *row.place), {})[row.seeds[0]] = row
    return dict(by_place)


def mark_chance(rows: Iterable[Row]) -> list[Row]:
    """Add the remark on values that are at chance to their reasons."""
    return [replace(row, reason=joined((row.reason, row.at_chance))) for row in rows]


# --- protocols ------------------------------------------------------------------------------------

_DIRECT = re.compile(r"([:,])source=direct(,|$)")
_BUFFER = re.compile(r"[:,]source=buffer(,|$)")


def mark_incomparable(rows: Sequence[Row]) -> list[Row]:
    """Mark values whose protocol is not the most frequent in their column.

    In a tie, all are marked. Samples that a model draws directly count as kept chains, as in Table
    1 of the JEM paper, with a remark: such a model has no chains to choose from.
    """
    protocols: dict[Hashable, list[str]] = {}
    for row in measured(rows):
        protocols.setdefault((row.dataset, row.place), []).append(row.protocol)
    return [_marked(row, protocols.get((row.dataset, row.place), ())) for row in rows]


def _marked(row: Row, protocols: Sequence[str]) -> Row:
    """Return a row that says whether its protocol is the most frequent."""
    if row.value is None:
        return row
    counts = Counter(map(_like_kept_chains, protocols))
    own = counts.pop(_like_kept_chains(row.protocol))
    remark = ""
    if _DIRECT.search(row.protocol) and any(map(_BUFFER.search, protocols)):
        remark = "drawn directly; the samples of others are the chains that training kept"
    return replace(
        row,
        comparable=own > max(counts.values(), default=0),
        reason=joined((row.reason, remark)),
    )


def _like_kept_chains(protocol: str) -> str:
    """Return a protocol of direct samples as one of kept chains."""
    return _DIRECT.sub(r"\1source=buffer\2", protocol)
