"""Compare two trained models: the difference of each value, its intervals and its p values.

Two sources of randomness are kept apart. *Test images*: a bootstrap in which both models see the same resamples of the
images, their values averaged over the seeds that both have. *Training*: Student's t over the differences of those
seeds. The p value of a difference is the larger of the two, adjusted by Holm for the number of values compared.

Legend: N images, R resamples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import registry, trust
from jembench.catalog.spec import stable_hash
from jembench.errors import JembenchError, Unavailable
from jembench.interfaces import Resampling
from jembench.interfaces.metrics import Resampled
from jembench.report.protocols import peculiarities
from jembench.report.rows import Row, Side, grouped, mean_of, sides
from jembench.report.select import T
from jembench.stats import paired
from jembench.store.outcome import Cell

Read = Callable[[Cell], Mapping[str, NDArray[Any]]]
"""A cell's per-example values, from the store."""

LEVEL = 0.05
"""A p value below it counts."""

SEEDS = 3
"""The fewest seeds from which a difference is tested over training; two leave one degree of freedom."""

RESAMPLES = 10_000
RESAMPLES_OF_BEST = 2_000
"""They allow p values down to 1/2001: of up to 100 columns the best can be found."""
PILOT = 1_000
"""The size of a first bootstrap. It suffices for a p value above ``HOPELESS``; more would not bring it to the level."""
HOPELESS = 0.2

Test = Literal["McNemar", "paired bootstrap", "bootstrap", "intervals"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One value of two models, or of a model and a number: a - b, the mean over the seeds of both.

    Its fields are the columns of the CSV. ``images``: the 95 % interval and the p value on other test images;
    ``training``: the same if the models were trained again.
    """

    metric: str
    label: str = ""
    unit: str = ""
    better: Literal["higher", "lower", ""] = ""
    model_a: str
    model_b: str | None = None  # None: a number
    dataset: str | None = None
    recipe_a: str | None = None
    recipe_b: str | None = None
    seeds: tuple[int, ...] = ()
    a: float | None = None  # None: not comparable, or no seed in common
    b: float | None = None
    difference: float | None = None
    images_low: float | None = None
    images_high: float | None = None
    images_p: float | None = None
    images_test: Test | None = None
    training_low: float | None = None
    training_high: float | None = None
    training_p: float | None = None
    p: float | None = None  # after Holm
    verdict: str = "not testable"
    reason: str = ""  # why it is not testable
    protocols: tuple[str, ...] = ()  # more than one: not comparable

    @property
    def larger_p(self) -> float | None:
        """The larger p value of both sources of randomness, before Holm; None if neither is known."""
        return max((p for p in (self.images_p, self.training_p) if p is not None), default=None)


class Comparison(NamedTuple):
    """Every value of two models."""

    a: Row  # any of the model
    b: Row
    rows: tuple[Difference, ...]
    resamples: int

    @property
    def names(self) -> tuple[str, str]:
        """The names of the models or, where these are the same, of their recipes."""
        return (self.a.name, self.b.name) if self.a.name != self.b.name else (self.a.recipe, self.b.recipe)


# --- all values of two models -----------------------------------------------------------------------------------------


def compare(a: Sequence[Row], b: Sequence[Row], read: Read, resamples: int = RESAMPLES) -> Comparison:
    """Compare every value that two models have under the same options of a metric.

    Args:
        a: the values of each seed of a model.
        b: the same of the other model, on the same dataset.
        read: gives a cell's per-example values.
        resamples: R.
    """
    ours, theirs = ({key[1:]: side for key, side in sides(rows).items()} for rows in (a, b))
    tested = [_row(side, theirs[place], read, resamples) for place, side in ours.items() if place in theirs]
    found, judged = Comparison(a[0], b[0], (), resamples), []
    for row in adjusted(tested):
        a_wins = ((row.difference or 0.0) > 0) == (row.better != "lower")
        better = f"{found.names[not a_wins]} {'better' if row.better else 'higher'}"
        judged.append(replace(row, verdict=conclusion(row, better, better)))
    return found._replace(rows=tuple(judged))


def _row(a: Side, b: Side, read: Read, resamples: int) -> Difference:
    row = described(a, b)
    if not common_seeds(a, b):
        of_a, of_b = (", ".join(map(str, sorted(side))) for side in (a, b))
        return replace(row, reason=f"no seed in common: {of_a} and {of_b}")
    if len(row.protocols) > 1:
        return not_comparable(row, row.protocols)
    return contrast(a, b, read, resamples=resamples)


def conclusion(row: Difference, found: str, tendency: str) -> str:
    """Return the verdict on a difference; of one that was not tested, the verdict that it has.

    Args:
        row: with its p value after Holm.
        found: the verdict where the difference counts.
        tendency: in its place where it counts on other images, but no other training was tested.
    """
    if row.p is None:
        return row.verdict
    if row.p >= LEVEL:
        return "no difference seen"
    return found if row.training_p is not None else f"{('one seed', 'two seeds')[len(row.seeds) > 1]} only ({tendency})"


def adjusted(rows: Iterable[Difference]) -> list[Difference]:
    """Return each difference with its p value after Holm; what was not tested has None and is not counted."""
    given = list(rows)
    after = iter(paired.holm([row.larger_p for row in given if row.larger_p is not None]))
    return [row if row.larger_p is None else replace(row, p=next(after)) for row in given]


class Significance:
    """Tests of the differences between the values of a column.

    Args:
        seeds: the values of each seed.
        read: gives a cell's per-example values.
    """

    def __init__(self, seeds: Iterable[Row], read: Read) -> None:
        self._known, self._read = sides(seeds), read
        self._tested: dict[tuple[Row, Row], Difference | None] = {}

    def test(self, a: Row, b: Row) -> Difference | None:
        """Test the difference of two means over seeds; None: it cannot be tested over test images."""
        if (a, b) not in self._tested:
            first, second = (self._known.get((row.fit, *row.place), {}) for row in (a, b))
            measured = all(row.cell for row in (*first.values(), *second.values()))
            read = self._read if measured else None  # a mean over sets has no cell
            seeds = common_seeds(first, second)
            found = contrast(first, second, read, resamples=RESAMPLES_OF_BEST) if seeds else None
            found = found if found and found.images_p is not None else None
            self._tested[a, b] = found
            self._tested[b, a] = found and replace(found, difference=-(found.difference or 0.0))
        return self._tested[a, b]

    def is_better(self, a: Row, b: Row, among: int = 1) -> bool | None:
        """Return if a mean over seeds is significantly better than another one, as the first of ``among`` tests.

        None: the difference cannot be tested.
        """
        found = self.test(a, b)
        p = found.larger_p if found else None
        return None if found is None or p is None else _counts(found, p * among)

    def best(self, rows: Iterable[Row]) -> set[Row]:
        """Find the values that are better than the runner-up of their column and dataset.

        The p values are adjusted by Holm for the columns in which there are two values to test.

        Args:
            rows: means over seeds.
        """
        tested = {first: self.test(first, second) for first, second, *_ in _ranked(rows)}
        return {row for row, found in self._adjusted(tested).items() if found}

    def leaders(self, rows: Iterable[Row]) -> list[list[Row]]:
        """Return the best value of each column and dataset, followed by those that are not significantly worse.

        The p values are adjusted by Holm for all comparisons. A value that cannot be tested counts as not worse.

        Args:
            rows: means over seeds.
        """
        ranked = _ranked(rows)
        tested = {(first, other): self.test(first, other) for first, *others in ranked for other in others}
        worse = self._adjusted(tested)
        return [[first, *(other for other in others if not worse.get((first, other)))] for first, *others in ranked]

    @staticmethod
    def _adjusted(tested: Mapping[T, Difference | None]) -> dict[T, bool]:
        """Return for each difference that was tested if it counts after Holm's adjustment."""
        found = {key: one for key, one in tested.items() if one}
        return {key: _counts(one, one.p) for key, one in zip(found, adjusted(found.values()), strict=True)}


def _counts(row: Difference, p: float | None) -> bool:
    """Return if the first value is better than the second by a p value, of the row or adjusted."""
    by = row.difference or 0.0
    return p is not None and p < LEVEL and by != 0 and (by > 0) == (row.better == "higher")


def _ranked(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the comparable values of each column and dataset with two or more of them, the best first."""
    valued = (row for row in rows if row.value is not None and row.comparable and row.better)
    columns = grouped(valued, lambda row: (row.dataset, row.place))
    return [
        sorted(column, key=lambda row: row.value or 0.0, reverse=column[0].better == "higher")
        for column in columns
        if len(column) > 1
    ]


# --- one value --------------------------------------------------------------------------------------------------------


def common_seeds(a: Side, b: Side | float) -> tuple[int, ...]:
    """Return the seeds that both have a value of; a number has every seed."""
    return tuple(sorted(a.keys() if isinstance(b, float) else a.keys() & b.keys()))


def described(a: Side, b: Side | float) -> Difference:
    """Return the row of a comparison before it is tested."""
    both = [a] if isinstance(b, float) else [a, b]
    (first, *_), (second, *_) = (list(side.values()) for side in (both[0], both[-1]))
    seeds = common_seeds(a, b)
    return Difference(
        metric=first.metric,
        label=first.label,
        unit=first.unit,
        better=first.better,
        model_a=first.model,
        model_b=None if isinstance(b, float) else second.model,
        dataset=first.dataset,
        recipe_a=first.recipe,
        recipe_b=second.recipe,
        protocols=tuple(dict.fromkeys(side[seed].protocol for side in both for seed in seeds)),
    )


def not_comparable(row: Difference, protocols: Sequence[str]) -> Difference:
    """Return the same row, not compared because of its protocols."""
    reason = f"measured under different protocols: {'; '.join(peculiarities(protocols))}"
    return replace(row, verdict="not comparable", reason=reason)


def contrast(
    a: Side, b: Side | float, read: Read | None, *, margin: float = 0.0, resamples: int = RESAMPLES
) -> Difference:
    """Test the difference of two values over the seeds that both have, or of one and a number.

    Args:
        a: of at least one seed that ``b`` has too.
        b: of the same images.
        read: gives a cell's per-example values; None: the intervals decide.
        margin: the p values test a difference of minus this.
        resamples: R.

    Without per-example values the 95 % intervals of both values decide, as of independent images.
    """
    seeds = common_seeds(a, b)
    of_a = numbers_of(a, seeds)
    of_b = [b] * len(seeds) if isinstance(b, float) else numbers_of(b, seeds)
    mean_a, mean_b = sum(of_a) / len(seeds), sum(of_b) / len(seeds)
    row = replace(described(a, b), seeds=seeds, a=mean_a, b=mean_b, difference=mean_a - mean_b)
    if not all(map(math.isfinite, (*of_a, *of_b))):
        return replace(row, reason="a value is not finite")
    found = paired.seed_difference([value + margin for value in of_a], of_b)
    if found and len(seeds) >= SEEDS:
        row = replace(row, training_p=found.p)
        if found.low < found.high:  # else all seeds differ by the same, which is no interval
            row = replace(row, training_low=found.low - margin, training_high=found.high - margin)
    try:
        found, test = _images(a, b, seeds, read, mean_a - mean_b, -margin, resamples)
    except JembenchError as error:
        ends_a, ends_b = _ends(a, seeds), _ends(b, seeds)
        if ends_a is None or ends_b is None:
            return replace(row, reason=str(error))
        found, test = paired.from_intervals(ends_a, ends_b, -margin), "intervals"
        row = replace(row, reason=f"{error}: the 95 % intervals of both values decide, as of independent images")
    return replace(row, images_low=found.low, images_high=found.high, images_p=found.p, images_test=test)


def numbers_of(side: Side, seeds: Iterable[int]) -> list[float]:
    """Return the value of each of some seeds."""
    return [value for seed in seeds if (value := side[seed].value) is not None]


def _ends(side: Side | float, seeds: Sequence[int]) -> tuple[float, float, float] | None:
    """Return a value with the ends of its interval, means over the seeds; None if the interval is not known."""
    if isinstance(side, float):
        return side, side, side
    value, low, high = mean_of([side[seed] for seed in seeds])
    return None if low is None or high is None else (value, low, high)


def _images(
    a: Side, b: Side | float, seeds: Sequence[int], read: Read | None, difference: float, null: float, resamples: int
) -> tuple[paired.Difference, Test]:
    """Test ``difference``, a - b, against ``null`` over other test images.

    Raises:
        JembenchError: if that cannot be known.
    """
    if read is None:
        raise Unavailable("it has no interval")
    of_a = _resampling(tuple(a[seed] for seed in seeds), read)
    of_b = _constant(b, of_a) if isinstance(b, float) else _resampling(tuple(b[seed] for seed in seeds), read)
    of_column = int(stable_hash(a[seeds[0]].place, 16), 16)  # the same resamples for all models
    alike = of_a.sizes == of_b.sizes
    for count in (min(PILOT, resamples), resamples):
        try:
            found = paired.bootstrap_difference(
                of_a, of_b, difference, paired=alike, seed=of_column, resamples=count, null=null
            )
        except ValueError as error:
            raise Unavailable(str(error)) from error
        if found.p > HOPELESS or resamples <= PILOT:
            break
    right_a, right_b = (_right(side, seeds, read) for side in (a, b))
    if right_a is not None and right_b is not None and not null:
        shares = 100 * (right_a.mean() - right_b.mean())
        if math.isclose(difference, shares, abs_tol=1e-9):  # else the value is another one
            return found._replace(p=paired.mcnemar(right_a, right_b)), "McNemar"
    return found, "paired bootstrap" if alike else "bootstrap"


@lru_cache(maxsize=512)
def _resampling(rows: tuple[Row, ...], read: Read) -> Resampling:
    """Return the mean over the rows, of one seed each, as one statistic: every seed is given the same resamples.

    Raises:
        JembenchError: if the metric has no statistic behind its value, cannot be made or is code that only the store
            names, or the store has no per-example values.
    """
    text = rows[0].metric
    trust.refuse_code([text], f"The cell {_cell(rows[0]).id} of the store")
    metric = _metric(text)
    if not isinstance(metric, Resampled):
        raise Unavailable("no per-example values")
    found = []
    for row in rows:
        arrays = read(_cell(row))
        if not arrays:
            raise Unavailable("the store has no per-example values of it")
        try:
            found.append(metric.resamplings(arrays)[row.label])
        except (KeyError, ValueError) as error:
            raise Unavailable(f"its per-example values are not what {text} makes its value of ({error})") from error
    if len({resampling.sizes for resampling in found}) > 1:
        raise Unavailable("the seeds have per-example values of different numbers")

    def mean(*indices: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.stack([resampling.statistic(*indices) for resampling in found])
        averaged: NDArray[np.float64] = values.mean(axis=0, dtype=np.float64)
        return averaged

    return found[0]._replace(statistic=mean)


@cache
def _metric(text: str) -> Any:
    resolved = registry.resolve("metrics", text)
    try:
        return resolved.make()
    except Exception as error:  # the options stand in a file
        raise Unavailable(f"the metric {text} cannot be made: {error}") from error


def _cell(row: Row) -> Cell:
    assert row.cell  # it is of a seed
    return row.cell


def _constant(number: float, beside: Resampling) -> Resampling:
    """Return a number as a statistic of the images that another one is of."""
    return beside._replace(statistic=lambda first, *_: np.full(len(first), number), within=(number, number))


def _right(side: Side | float, seeds: Sequence[int], read: Read) -> NDArray[np.bool_] | None:
    """Return if each image was classified rightly, where a value is the share of those and of one seed; else None."""
    if isinstance(side, float) or len(seeds) > 1:
        return None
    arrays = list(read(_cell(side[seeds[0]])).values())
    return arrays[0] if len(arrays) == 1 and arrays[0].dtype == np.bool_ else None
