"""Results as flat rows: one value of one metric, of a seed or as the mean over seeds. Tables are
pivots of them.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from jembench.catalog import spec
from jembench.experiment.names import NO_NAMES, Fit, Names
from jembench.experiment.sweep import bare_name
from jembench.report.headings import distinct, in_words, known_as, split
from jembench.report.protocols import parsed, peculiarities
from jembench.report.select import T
from jembench.store.outcome import Cell, FitKey

Status = Literal["ok", "na", "failed", "not run"]
Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A value of a metric on a model, or why there is none. Its fields are the columns of the CSV.

    The interval is that of the test set or of the samples, its ends averaged over the seeds; ``sd``
    is the standard deviation of the value over the seeds. The two answer different questions.
    """

    model: str = ""  #: canonical spec
    name: str  #: of the model: its display name, or its name in a published table
    dataset: str  #: canonical spec
    recipe: str = ""  #: label
    seeds: tuple[int, ...] = ()  #: one, or those that the mean is of
    metric: str = ""  #: canonical spec
    label: str = ""  #: of the metric's values; "": it gave none anywhere
    status: Status = "ok"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None  #: None: one seed
    n: int | None = None  #: of one seed; the least, should they differ
    unit: str = ""
    better: Better = ""
    protocol: str = ""
    #: False: most models have another protocol in this column, or none is that of most
    comparable: bool | None = None
    reason: str = ""  #: why there is no value, which seeds gave none, or a remark on the value
    source: str = ""  #: of a published number; "": it is ours
    notes: tuple[str, ...] = ()  #: remarks on the model
    dataset_name: str = ""  #: for tables
    #: the value of guessing; None: not known, or not to be compared with
    chance: float | None = None
    headed: str = ""  #: the heading that its column was given
    cell: Cell | None = field(default=None, repr=False, compare=False)  #: the outcome, of one seed

    @property
    def fit(self) -> Fit:
        """Model, dataset and recipe."""
        return self.model, self.dataset, self.recipe

    @property
    def place(self) -> tuple[str, str]:
        """The metric and the label: the column of a table."""
        return self.metric, self.label

    @property
    def column(self) -> str:
        """The name of its column: the label, or the metric where there is none."""
        return self.label or self.metric

    @property
    def heading(self) -> tuple[str, str]:
        """The heading of its column in words, and the feature network that belongs to it, if any."""
        text, network = split(self.label or bare_name(self.metric))
        return (self.headed, "") if self.headed else (in_words(text), in_words(network))

    @property
    def options(self) -> dict[str, str]:
        """The options of the metric that are not at their defaults."""
        return dict(spec.parse(self.metric).arguments)

    @property
    def at_chance(self) -> str:
        """A remark on a value whose interval is not above the value of guessing; "": it is, or none
        is known.
        """
        if self.chance is None or self.low is None or self.low > self.chance:
            return ""
        return f"at chance: not above the {self.chance:.3g} {self.unit} of guessing, by the 95 % interval"

    def as_dict(self) -> dict[str, Any]:
        """Return the row for programs; that of a seed also says where it comes from."""
        flat = {name: getattr(self, name) for name in FIELDS} | {"notes": "; ".join(self.notes)}
        if self.cell is None:
            return flat
        cell, fit, outcome = self.cell, self.cell.fit, self.cell.outcome
        passes = cell.provenance.get("training_passes"), outcome.details.get("sample_passes")
        origin = (fit.seed, cell.limit, fit.id, cell.id, cell.time, outcome.seconds, *passes)
        return flat | dict(zip(ORIGIN, origin, strict=True))


FIELDS = tuple(
    one.name for one in fields(Row) if one.name not in ("cell", "dataset_name", "chance", "headed")
)
"""The columns of the CSV."""

ORIGIN = ("seed", "limit", "fit", "cell", "time", "seconds", "training_passes", "sample_passes")
"""Further columns of the CSV of seeds."""

BySeed = Mapping[int, Row]
"""One value of a metric on a model, by seed."""


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Group items with the same key, in the order in which they first come."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


# --- from cells
# -------------------------------------------------------------------------------------------------------


def rows(cells: Iterable[Cell], names: Names = NO_NAMES) -> list[Row]:
    """Return the values of cells, a row each; a cell without values has rows as :func:`spread`
    makes them.

    Args:
        cells: in the order of the rows.
        names: display names by canonical specs and recipes.
    """
    cells = list(cells)
    datasets = _dataset_names(cells)
    found = []
    for cell in cells:
        fit, outcome = cell.fit, cell.outcome
        partial = outcome.details.get("partial")
        remarks = [
            outcome.reason,
            f"{partial} so far; the same command goes on" if partial else "",
            *(f"suspicious: {sentence}" for sentence in outcome.details.get("suspicious", ())),
        ]
        base = Row(
            model=fit.model,
            name=(name := names.get((fit.model, fit.recipe), fit.model)),
            dataset=fit.dataset,
            recipe=fit.recipe,
            seeds=(fit.seed,),
            metric=cell.metric,
            status=outcome.status,
            protocol=outcome.protocol,
            reason="; ".join(filter(None, remarks)),
            notes=(*_added(fit, name), *_training(cell), *_outputs(cell)),
            dataset_name=datasets[fit.dataset],
            chance=outcome.details.get("chance"),
            cell=cell,
        )
        if outcome.status == "ok":
            found += [
                replace(base, label=label, **value._asdict())
                for label, value in outcome.values.items()
            ]
            undefined = outcome.details.get("undefined", {})
            found += [
                replace(base, label=label, status="na", reason=reason)
                for label, reason in undefined.items()
            ]
        else:
            found.append(base)
    return [headed(row, names) for row in spread(found, lambda row: row.metric)]


_COLUMN = ("label", "unit", "better", "headed")
"""The fields of a row that are of its column."""


def spread(rows: Sequence[Row], like: Callable[[Row], Hashable]) -> list[Row]:
    """Return rows in which one without a value stands under its label, or under all labels of the
    values like it.
    """
    labels: dict[Hashable, dict[str, Row]] = {}
    for row in rows:
        if row.value is not None:
            labels.setdefault(like(row), {}).setdefault(row.label, row)
    found = []
    for row in rows:
        known = labels.get(like(row), {}) if row.value is None else {}
        own = {row.label} & known.keys() if row.label else known
        columns = ({name: getattr(known[label], name) for name in _COLUMN} for label in own)
        found += [replace(row, **column) for column in columns] or [row]
    return found


def headed(row: Row, names: Names) -> Row:
    """Return a row with the heading that the names give its column."""
    given = (names.get(("", text), "") for text in known_as(row.metric, row.label))
    return replace(row, headed=next(filter(None, given), ""))


def _dataset_names(cells: Iterable[Cell]) -> dict[str, str]:
    """Return for each dataset the name in its protocols, or its spec where that is not one name of
    its own.
    """
    filed: dict[str, set[str]] = {}
    for dataset, protocol in {(cell.fit.dataset, cell.outcome.protocol) for cell in cells}:
        known = parsed(protocol)
        name = dict(known.arguments).get("data") if known else None
        filed.setdefault(dataset, set()).update([name] if name else [])
    return distinct(
        {dataset: found.pop() if len(found) == 1 else dataset for dataset, found in filed.items()}
    )


def _added(fit: FitKey, name: str) -> Iterator[str]:
    """Yield the options that the recipe added to a model, if its display name is its spec without
    them.
    """
    named, whole = parsed(name), spec.parse(fit.model)
    if (
        named
        and named.name == whole.name
        and (added := sorted({*whole.arguments} - {*named.arguments}))
    ):
        yield f"added by the recipe {fit.recipe}: {', '.join(f'{key}={value}' for key, value in added)}"


def _training(cell: Cell) -> Iterator[str]:
    """Yield what a training started from, how it diverged, and what was done about it."""
    training, made = f"training of seed {cell.fit.seed}", cell.provenance
    if start := made.get("started_from"):
        other = start["model"].removesuffix(f", seed {cell.fit.seed}")
        yield f"training started from the weights of {other}; hours and passes do not include those of that training"
    repairs, stability = made.get("interventions"), made.get("stability") or {}
    if repairs:
        end = f"; it ended with {ended_with}" if (ended_with := stability.get("ended_with")) else ""
        yield f"{training} diverged and was repaired {'; '.join(repairs)}{end}"
    elif (iteration := stability.get("diverged_at")) is not None:
        yield f"{training} diverged at iteration {iteration} ({stability['reason']}) and was not repaired"


def _outputs(cell: Cell) -> Iterator[str]:
    """Yield the remarks on outputs of the model that are random or depend on other images."""
    yield from cell.provenance.get("outputs", ())


# --- over seeds
# -------------------------------------------------------------------------------------------------------

_SEVERITY: tuple[Status, ...] = ("na", "not run", "failed")


def mean(rows: Iterable[Row]) -> list[Row]:
    """Return the mean over the seeds of each value, in the order in which values first come."""
    groups = grouped(rows, lambda row: (row.fit, row.place))
    seeds: dict[Fit, set[int]] = {}
    for group in groups:
        seeds.setdefault(group[0].fit, set()).update(row.seeds[0] for row in group)
    return [
        _mean(sorted(group, key=lambda row: row.seeds), seeds[group[0].fit]) for group in groups
    ]


def _mean(group: Sequence[Row], seeds: set[int]) -> Row:
    measured = [row for row in group if row.value is not None]
    gaps = {row.seeds[0]: (row.status, row.reason) for row in group if row.value is None}
    gaps |= dict.fromkeys(seeds - {row.seeds[0] for row in group}, ("not run", ""))
    of_all = tuple(row.seeds[0] for row in measured) or tuple(sorted(seeds))
    base = replace(
        (measured or group)[0],
        seeds=of_all,
        notes=tuple(dict.fromkeys(note for row in group for note in row.notes)),
        cell=None,
    )
    if not measured:
        worst = max((status for status, _ in gaps.values()), key=_SEVERITY.index)
        reasons = {reason for status, reason in gaps.values() if status == worst}
        return replace(base, status=worst, reason="; ".join(sorted(reasons - {""})))
    protocols = list(dict.fromkeys(row.protocol for row in measured))
    if len(protocols) > 1:
        reason = f"measured under protocols that must not be averaged: {'; '.join(peculiarities(protocols))}"
        return replace(
            base, status="na", value=None, low=None, high=None, n=None, protocol="", reason=reason
        )
    value, low, high = mean_of(measured)
    several = len(measured) > 1 and math.isfinite(value)
    remarks = {row.seeds[0]: row.reason for row in measured if row.reason}
    for seed, (status, reason) in gaps.items():
        remarks[seed] = ": ".join(filter(None, ("N/A" if status == "na" else status, reason)))
    return replace(
        base,
        value=value,
        low=low,
        high=high,
        sd=statistics.stdev(row.value for row in measured if row.value is not None)
        if several
        else None,
        n=min(row.n or 0 for row in measured),
        reason="; ".join(
            f"seed {seed} {text}" if len(seeds) > 1 else text
            for seed, text in sorted(remarks.items())
        ),
    )


def mean_of(rows: Sequence[Row]) -> tuple[float, float | None, float | None]:
    """Return the mean of some values and of either end of their intervals, None where one is not
    known.

    Of values that are not all finite it is not finite, where ``statistics`` may raise.
    """
    values = [row.value for row in rows if row.value is not None]
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    low = sum(lows) / len(lows) if len(lows) == len(rows) else None
    high = sum(highs) / len(highs) if len(highs) == len(rows) else None
    return sum(values) / len(values), low, high


def sides(rows: Iterable[Row]) -> dict[tuple[Fit, str, str], BySeed]:
    """Return the values of seeds by fit, metric and label."""
    found: dict[tuple[Fit, str, str], dict[int, Row]] = {}
    for row in rows:
        if row.value is not None:
            found.setdefault((row.fit, *row.place), {})[row.seeds[0]] = row
    return dict(found)


def mark_chance(rows: Iterable[Row]) -> list[Row]:
    """Add the remark on values that are at chance to their reasons."""
    return [
        replace(row, reason="; ".join(filter(None, (row.reason, row.at_chance)))) for row in rows
    ]


# --- protocols
# --------------------------------------------------------------------------------------------------------

_DIRECT = re.compile(r"([:,])source=direct(,|$)")
_BUFFER = re.compile(r"[:,]source=buffer(,|$)")


def mark_incomparable(rows: Sequence[Row]) -> list[Row]:
    """Mark the values of a column on one dataset that are of another protocol than most; all,
    without a majority.

    Samples that a model draws directly stand beside the kept chains of others, as in Table 1 of the
    JEM paper, with a remark: such a model has no chains to choose from.
    """
    measured = grouped(
        (row for row in rows if row.value is not None), lambda row: (row.dataset, row.place)
    )
    columns = {
        (column[0].dataset, column[0].place): [row.protocol for row in column]
        for column in measured
    }
    return [
        row if row.value is None else _marked(row, columns[row.dataset, row.place]) for row in rows
    ]


def _marked(row: Row, protocols: Sequence[str]) -> Row:
    """Return a row that says whether its protocol is that of most among those of its column."""
    counts = Counter(map(_like_kept_chains, protocols))
    own = counts.pop(_like_kept_chains(row.protocol))
    is_direct = _DIRECT.search(row.protocol) and any(map(_BUFFER.search, protocols))
    remarks = (
        row.reason,
        "drawn directly; the samples of others are the chains that training kept" * bool(is_direct),
    )
    return replace(
        row,
        comparable=own > max(counts.values(), default=0),
        reason="; ".join(filter(None, remarks)),
    )


def _like_kept_chains(protocol: str) -> str:
    """Return a protocol of direct samples as one of kept chains."""
    return _DIRECT.sub(r"\1source=buffer\2", protocol)
