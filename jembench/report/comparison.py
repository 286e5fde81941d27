"""Compare two trained models: the difference of each value, its intervals and its p values.

Two sources of randomness are kept apart. *Test images*: a bootstrap in which both models see the same resamples of the
images, their values averaged over the seeds that both have. *Training*: Student's t over the differences of those
seeds. The p value of a difference is the larger of the two, adjusted by Holm for the number of values compared.

Legend: N images, R resamples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import registry, trust
from jembench.catalog.spec import stable_hash
from jembench.errors import JembenchError, Unavailable
from jembench.interfaces import Resampled, Resampling, Value
from jembench.report.select import Pair, Subject
from jembench.stats import paired
from jembench.store.outcome import Cell

Arrays = Mapping[str, NDArray[Any]]
Read = Callable[[Cell], Arrays]
"""A cell's per-example values, from the store."""

LEVEL = 0.05
"""A p value below it counts."""

SEEDS = 3
"""The fewest seeds from which a difference is tested over training; two leave one degree of freedom."""

RESAMPLES = 10_000
PILOT = 1_000
"""The size of a first bootstrap. It suffices for a p value above ``HOPELESS``; more would not bring it to the level."""
HOPELESS = 0.2

Test = Literal["McNemar", "paired bootstrap", "bootstrap", "paired t"]
Verdict = Literal["a", "b", "not distinguishable", "not testable", "not comparable"]
"""``a`` and ``b``: that one is better or, where neither direction is, higher."""


class Side(NamedTuple):
    """One value of one metric on one model, seed by seed."""

    metric: str  # canonical spec
    label: str
    cells: Mapping[int, Cell]  # by seed; each has the value

    def value(self, seed: int) -> Value:
        """What was measured."""
        return self.cells[seed].outcome.values[self.label]


class Chance(NamedTuple):
    """A difference under one source of randomness: its 95 % interval, and its p value under no difference."""

    low: float
    high: float
    p: float
    test: Test


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A difference a - b, the mean over the seeds of both."""

    a: float
    b: float
    seeds: tuple[int, ...]
    images: Chance | None  # on other test images
    training: Chance | None  # if trained anew
    untested: str = ""  # why nothing is known of other test images

    @property
    def value(self) -> float:
        """The difference."""
        return self.a - self.b

    @property
    def p(self) -> float | None:
        """The larger p value of both sources of randomness; None if neither is known."""
        return max((chance.p for chance in (self.images, self.training) if chance), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One value of two models."""

    metric: str
    label: str
    unit: str
    better: Literal["higher", "lower", ""]
    verdict: Verdict
    contrast: Contrast | None  # None: not comparable, or of no seed in common
    p: float | None = None  # after Holm
    protocols: tuple[str, ...] = ()  # more than one: not comparable
    reason: str = ""  # why it is not testable


class Comparison(NamedTuple):
    """Every value of two models."""

    pair: Pair
    rows: tuple[Compared, ...]
    only_a: tuple[str, ...]  # metrics that the other has no value of
    only_b: tuple[str, ...]
    resamples: int


# --- all values of two models -----------------------------------------------------------------------------------------


def compare(pair: Pair, read: Read, resamples: int = RESAMPLES) -> Comparison:
    """Compare every value that both models have under the same options of a metric."""
    ours, theirs = sides(pair.a), sides(pair.b)
    rows = [_row(side, theirs[place], read, resamples) for place, side in ours.items() if place in theirs]
    only_a = {side.metric: None for place, side in ours.items() if place not in theirs}
    only_b = {side.metric: None for place, side in theirs.items() if place not in ours}
    return Comparison(pair, tuple(_judged(rows)), tuple(only_a), tuple(only_b), resamples)


def sides(subject: Subject) -> dict[tuple[str, str], Side]:
    """All values of a model, by metric and label."""
    found: dict[tuple[str, str], dict[int, Cell]] = {}
    for cell in subject.cells:
        if cell.outcome.status == "ok":
            for label in cell.outcome.values:
                found.setdefault((cell.metric, label), {})[cell.fit.seed] = cell
    return {place: Side(*place, cells) for place, cells in found.items()}


def _row(a: Side, b: Side, read: Read, resamples: int) -> Compared:
    seeds = common_seeds(a, b)
    protocols = protocols_of(a, b)
    first = next(iter(a.cells.values())).outcome.values[a.label]
    row = Compared(
        metric=a.metric,
        label=a.label,
        unit=first.unit,
        better=first.better,
        verdict="not testable",
        contrast=None,
        protocols=protocols,
    )
    if not seeds:
        of_a, of_b = (", ".join(map(str, sorted(side.cells))) for side in (a, b))
        return dataclasses.replace(row, reason=f"no seed in common: {of_a} and {of_b}")
    if len(protocols) > 1:
        return dataclasses.replace(row, verdict="not comparable")
    found = contrast(a, b, read, resamples=resamples)
    return dataclasses.replace(row, contrast=found, reason="" if found.images else found.untested)


def common_seeds(a: Side, b: Side) -> tuple[int, ...]:
    """The seeds that both have a value of."""
    return tuple(sorted(a.cells.keys() & b.cells.keys()))


def protocols_of(*measured: Side) -> tuple[str, ...]:
    """Every protocol under which something was measured, over the seeds that all have."""
    seeds = sorted(set.intersection(*(set(side.cells) for side in measured)))
    return tuple(dict.fromkeys(side.cells[seed].outcome.protocol for side in measured for seed in seeds))


def _judged(rows: Sequence[Compared]) -> Iterable[Compared]:
    adjusted = adjust(row.contrast.p if row.contrast else None for row in rows)
    for row, p in zip(rows, adjusted, strict=True):
        yield row if p is None else dataclasses.replace(row, p=p, verdict=_verdict(row, p))


def adjust(p_values: Iterable[float | None]) -> list[float | None]:
    """The p values after Holm. None stays None and is not counted."""
    given = list(p_values)
    adjusted = iter(paired.holm([p for p in given if p is not None]))
    return [None if p is None else next(adjusted) for p in given]


def _verdict(row: Compared, p: float) -> Verdict:
    if row.contrast is None or p >= LEVEL:
        return "not distinguishable"
    return "a" if (row.contrast.value > 0) == (row.better != "lower") else "b"


# --- one value --------------------------------------------------------------------------------------------------------


def contrast(a: Side, b: Side | float, read: Read, *, margin: float = 0.0, resamples: int = RESAMPLES) -> Contrast:
    """The difference of two values over the seeds that both have, or of one and a number.

    Args:
        a: of at least one seed that ``b`` has too.
        b: of the same images.
        read: gives a cell's per-example values.
        margin: the p values test a difference of minus this.
        resamples: R.
    """
    seeds = tuple(sorted(a.cells)) if isinstance(b, float) else common_seeds(a, b)
    of_a = [a.value(seed).value for seed in seeds]
    of_b = [b if isinstance(b, float) else b.value(seed).value for seed in seeds]
    mean_a, mean_b = sum(of_a) / len(seeds), sum(of_b) / len(seeds)
    if not all(map(math.isfinite, (*of_a, *of_b))):
        return Contrast(a=mean_a, b=mean_b, seeds=seeds, images=None, training=None, untested="a value is not finite")
    training = _training([value + margin for value in of_a], of_b) if len(seeds) >= SEEDS else None
    images, untested = None, ""
    try:
        images = _images(a, b, seeds, read, mean_a - mean_b + margin, resamples)
    except JembenchError as error:
        untested = str(error)
    return Contrast(
        a=mean_a,
        b=mean_b,
        seeds=seeds,
        images=images and _moved(images, -margin),
        training=training and _moved(training, -margin),
        untested=untested,
    )


def _moved(chance: Chance, by: float) -> Chance:
    return chance._replace(low=chance.low + by, high=chance.high + by)


def _training(a: Sequence[float], b: Sequence[float]) -> Chance | None:
    found = paired.seed_difference(a, b, paired=True)
    return found and Chance(found.low, found.high, found.p, "paired t")


def _images(a: Side, b: Side | float, seeds: Sequence[int], read: Read, difference: float, resamples: int) -> Chance:
    """What other test images would change of ``difference``, a - b with a margin.

    Raises:
        JembenchError: if that cannot be known.
    """
    of_a = _resampling(a, seeds, read)
    of_b = _nought(of_a.sizes) if isinstance(b, float) else _resampling(b, seeds, read)
    fits = [side.cells[seed].fit.id for side in (a, b) if isinstance(side, Side) for seed in seeds]
    found = _bootstrap(of_a, of_b, difference, stable_hash([sorted(fits), a.metric, a.label], 16), resamples)
    right_a, right_b = (_right(side, seeds, read) for side in (a, b))
    if right_a is not None and right_b is not None:
        shares = 100 * (right_a.mean() - right_b.mean())
        if math.isclose(difference, shares, abs_tol=1e-9):  # else the value is another one, or there is a margin
            return found._replace(p=paired.mcnemar(right_a, right_b).p, test="McNemar")
    return found


def _bootstrap(a: Resampling, b: Resampling, difference: float, key: str, resamples: int) -> Chance:
    alike = a.sizes == b.sizes
    draw = paired.paired_bootstrap if alike else paired.unpaired_bootstrap

    def drawn(count: int) -> Chance:
        try:
            found = draw(a, b, difference, rng=np.random.default_rng(int(key, 16)), resamples=count)
        except ValueError as error:
            raise Unavailable(str(error)) from error
        return Chance(found.low, found.high, found.p, "paired bootstrap" if alike else "bootstrap")

    pilot = drawn(min(PILOT, resamples))
    return pilot if pilot.p > HOPELESS or resamples <= PILOT else drawn(resamples)


def _resampling(side: Side, seeds: Sequence[int], read: Read) -> Resampling:
    """The mean over the seeds as one statistic: every seed is given the same resamples.

    Raises:
        JembenchError: if the metric has no statistic behind its value, cannot be made or is code that only the store
            names, or the store has no per-example values.
    """
    trust.refuse_code([side.metric], f"The cell {side.cells[seeds[0]].id} of the store")
    metric = _metric(side.metric)
    if not isinstance(metric, Resampled):
        raise Unavailable("no per-example values: intervals cannot be compared")
    found = [_of_seed(metric, side, side.cells[seed], read) for seed in seeds]
    sizes = {resampling.sizes for resampling in found}
    if len(sizes) > 1:
        raise Unavailable("the seeds have per-example values of different numbers")

    def mean(*indices: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.stack([resampling.statistic(*indices) for resampling in found])
        averaged: NDArray[np.float64] = values.mean(axis=0, dtype=np.float64)
        return averaged

    return Resampling(mean, sizes.pop(), found[0].within)


@cache
def _metric(text: str) -> Any:
    resolved = registry.resolve("metrics", text)
    try:
        return resolved.make()
    except Exception as error:  # the options stand in a file
        raise Unavailable(f"the metric {text} cannot be made: {error}") from error


def _of_seed(metric: Resampled, side: Side, cell: Cell, read: Read) -> Resampling:
    arrays = read(cell)
    if not arrays:
        raise Unavailable("the store has no per-example values of it")
    try:
        return metric.resamplings(arrays)[side.label]
    except (KeyError, ValueError) as error:
        raise Unavailable(f"its per-example values are not what {side.metric} makes its value of ({error})") from error


def _nought(sizes: tuple[int, ...]) -> Resampling:
    """What a number, which is already subtracted, adds to a resampled difference."""
    return Resampling(lambda first, *_: np.zeros(len(first)), sizes)


def _right(side: Side | float, seeds: Sequence[int], read: Read) -> NDArray[np.bool_] | None:
    """Whether each image was classified rightly, where a value is the share of those and of one seed."""
    if isinstance(side, float) or len(seeds) > 1:
        return None
    arrays = list(read(side.cells[seeds[0]]).values())
    return arrays[0] if len(arrays) == 1 and arrays[0].dtype == np.bool_ else None
