"""The test of a difference: its intervals and its p values.

Two sources of randomness are kept apart. *Test images*: a bootstrap that resamples the same images
for both models, with values averaged over the seeds that both have. *Training*: Student's t over
the differences of these seeds. A difference's p value is the larger of the two p values, adjusted
by Holm for the number of compared values: those of two models, of a store measured again, or of one
paper's claims.

Legend: N images, R resamples.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import registry, trust
from jembench.catalog.spec import NO_SPEC, Spec, stable_hash
from jembench.errors import JembenchError, Unavailable
from jembench.interfaces import Resampling
from jembench.interfaces.metrics import Resampled
from jembench.report.protocols import parsed, peculiarities
from jembench.report.rows import BySeed, Row, mean_of, values_of
from jembench.stats import paired
from jembench.store.outcome import Cell

Read = Callable[[Cell], Mapping[str, NDArray[Any]]]
"""A cell's per-example values, from the store."""

LEVEL = 0.05
"""A p value below this level is significant."""

SEEDS = 3
"""The fewest seeds for a test over training; two leave one degree of freedom."""

RESAMPLES = 10_000
PILOT = 1_000
"""The size of a first bootstrap.

More resamples would not bring a p value above ``HOPELESS`` to the level.
"""
HOPELESS = 0.2

Test = Literal["McNemar", "paired bootstrap", "bootstrap", "intervals"]

Verdict = Literal[
    "significant", "on images alone", "not after adjustment", "in trainings alone", "not seen"
]
"""The result of tests over other test images and over other trainings, after the adjustment."""

_IN_WORDS: Mapping[Verdict, str] = {
    "significant": "{significant}",
    "on images alone": "{seeds} only ({tendency})",
    "not after adjustment": "{tendency}, but not significant after adjustment ({seeds})",
    "in trainings alone": "{tendency}, but not significant on other images ({seeds})",
    "not seen": "no difference seen",
}


class Side(NamedTuple):
    """One of two values that are compared."""

    model: str | None = None  # None: a number
    recipe: str | None = None
    value: float | None = None  # None: not comparable, or no seed in common


class Uncertainty(NamedTuple):
    """The 95 % interval and p value from one source of randomness."""

    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: Test | None = None  # None: not tested, or by Student's t
    within: tuple[float, float] = (-math.inf, math.inf)  # the range of both values


UNTESTED = Uncertainty()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The difference a - b, where b is a model or a number.

    Values are means over the seeds that the models share.
    """

    metric: str
    label: str = ""
    unit: str = ""
    better: Literal["higher", "lower", ""] = ""
    a: Side
    b: Side
    dataset: str | None = None
    seeds: tuple[int, ...] = ()
    difference: float | None = None
    images: Uncertainty = UNTESTED  # on other test images
    training: Uncertainty = UNTESTED  # if the models were trained again
    p: float | None = None  # after Holm
    verdict: str = "not testable"
    reason: str = ""  # why it is not testable
    protocols: tuple[str, ...] = ()  # more than one: not comparable

    @property
    def larger_p(self) -> float | None:
        """The larger p value of both sources, before Holm.

        None if neither is known.
        """
        tested = [p for p in (self.images.p, self.training.p) if p is not None]
        return max(tested, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return the difference for programs, by the columns of the CSV."""
        return {
            "metric": self.metric,
            "label": self.label,
            "unit": self.unit,
            "better": self.better,
            "model_a": self.a.model,
            "model_b": self.b.model,
            "dataset": self.dataset,
            "recipe_a": self.a.recipe,
            "recipe_b": self.b.recipe,
            "seeds": self.seeds,
            "a": self.a.value,
            "b": self.b.value,
            "difference": self.difference,
            "images_low": self.images.low,
            "images_high": self.images.high,
            "images_p": self.images.p,
            "images_test": self.images.test,
            "training_low": self.training.low,
            "training_high": self.training.high,
            "training_p": self.training.p,
            "p": self.p,
            "verdict": self.verdict,
            "reason": self.reason,
            "protocols": self.protocols,
        }


FIELDS = tuple(Difference(metric="", a=Side(), b=Side()).as_dict())
"""The columns of the CSV."""


def conclusion(row: Difference, significant: str, tendency: str) -> str:
    """Return the verdict on a difference in words.

    Args:
        row: the difference; without a p value after Holm, its own verdict is returned.
        significant: the words for a significant difference.
        tendency: the words for a partly significant difference: on other images without another
            training, before the adjustment, or in other trainings but not on other images.
    """
    verdict = _verdict(row)
    if verdict is None:
        return row.verdict
    seeds = f"{_count_in_words(len(row.seeds))} seeds"
    if len(row.seeds) == 1:
        seeds = "one seed"
    return _IN_WORDS[verdict].format(significant=significant, tendency=tendency, seeds=seeds)


def _verdict(row: Difference) -> Verdict | None:
    if row.p is None or row.larger_p is None:
        return None
    if row.p < LEVEL:
        if row.training.p is None:
            return "on images alone"
        return "significant"
    if row.larger_p < LEVEL:
        return "not after adjustment"
    if row.training.p is not None and row.training.p < LEVEL:
        return "in trainings alone"
    return "not seen"


def _count_in_words(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    if count < len(words):
        return words[count]
    return str(count)


def adjusted(rows: Iterable[Difference]) -> list[Difference]:
    """Return each difference with its p value after Holm.

    Untested differences have None and are not counted.
    """
    differences = list(rows)
    tested = [row.larger_p for row in differences if row.larger_p is not None]
    after = iter(paired.holm(tested))
    adjusted_differences = []
    for row in differences:
        if row.larger_p is not None:
            row = replace(row, p=next(after))
        adjusted_differences.append(row)
    return adjusted_differences


def number(value: float, beside: BySeed) -> BySeed:
    """Return a number as a value for each of a model's seeds."""
    numbers = {}
    for seed, row in beside.items():
        numbers[seed] = replace(row, model=NO_SPEC, value=value, low=value, high=value, cell=None)
    return numbers


def described(a: BySeed, b: BySeed) -> Difference:
    """Return the difference of two values before any test."""
    seeds = tuple(sorted(a.keys() & b.keys()))
    first, second = next(iter(a.values())), next(iter(b.values()))
    protocols = dict.fromkeys(side[seed].protocol for side in (a, b) for seed in seeds)
    return Difference(
        metric=first.metric,
        label=first.label,
        unit=first.unit,
        better=first.better,
        a=Side(first.model, first.recipe),
        b=Side(second.model or None, second.recipe),
        dataset=first.dataset,
        seeds=seeds,
        protocols=tuple(protocols),
    )


def contrast(
    a: BySeed,
    b: BySeed,
    read: Read | None,
    *,
    margin: float = 0.0,
    resamples: int = RESAMPLES,
    alike: Collection[str] | None = None,
) -> Difference:
    """Test the difference of two values over the seeds that both have.

    Without per-example values the 95 % intervals of both values decide, as for independent images.

    Args:
        a: a value of a model.
        b: a value of another model, or a :func:`number`.
        read: gives a cell's per-example values; None: the intervals decide.
        margin: the p values test a difference of minus the margin.
        resamples: R.
        alike: the parts of the protocols that must be the same, whatever the metric; None: all.
    """
    row = described(a, b)
    obstacle = _obstacle(row, a, b, alike)
    if obstacle:
        return obstacle
    rows_a, rows_b = [a[seed] for seed in row.seeds], [b[seed] for seed in row.seeds]
    values_a, values_b = values_of(rows_a), values_of(rows_b)
    mean_a, mean_b = sum(values_a) / len(values_a), sum(values_b) / len(values_b)
    difference = mean_a - mean_b
    images, training = UNTESTED, UNTESTED
    if all(map(math.isfinite, (*values_a, *values_b))):
        images, reason = _over_images(rows_a, rows_b, read, difference, -margin, resamples)
        training = _over_trainings(values_a, values_b, margin)
    else:
        reason = "a value is not finite"
    return replace(
        row,
        a=row.a._replace(value=mean_a),
        b=row.b._replace(value=mean_b),
        difference=difference,
        images=images,
        training=training,
        reason=reason,
    )


def untested(a: BySeed, b: BySeed) -> Difference:
    """Return a difference without tests, ``equal`` if each seed gives the same number.

    Args:
        a: a value.
        b: the same value of another store.
    """
    row = contrast(a, b, None)
    if row.difference is None:
        return row
    row = replace(row, images=UNTESTED, training=UNTESTED, reason="")
    values_a = values_of(a[seed] for seed in row.seeds)
    values_b = values_of(b[seed] for seed in row.seeds)
    if np.array_equal(values_a, values_b, equal_nan=True):
        return replace(row, verdict="equal")
    return row


def _obstacle(
    row: Difference, a: BySeed, b: BySeed, alike: Collection[str] | None
) -> Difference | None:
    """Return why two values cannot be compared; None if they can."""
    if not row.seeds:
        seeds_a, seeds_b = (", ".join(map(str, sorted(side))) for side in (a, b))
        return replace(row, reason=f"no seed in common: {seeds_a} and {seeds_b}")
    protocols = list(dict.fromkeys(_parts(protocol, alike) for protocol in row.protocols))
    if len(protocols) > 1:
        reason = f"measured under different protocols: {'; '.join(peculiarities(protocols))}"
        return replace(row, seeds=(), verdict="not comparable", reason=reason)
    return None


def _parts(protocol: str, names: Collection[str] | None) -> str:
    """Return the parts of a protocol with these names, whatever the metric.

    If ``names`` is None or the protocol is no spec, the whole protocol is returned.
    """
    whole = parsed(protocol)
    if names is None or whole is None:
        return protocol
    parts = {name: value for name, value in whole.options.items() if name in names}
    return Spec.of("parts", parts)


def _over_trainings(a: Sequence[float], b: Sequence[float], margin: float) -> Uncertainty:
    """Test a difference over the seeds, against minus the margin."""
    tested = paired.seed_difference([value + margin for value in a], b)
    if tested is None or len(a) < SEEDS:
        return UNTESTED
    if tested.low < tested.high:
        return Uncertainty(tested.low - margin, tested.high - margin, tested.p)
    return Uncertainty(p=tested.p)  # no interval: all seeds have the same difference


# --- over test images -----------------------------------------------------------------------------


def _over_images(
    a: Sequence[Row],
    b: Sequence[Row],
    read: Read | None,
    difference: float,
    null: float,
    resamples: int,
) -> tuple[Uncertainty, str]:
    """Test a difference on other images.

    Returns:
        The result, and a remark where there are no per-example values.
    """
    try:
        if read is None:
            raise Unavailable("it has no interval")
        return _resampled(a, b, read, difference, null, resamples), ""
    except JembenchError as error:
        ends_a, ends_b = _with_ends(a), _with_ends(b)
        if ends_a is None or ends_b is None:
            return UNTESTED, str(error)
        tested = paired.from_intervals(ends_a, ends_b, null)
        remark = f"{error}: the 95 % intervals of both values decide, as of independent images"
        return Uncertainty(tested.low, tested.high, tested.p, "intervals"), remark


def _with_ends(rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """Return the means of a value and its interval's ends.

    Returns:
        None without an interval.
    """
    value, low, high = mean_of(rows)
    if low is None or high is None:
        return None
    return (value, low, high)


def _resampled(
    a: Sequence[Row],
    b: Sequence[Row],
    read: Read,
    difference: float,
    null: float,
    resamples: int,
) -> Uncertainty:
    """Test ``difference``, a - b, against ``null`` over other test images.

    Raises:
        JembenchError: if there is nothing to resample.
    """
    of_a = _resampling(tuple(a), read)
    of_b = _resampling(tuple(b), read) if b[0].model else _constant(b[0], of_a)
    of_column = int(stable_hash(a[0].place, 16), 16)  # the same resamples for all models
    alike = of_a.sizes == of_b.sizes
    for count in (min(PILOT, resamples), resamples):
        try:
            tested = paired.bootstrap_difference(
                of_a, of_b, difference, paired=alike, seed=of_column, resamples=count, null=null
            )
        except ValueError as error:
            raise Unavailable(str(error)) from error
        if tested.p > HOPELESS or resamples <= PILOT:
            break
    result = Uncertainty(tested.low, tested.high, tested.p, "bootstrap", of_a.within)
    if alike:
        result = result._replace(test="paired bootstrap")

    # for shares of correctly classified images, McNemar's test is exact
    right_a, right_b = _right(a, read), _right(b, read)
    if right_a is not None and right_b is not None and not null:
        shares = 100 * (right_a.mean() - right_b.mean())
        if math.isclose(difference, shares, abs_tol=1e-9):  # else the value is no such share
            return result._replace(p=paired.mcnemar(right_a, right_b), test="McNemar")
    return result


@lru_cache(maxsize=512)
def _resampling(rows: tuple[Row, ...], read: Read) -> Resampling:
    """Return the mean over the seeds as one statistic.

    Every seed is given the same resamples.

    Raises:
        JembenchError: if the metric has no statistic behind its value, cannot be made or is code
            that only the store names, or the store has no per-example values.
    """
    text = rows[0].metric
    trust.refuse_code([text], "A result of the store")
    metric = _metric(text)
    if not isinstance(metric, Resampled):
        raise Unavailable("no per-example values")
    of_seeds: list[Resampling] = []
    for row in rows:
        arrays = read(row.cell) if row.cell else None
        if not arrays:
            raise Unavailable("the store has no per-example values of it")
        try:
            of_seeds.append(metric.resamplings(arrays)[row.label])
        except (KeyError, ValueError) as error:
            raise Unavailable(
                f"its per-example values do not fit the metric {text} ({error})"
            ) from error
    if len({resampling.sizes for resampling in of_seeds}) > 1:
        raise Unavailable("the seeds have per-example values of different numbers")

    def mean(*indices: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.stack([resampling.statistic(*indices) for resampling in of_seeds])
        averaged: NDArray[np.float64] = values.mean(axis=0, dtype=np.float64)
        return averaged

    return of_seeds[0]._replace(statistic=mean)


@cache
def _metric(text: str) -> Any:
    resolved = registry.resolve("metrics", text)
    try:
        return resolved.make()
    except Exception as error:  # a file may give any options
        raise Unavailable(f"the metric {text} cannot be made: {error}") from error


def _constant(number: Row, beside: Resampling) -> Resampling:
    """Return a number as a statistic of the same images."""
    value = values_of([number])[0]
    return beside._replace(
        statistic=lambda first, *_: np.full(len(first), value), within=(value, value)
    )


def _right(rows: Sequence[Row], read: Read) -> NDArray[np.bool_] | None:
    """Return whether each image was classified correctly.

    None: there are several seeds, or the cell stores something else.
    """
    if len(rows) > 1 or rows[0].cell is None:
        return None
    arrays = list(read(rows[0].cell).values())
    if len(arrays) == 1 and arrays[0].dtype == np.bool_:
        return arrays[0]
    return None
