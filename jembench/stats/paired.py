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
from jembench.stats.intervals import agree, around, resampled, score_p


class Difference(NamedTuple):
    """A difference A - B, its 95 % interval and its two-sided p value."""

    value: float
    low: float
    high: float
    p: float


def mcnemar(correct_a: NDArray[np.bool_], correct_b: NDArray[np.bool_]) -> float:
    """Return the two-sided p value of McNemar's exact test.

    It only uses images on which one classifier is correct.

    McNemar (1947), Psychometrika 12(2), 153-157; exact, by the binomial distribution.

    Args:
        correct_a: bool (N,), True if the first classifier is correct on an image.
        correct_b: the same of the second.

    Raises:
        ValueError: if the numbers of images differ.
    """
    from scipy.stats import binomtest

    if len(correct_a) != len(correct_b):
        raise ValueError(f"{len(correct_a)} images and {len(correct_b)} cannot be paired")
    a, b = np.asarray(correct_a, dtype=bool), np.asarray(correct_b, dtype=bool)
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    either = only_a + only_b
    return float(binomtest(only_a, either).pvalue) if either else 1.0


def bootstrap_difference(
    a: Resampling,
    b: Resampling,
    difference: float,
    *,
    paired: bool,
    seed: int,
    resamples: int = 10_000,
    null: float = 0.0,
) -> Difference:
    """Return the difference of one statistic of two models, its bootstrap interval and its p value.

    The deviations are those from the resamples' median, see ``intervals.bootstrap_interval``. For
    two shares or rank statistics, interval and p value are at least those of the score interval.

    The p value is the share of resamples whose deviation is at least as large as the difference
    itself. Efron & Tibshirani (1993), chapter 16; the added 1 follows Davison & Hinkley (1997).

    Args:
        a: the statistic of the first model.
        b: the statistic of the second.
        difference: A - B on the images themselves.
        paired: True if the images are the same: both models then have the same resamples, otherwise
            each its own.
        seed: of the resamples. Differences of many models with one seed share those of each model.
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
    drawn = _drawn(a, (seed, 0), resamples) - _drawn(b, (seed, 0 if paired else 1), resamples)
    trials, within = min(a.trials, b.trials), (a.within[0] - b.within[1], a.within[1] - b.within[0])
    if not trials and agree(drawn):
        raise ValueError("all resamples agree, so that they determine no interval")
    # a deviation as large as the difference counts, even if rounding has made it a little smaller
    extreme = np.abs(drawn - np.median(drawn)) >= abs(difference - null) * (1 - 1e-9)
    p = (1 + int(extreme.sum())) / (len(drawn) + 1)
    if trials:
        p = max(p, score_p(difference, float(drawn.std()), trials, null, within))
    return Difference(difference, *around(difference, drawn, within=within, trials=trials), p)


@lru_cache(maxsize=512)
def _drawn(of: Resampling, seed: tuple[int, int], resamples: int) -> NDArray[np.float64]:
    return resampled(of.statistic, of.sizes, np.random.default_rng(seed), resamples)


def from_intervals(
    a: tuple[float, float, float], b: tuple[float, float, float], null: float = 0.0
) -> Difference:
    """Return the difference of two values of independent images from their own 95 % intervals.

    The halves of the intervals that face one another are added in quadrature: Zou & Donner (2008),
    Statistics in Medicine 27, 1693-1702. For values on the same images the interval is too wide if
    the models' errors are correlated.

    Args:
        a: a value and both ends of its interval.
        b: the second value and both ends of its interval.
        null: the difference that the p value tests.
    """
    value = a[0] - b[0]
    below, above = math.hypot(a[0] - a[1], b[2] - b[0]), math.hypot(a[2] - a[0], b[0] - b[1])
    half = below if value > null else above
    deviations = NormalDist().inv_cdf(0.975) * abs(value - null) / half if half else math.inf
    return Difference(
        value,
        value - below,
        value + above,
        2 * NormalDist().cdf(-deviations) if value != null else 1.0,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for multiple tests.

    The probability of any false positive stays at the level.

    Holm (1979), Scandinavian Journal of Statistics 6(2), 65-70.

    Raises:
        ValueError: if a p value is not in 0..1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"not all of {list(p_values)} are within 0..1")
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def seed_difference(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    """Return the mean difference over seeds by Student's t for pairs.

    None for fewer than two seeds.

    The interval is over trainings with other seeds, on the same test images. If the difference is
    the same for all seeds, it has no width.

    Args:
        a: the first model's value for each seed, (S,).
        b: the second model's values, for the same seeds in the same order.

    Raises:
        ValueError: if a value is not finite, or the numbers of values differ.
    """
    from scipy.stats import ttest_1samp

    if len(a) != len(b):
        raise ValueError(f"{len(a)} seeds and {len(b)} cannot be paired")
    if len(a) < 2:
        return None
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    if not np.isfinite(differences).all():
        raise ValueError(f"not all of {list(a)} and {list(b)} are finite")
    value = float(differences.mean())
    if differences.std() == 0:
        return Difference(value, value, value, 1.0 if value == 0 else 0.0)
    test = ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(0.95)
    return Difference(value, float(low), float(high), float(test.pvalue))
