"""Intervals: Wilson's for proportions, one bootstrap for every other statistic.

Legend: R resamples, N observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import progress
from jembench.interfaces import Resampling

Indices = NDArray[np.int64]
Statistic = Callable[..., NDArray[Any]]
"""Index matrices (R, N), one for each sample, rows drawn with replacement from 0..N-1 -> the statistic of each (R,)."""

_CHUNK_ELEMENTS = 4_000_000
"""How many indices are held at a time (32 MB)."""


class Interval(NamedTuple):
    """An interval of confidence."""

    low: float
    high: float


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """The score interval of a proportion, within [0, 1]; it holds near 0 and 1, where the normal interval fails.

    Wilson (1927), Journal of the American Statistical Association 22(158), 209-212.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} successes of {n}")
    proportion = successes / n
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (proportion + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(proportion * (1 - proportion) / n + z * z / (4 * n * n))
    # At 0 and n successes one end equals the proportion, up to rounding that must not put it on the wrong side.
    return Interval(min(max(centre - half, 0.0), proportion), max(min(centre + half, 1.0), proportion))


def bootstrap_interval(
    estimate: float,
    statistic: Statistic,
    *sizes: int,
    rng: np.random.Generator,
    resamples: int = 1000,
    level: float = 0.95,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Interval | None:
    """The bootstrap interval of a statistic of one sample or of several independent ones.

    Plug-in statistics such as ECE, the Inception score and FID are biased when they are computed from a resample: it
    holds only about 63 % of the observations, so bins look worse calibrated and distributions further apart. All
    resampled values can then lie on one side of the estimate, and the percentile interval misses the estimate itself.
    Here the percentiles are those of the deviations from the *bootstrap median*, put back around the estimate: the
    spread of the resamples without their bias. The median, not the mean, because then the interval contains the
    estimate whatever the skewness. Efron & Tibshirani (1993), An Introduction to the Bootstrap, chapters 10 (bias) and
    13 (percentile intervals).

    Args:
        estimate: the statistic of the samples themselves.
        statistic: from one index matrix (R, N) for each sample to R values; called with at most a few million indices.
        sizes: the size N of each sample.
        rng: draws the indices.
        resamples: R.
        level: the nominal coverage.
        within: the range of the statistic, to which the interval is clipped.

    Returns:
        None where no interval can be known: no resamples, or a sample of fewer than two observations.

    Raises:
        ValueError: if the statistic of a resample is not finite.
    """
    if resamples == 0 or min(sizes) < 2:
        return None
    return around(estimate, resampled(statistic, sizes, rng, resamples), level, within)


def interval_of(
    estimate: float, resampling: Resampling, *, rng: np.random.Generator, resamples: int = 1000
) -> Interval | None:
    """The bootstrap interval of a value whose statistic a metric has handed out, see :func:`bootstrap_interval`."""
    return bootstrap_interval(
        estimate, resampling.statistic, *resampling.sizes, rng=rng, resamples=resamples, within=resampling.within
    )


def around(
    estimate: float,
    values: NDArray[np.float64],
    level: float = 0.95,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """The percentiles of how far resampled values (R,) are from their median, put around the estimate.

    It contains the estimate, also where rounding has put that just outside of its range.
    """
    tail = (1 - level) / 2
    low, middle, high = np.quantile(values, [tail, 0.5, 1 - tail])
    lowest, highest = within
    return Interval(
        min(max(estimate + float(low - middle), lowest), estimate),
        max(min(estimate + float(high - middle), highest), estimate),
    )


def resampled(
    statistic: Statistic, sizes: Sequence[int], rng: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    """The statistic of each resample, (R,); the result does not depend on how they are split into calls.

    Raises:
        ValueError: if the statistic of a resample is not finite.
    """
    streams = rng.spawn(len(sizes))
    rows = max(1, _CHUNK_ELEMENTS // sum(sizes))
    parts = []
    with progress.phase("bootstrap", resamples if resamples > rows else 0, "resamples", step=rows) as at:
        for at.done in range(0, resamples, rows):
            count = min(rows, resamples - at.done)
            parts.append(statistic(*(s.integers(n, size=(count, n)) for s, n in zip(streams, sizes, strict=True))))
    values = np.concatenate(parts).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"the statistic is not finite in {np.count_nonzero(~np.isfinite(values))} resamples")
    return values


def multiplicities(indices: Indices, n: int) -> NDArray[np.int64]:
    """How often each of n observations stands in each resample: (R, M) -> (R, n)."""
    rows = len(indices)
    flat = indices + n * np.arange(rows)[:, None]
    return np.bincount(flat.ravel(), minlength=rows * n).reshape(rows, n)


def mean_of(values: NDArray[Any]) -> Statistic:
    """The mean of ``values`` (N,) as a statistic to bootstrap."""
    return lambda indices: values[indices].mean(axis=1)
