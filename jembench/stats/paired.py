"""Differences of two models on the same images or over the same seeds, with intervals and p values.

Legend: N images, R resamples, S seeds.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench.interfaces import Resampling
from jembench.stats.intervals import Values, agree, around, resampled, score_p


class PairedDifference(NamedTuple):
    """A difference A - B, its 95 % interval and its two-sided p value."""

    value: float
    low: float
    high: float
    p: float


def mcnemar(correct_a: NDArray[np.bool_], correct_b: NDArray[np.bool_]) -> float:
    """Return the two-sided p value of McNemar's exact test.

    It only uses images on which exactly one classifier is correct.

    McNemar (1947), Psychometrika 12(2), 153-157; exact, by the binomial distribution.

    Args:
        correct_a: bool (N,), True if the first classifier is correct on an image.
        correct_b: the same of the second classifier.

    Raises:
        ValueError: if the numbers of images differ.
    """
    from scipy.stats import binomtest

    if len(correct_a) != len(correct_b):
        raise ValueError(f"{len(correct_a)} images and {len(correct_b)} cannot be paired")
    a = np.asarray(correct_a, dtype=bool)
    b = np.asarray(correct_b, dtype=bool)
    only_a = int((a & ~b).sum())
    either = int((a ^ b).sum())
    if not either:
        return 1.0
    return float(binomtest(only_a, either).pvalue)


def bootstrap_difference(
    a: Resampling,
    b: Resampling,
    difference: float,
    *,
    paired: bool,
    seed: int,
    resamples: int = 10_000,
    null: float = 0.0,
) -> PairedDifference:
    """Return the difference of one statistic of two models, its bootstrap interval and its p value.

    The deviations are from the resamples' median, see ``intervals.bootstrap_interval``. For two
    shares or rank statistics, the interval is at least as wide as the score interval, and the p
    value at least as large as the score interval's.

    The p value is the share of resamples whose deviation is at least as large as the difference
    itself. Efron & Tibshirani (1993), chapter 16; the added 1 follows Davison & Hinkley (1997).

    Args:
        a: the statistic of the first model.
        b: the statistic of the second.
        difference: A - B on the images themselves.
        paired: True if the images are the same: both models then have the same resamples; otherwise
            each model has its own.
        seed: of the resamples. Differences with the same seed share each model's resamples.
        resamples: R; no p value is below 1 / (R + 1).
        null: the difference that the p value tests.

    Raises:
        ValueError: if paired statistics are not of the same sizes, if there is nothing to resample,
            if the statistic of a resample is not finite, or if all resamples agree and no share or
            rank statistic is compared.
    """
    if paired and a.sizes != b.sizes:
        raise ValueError(f"{a.sizes} images and {b.sizes} cannot be paired")
    if min(*a.sizes, *b.sizes) < 2 or resamples < 1:
        raise ValueError(
            f"{resamples} resamples of {a.sizes} and {b.sizes} observations give no p value"
        )

    # of the same images, both models have the same resamples
    seed_of_b = (seed, 0 if paired else 1)
    drawn = _drawn(a, (seed, 0), resamples) - _drawn(b, seed_of_b, resamples)
    trials = min(a.trials, b.trials)
    if not trials and agree(drawn):
        raise ValueError("all resamples agree, so that they determine no interval")

    # a deviation as large as the difference counts, even if rounding has made it a little smaller
    deviations = np.abs(drawn - np.median(drawn))
    extreme = deviations >= abs(difference - null) * (1 - 1e-9)
    p = (1 + int(extreme.sum())) / (len(drawn) + 1)

    (low_a, high_a), (low_b, high_b) = a.within, b.within
    within = (low_a - high_b, high_a - low_b)
    if trials:
        sd = float(drawn.std())
        p = max(p, score_p(difference, sd, trials, null, within))
    interval = around(difference, drawn, within=within, trials=trials)
    return PairedDifference(difference, *interval, p)


@lru_cache(maxsize=512)
def _drawn(of: Resampling, seed: tuple[int, int], resamples: int) -> Values:
    return resampled(of.statistic, of.sizes, np.random.default_rng(seed), resamples)


WithInterval = tuple[float, float, float]
"""A value and both ends of its interval."""


def from_intervals(a: WithInterval, b: WithInterval, null: float = 0.0) -> PairedDifference:
    """Return the difference of two values of independent images from their own 95 % intervals.

    The halves of the intervals that face one another are added in quadrature: Zou & Donner (2008),
    Statistics in Medicine 27, 1693-1702. For values on the same images the interval is too wide if
    the models' errors are correlated.

    Args:
        a: a value and both ends of its interval.
        b: the second value and both ends of its interval.
        null: the difference that the p value tests.
    """
    value_a, low_a, high_a = a
    value_b, low_b, high_b = b
    value = value_a - value_b
    below = math.hypot(value_a - low_a, high_b - value_b)
    above = math.hypot(high_a - value_a, value_b - low_b)

    # the half that faces the tested difference is 1.96 standard deviations wide
    half = below if value > null else above
    if value == null:
        p = 1.0
    elif half == 0:
        p = 0.0
    else:
        deviations = NormalDist().inv_cdf(0.975) * abs(value - null) / half
        p = 2 * NormalDist().cdf(-deviations)
    return PairedDifference(value, value - below, value + above, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for multiple tests.

    The probability of any false positive stays at the level.

    Holm (1979), Scandinavian Journal of Statistics 6(2), 65-70.

    Raises:
        ValueError: if a p value is not in 0..1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"not all of {list(p_values)} are within 0..1")
    n = len(p_values)
    order = sorted(range(n), key=lambda index: p_values[index])
    adjusted = [0.0] * n
    highest = 0.0
    for rank, index in enumerate(order):
        p = min(1.0, (n - rank) * p_values[index])
        highest = max(highest, p)
        adjusted[index] = highest
    return adjusted


def seed_difference(a: Sequence[float], b: Sequence[float]) -> PairedDifference | None:
    """Return the mean difference over seeds by Student's t for pairs.

    It returns None for fewer than two seeds.

    The interval is over trainings with other seeds, on the same test images. If the difference is
    the same for all seeds, the interval has no width.

    Args:
        a: the first model's value for each seed, (S,).
        b: the second model's values, for the same seeds in the same order.

    Raises:
        ValueError: if a value is not finite, or the numbers of values differ.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} seeds and {len(b)} cannot be paired")
    if len(a) < 2:
        return None
    differences = np.subtract(a, b, dtype=np.float64)
    if not np.isfinite(differences).all():
        raise ValueError(f"not all of {list(a)} and {list(b)} are finite")
    value = float(differences.mean())
    if differences.std() == 0:
        return PairedDifference(value, value, value, float(value == 0))
    from scipy.stats import ttest_1samp  # takes a second to import

    test = ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(0.95)
    return PairedDifference(value, float(low), float(high), float(test.pvalue))
