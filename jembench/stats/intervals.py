"""Intervals: Wilson's score interval and the bootstrap.

Wilson's interval is for shares and rank statistics.

Legend: R resamples, N observations.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import progress
from jembench.interfaces import Resampling

Bounds = tuple[float, float]
"""The range of a value."""

Values = NDArray[np.float64]
Counts = NDArray[np.int64]
Indices = NDArray[np.int64]
Statistic = Callable[..., NDArray[Any]]
"""A function of index matrices (R, N), one for each sample, whose rows are drawn with replacement
from 0..N-1, to the statistic of each row (R,).
"""

LEVEL = 0.95
"""The nominal coverage of intervals."""

_CHUNK_ELEMENTS = 4_000_000
"""Indices held at a time (32 MB)."""


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a proportion, within [0, 1].

    It is accurate near 0 and 1 too.

    Wilson (1927), Journal of the American Statistical Association 22(158), 209-212.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} successes of {n}")
    proportion = successes / n
    sd = math.sqrt(proportion * (1 - proportion) / n)
    return score_interval(proportion, sd, n, level)


def score_interval(
    value: float, sd: float, trials: int, level: float = LEVEL, within: Bounds = (0.0, 1.0)
) -> Interval:
    """Return Wilson's score interval with ``sd`` in place of the binomial deviation.

    Near an end of its range, a share, an AUROC or a difference of such values hardly varies among
    resamples. The terms in 1 / ``trials`` keep the interval from vanishing: at 1 with no deviation
    the interval begins at 1 - z^2 / (trials + z^2). With the binomial deviation it is
    :func:`wilson`.

    Args:
        value: in the range.
        sd: standard deviation of the value, by the bootstrap.
        trials: number of independent trials of the value.
        level: the nominal coverage.
        within: the range.
    """
    lowest, highest = within
    width = highest - lowest
    z = NormalDist().inv_cdf(0.5 + level / 2)

    # Wilson's interval of the value, rescaled to 0 to 1
    share = (value - lowest) / width
    shrink = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    variance = (sd / width) ** 2 + (z / (2 * trials)) ** 2
    half = z / shrink * math.sqrt(variance)

    # at an end of the range, rounding may move an end of the interval past the value
    low = max(lowest + width * (centre - half), lowest)
    high = min(lowest + width * (centre + half), highest)
    return Interval(min(low, value), max(high, value))


def score_p(
    value: float, sd: float, trials: int, null: float, within: Bounds = (0.0, 1.0)
) -> float:
    """Return the two-sided p value of ``null``, from the score interval that ends there."""
    lowest, highest = within
    width = highest - lowest
    if value == null:
        return 1.0
    end = min(max((null - lowest) / width, 0.0), 1.0)
    away = (value - null) / width
    # The end lies at ``null`` where a z^4 + b z^2 - away^2 = 0.
    a = end * (1 - end) / trials**2
    b = (sd / width) ** 2 + 2 * away * (end - 0.5) / trials
    root = b + math.sqrt(b * b + 4 * a * away * away)
    if root <= 0:
        return 0.0
    z = math.sqrt(2 * away * away / root)
    return 2 * NormalDist().cdf(-z)


def bootstrap_interval(
    estimate: float,
    resampling: Resampling,
    *,
    rng: np.random.Generator,
    resamples: int = 1000,
) -> Interval | None:
    """Return the bootstrap interval of a statistic of one or several independent samples.

    It is an interval of the statistic's mean over other samples of the same sizes. For a biased
    statistic this is not the limit for infinitely many observations: the ECE of a calibrated model
    is above 0 in every finite sample.

    Plug-in statistics such as ECE, the Inception score and FID are biased when they are computed
    from a resample: it holds only about 63 % of the observations, so bins look worse calibrated and
    distributions further apart. All resampled values can then lie on one side of the estimate, and
    the percentile interval misses the estimate itself. Here the percentiles are of the deviations
    from the *bootstrap median*, and are put around the estimate: the spread of the resamples
    without their bias. With the median in place of the mean, the interval contains the estimate
    whatever the skewness. Efron & Tibshirani (1993), An Introduction to the Bootstrap, chapters 10
    (bias) and 13 (percentile intervals).

    Args:
        estimate: the statistic of the samples themselves.
        resampling: the statistic, called with at most a few million indices; with ``trials`` above
            0 the interval is at least :func:`score_interval`.
        rng: draws the indices.
        resamples: R.

    Returns:
        None if there is no interval: no resamples, a sample of fewer than two observations, or
        resamples that all agree without ``trials``.

    Raises:
        ValueError: if the statistic of a resample is not finite.
    """
    statistic, sizes, within, trials = resampling
    if resamples == 0 or min(sizes) < 2:
        return None
    values = resampled(statistic, sizes, rng, resamples)
    if not trials and agree(values):
        return None
    return around(estimate, values, within, trials)


def agree(values: Values) -> bool:
    """Return whether resampled values (R,) are equal up to rounding.

    Equal values determine no interval.
    """
    largest = float(np.abs(values).max())
    return float(np.ptp(values)) <= 1e-9 * largest


def around(
    estimate: float,
    values: Values,
    within: Bounds = (-math.inf, math.inf),
    trials: int = 0,
) -> Interval:
    """Return percentiles of the resampled deviations (R,), put around the estimate.

    The deviations are from the median of the resamples. With ``trials``, the interval is widened to
    :func:`score_interval` where the latter is wider. The interval contains the estimate, even if
    rounding has moved the estimate just outside of its range.
    """
    tail = (1 - LEVEL) / 2
    lower, middle, upper = np.quantile(values, [tail, 0.5, 1 - tail])
    lowest, highest = within
    low = max(estimate + float(lower - middle), lowest)
    high = min(estimate + float(upper - middle), highest)
    ends = Interval(min(low, estimate), max(high, estimate))
    if not trials:
        return ends

    least = score_interval(estimate, float(values.std()), trials, within=within)
    return Interval(min(ends.low, least.low), max(ends.high, least.high))


def resampled(
    statistic: Statistic, sizes: Sequence[int], rng: np.random.Generator, resamples: int
) -> Values:
    """Return the statistic of each resample, (R,).

    The result does not depend on how resamples are split into calls.

    Raises:
        ValueError: if the statistic of a resample is not finite.
    """
    streams = rng.spawn(len(sizes))
    rows = max(1, _CHUNK_ELEMENTS // sum(sizes))
    total = resamples if resamples > rows else 0  # a single call is not worth a display
    parts = []
    with progress.phase("bootstrap", total, "resamples") as shown:
        for shown.done in range(0, resamples, rows):
            count = min(rows, resamples - shown.done)
            indices = []
            for stream, n in zip(streams, sizes, strict=True):
                indices.append(stream.integers(n, size=(count, n)))
            parts.append(statistic(*indices))

    values = np.concatenate(parts).astype(np.float64)
    bad = np.count_nonzero(~np.isfinite(values))
    if bad:
        raise ValueError(f"the statistic is not finite in {bad} resamples")
    return values


def multiplicities(indices: Indices, n: int) -> Counts:
    """Count each of n observations in each resample: (R, M) -> (R, n)."""
    rows = len(indices)
    places = indices + n * np.arange(rows)[:, None]
    counts = np.bincount(places.ravel(), minlength=rows * n)
    return counts.reshape(rows, n)
