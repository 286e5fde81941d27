"""The test of a difference of two values: its intervals and its p values.

Two sources of randomness are kept apart. *Test images*: a bootstrap in which both models see the
same resamples of the images, their values averaged over the seeds that both have. *Training*:
Student's t over the differences of those seeds. The p value of a difference is the larger of the
two, adjusted by Holm for the number of values compared: those of two models, of a store that was
measured again, or of one paper's claims.

Legend: N images, R resamples.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import registry, trust
from jembench.catalog.spec import Spec, stable_hash
from jembench.errors import JembenchError, Unavailable
from jembench.interfaces import Resampling
from jembench.interfaces.metrics import Resampled
from jembench.report.protocols import parsed, peculiarities
from jembench.report.rows import Row, Side, mean_of
from jembench.stats import paired
from jembench.store.outcome import Cell

Read = Callable[[Cell], Mapping[str, NDArray[Any]]]
"""A cell's per-example values, from the store."""

LEVEL = 0.05
"""A p value below it counts."""

SEEDS = 3
"""The fewest seeds from which a difference is tested over training; two leave one degree of
freedom.
"""

RESAMPLES = 10_000
PILOT = 1_000
"""The size of a first bootstrap. It suffices for a p value above ``HOPELESS``; more would not bring
it to the level.
"""
HOPELESS = 0.2

Test = Literal["McNemar", "paired bootstrap", "bootstrap", "intervals"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One value of two models, or of a model and a number: a - b, the mean over the seeds of both.

    Its fields are the columns of the CSV. ``images``: the 95 % interval and the p value on other
    test images; ``training``: the same if the models were trained again.
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


def conclusion(row: Difference, found: str, tendency: str) -> str:
    """Return the verdict on a difference; of one that was not tested, the verdict that it has.

    Args:
        row: with its p value after Holm.
        found: the verdict where the difference counts.
        tendency: in its place where the difference counts only in part: on other images without
            another training, before the adjustment, or in other trainings but not on other images.
    """
    if row.p is None or row.larger_p is None:
        return row.verdict
    seeds = f"{_count_in_words(len(row.seeds))} seed{'' if len(row.seeds) == 1 else 's'}"
    if row.p < LEVEL:
        return found if row.training_p is not None else f"{seeds} only ({tendency})"
    if row.larger_p < LEVEL:
        return f"{tendency}, but not significant after adjustment ({seeds})"
    if row.training_p is not None and row.training_p < LEVEL:
        return f"{tendency}, but not significant on other images ({seeds})"
    return "no difference seen"


def _count_in_words(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[count] if count < len(words) else str(count)


def adjusted(rows: Iterable[Difference]) -> list[Difference]:
    """Return each difference with its p value after Holm; what was not tested has None and is not
    counted.
    """
    given = list(rows)
    after = iter(paired.holm([row.larger_p for row in given if row.larger_p is not None]))
    return [row if row.larger_p is None else replace(row, p=next(after)) for row in given]


def number(value: float, of: Side) -> Side:
    """Return a number as a value of each seed, to be compared with those of a model."""
    return {
        seed: replace(row, model="", value=value, low=value, high=value, cell=None)
        for seed, row in of.items()
    }


def described(a: Side, b: Side) -> Difference:
    """Return the comparison of two values before it is made: of what it is, and over which seeds."""
    seeds = tuple(sorted(a.keys() & b.keys()))
    first, second = (next(iter(side.values())) for side in (a, b))
    return Difference(
        metric=first.metric,
        label=first.label,
        unit=first.unit,
        better=first.better,
        model_a=first.model,
        model_b=second.model or None,
        dataset=first.dataset,
        recipe_a=first.recipe,
        recipe_b=second.recipe,
        seeds=seeds,
        protocols=tuple(dict.fromkeys(side[seed].protocol for side in (a, b) for seed in seeds)),
    )


def contrast(
    a: Side,
    b: Side,
    read: Read | None,
    *,
    margin: float = 0.0,
    resamples: int = RESAMPLES,
    alike: Collection[str] | None = None,
) -> Difference:
    """Test the difference of two values over the seeds that both have.

    Without per-example values the 95 % intervals of both values decide, as of independent images.

    Args:
        a: a value of a model.
        b: that of another model, or a :func:`number`.
        read: gives a cell's per-example values; None: the intervals decide.
        margin: the p values test a difference of minus this.
        resamples: R.
        alike: the parts of the protocols that must be the same, whatever the metric; None: all.
    """
    row = described(a, b)
    if not row.seeds:
        of_a, of_b = (", ".join(map(str, sorted(side))) for side in (a, b))
        return replace(row, reason=f"no seed in common: {of_a} and {of_b}")
    protocols = dict.fromkeys(_parts(protocol, alike) for protocol in row.protocols)
    if len(protocols) > 1:
        reason = f"measured under different protocols: {'; '.join(peculiarities(list(protocols)))}"
        return replace(row, seeds=(), verdict="not comparable", reason=reason)
    rows_a, rows_b = ([side[seed] for seed in row.seeds] for side in (a, b))
    values = _values(rows_a), _values(rows_b)
    mean_a, mean_b = (sum(of_one) / len(of_one) for of_one in values)
    row = replace(row, a=mean_a, b=mean_b, difference=mean_a - mean_b)
    if not all(map(math.isfinite, (*values[0], *values[1]))):
        return replace(row, reason="a value is not finite")
    found = paired.seed_difference([value + margin for value in values[0]], values[1])
    if found and len(row.seeds) >= SEEDS:
        row = replace(row, training_p=found.p)
        if found.low < found.high:  # else all seeds differ by the same, which is no interval
            row = replace(row, training_low=found.low - margin, training_high=found.high - margin)
    try:
        found, test = _images(rows_a, rows_b, read, mean_a - mean_b, -margin, resamples)
    except JembenchError as error:
        ends_a, ends_b = _with_ends(rows_a), _with_ends(rows_b)
        if ends_a is None or ends_b is None:
            return replace(row, reason=str(error))
        found, test = paired.from_intervals(ends_a, ends_b, -margin), "intervals"
        row = replace(
            row,
            reason=f"{error}: the 95 % intervals of both values decide, as of independent images",
        )
    return replace(
        row, images_low=found.low, images_high=found.high, images_p=found.p, images_test=test
    )


def _parts(protocol: str, names: Collection[str] | None) -> str:
    """Return the parts of a protocol with these names, whatever the metric; None, or no spec: the
    whole.
    """
    if names is None or (found := parsed(protocol)) is None:
        return protocol
    return str(Spec("parts", tuple(part for part in found.arguments if part[0] in names)))


def _with_ends(rows: Sequence[Row]) -> tuple[float, float, float] | None:
    """Return a value with the ends of its interval, means over the seeds; None if the interval is
    not known.
    """
    value, low, high = mean_of(rows)
    return None if low is None or high is None else (value, low, high)


def _values(rows: Iterable[Row]) -> list[float]:
    return [row.value for row in rows if row.value is not None]


# --- over test images
# -------------------------------------------------------------------------------------------------


def _images(
    a: Sequence[Row],
    b: Sequence[Row],
    read: Read | None,
    difference: float,
    null: float,
    resamples: int,
) -> tuple[paired.Difference, Test]:
    """Test ``difference``, a - b, against ``null`` over other test images.

    Raises:
        JembenchError: if that cannot be known.
    """
    if read is None:
        raise Unavailable("it has no interval")
    of_a = _resampling(tuple(a), read)
    of_b = _resampling(tuple(b), read) if b[0].model else _constant(b[0], of_a)
    of_column = int(stable_hash(a[0].place, 16), 16)  # the same resamples for all models
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
    right_a, right_b = (_right(rows, read) for rows in (a, b))
    if right_a is not None and right_b is not None and not null:
        shares = 100 * (right_a.mean() - right_b.mean())
        if math.isclose(difference, shares, abs_tol=1e-9):  # else the value is another one
            return found._replace(p=paired.mcnemar(right_a, right_b)), "McNemar"
    return found, "paired bootstrap" if alike else "bootstrap"


@lru_cache(maxsize=512)
def _resampling(rows: tuple[Row, ...], read: Read) -> Resampling:
    """Return the mean over the rows, of one seed each, as one statistic: every seed is given the
    same resamples.

    Raises:
        JembenchError: if the metric has no statistic behind its value, cannot be made or is code
            that only the store names, or the store has no per-example values.
    """
    text, found = rows[0].metric, list[Resampling]()
    trust.refuse_code([text], "A result of the store")
    if not isinstance(metric := _metric(text), Resampled):
        raise Unavailable("no per-example values")
    for row in rows:
        if not (arrays := read(row.cell) if row.cell else None):
            raise Unavailable("the store has no per-example values of it")
        try:
            found.append(metric.resamplings(arrays)[row.label])
        except (KeyError, ValueError) as error:
            raise Unavailable(
                f"its per-example values are not what {text} makes its value of ({error})"
            ) from error
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


def _constant(number: Row, beside: Resampling) -> Resampling:
    """Return a number as a statistic of the images that another one is of."""
    value = _values([number])[0]
    return beside._replace(
        statistic=lambda first, *_: np.full(len(first), value), within=(value, value)
    )


def _right(rows: Sequence[Row], read: Read) -> NDArray[np.bool_] | None:
    """Return if each image was classified rightly, where a value is the share of those and of one
    seed; else None.
    """
    if len(rows) > 1 or rows[0].cell is None:
        return None
    arrays = list(read(rows[0].cell).values())
    return arrays[0] if len(arrays) == 1 and arrays[0].dtype == np.bool_ else None
