"""Rank statistics of a score on two sets of images: AUROC, FPR at 95 % TPR, average precision.

The scores are ranked once, and each resample then takes a few sums over ranks instead of a sort. A
higher score means more likely inside.

Legend: N scores inside, M outside, U distinct scores.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jembench.interfaces import Resampling
from jembench.stats.intervals import Indices

Scores = NDArray[np.float64]
Counts = NDArray[np.int64]

TPR = 0.95
"""The share of the positive class above the threshold of ``fpr95``."""


def resamplings(inside: Scores, outside: Scores) -> dict[str, Resampling]:
    """Return AUROC, FPR at 95 % TPR and average precision as statistics, 0 to 1.

    They are statistics of both sets.

    ``auroc`` is P(inside scores higher than outside), ties counting half. With inside as the
    positive class, ``fpr95-in`` is the least share of outside above a threshold that at least 95 %
    of inside reach, and ``aupr-in`` the average precision. ``fpr95-out`` and ``aupr-out`` are those
    of the negated scores, with outside as the positive class. The sets are resampled independently.

    Raises:
        ValueError: if a score is not finite, or if there are no scores.
    """
    inside, outside = (np.asarray(scores, dtype=np.float64) for scores in (inside, outside))
    return {
        "auroc": auroc_resampling(inside, outside),
        "fpr95-in": fpr_resampling(inside, outside),
        "aupr-in": average_precision_resampling(inside, outside),
        "fpr95-out": _swapped(fpr_resampling(-outside, -inside)),
        "aupr-out": _swapped(average_precision_resampling(-outside, -inside)),
    }


def trapezoids(inside: Scores, outside: Scores) -> dict[str, Resampling]:
    """Return the areas under both precision-recall curves by the trapezoidal rule.

    They are statistics of both sets.
    """
    swapped = _swapped(trapezoid_resampling(-outside, -inside))
    return {
        "aupr-in-trapezoid": trapezoid_resampling(inside, outside),
        "aupr-out-trapezoid": swapped,
    }


def mean_over_sets(resamplings: Sequence[Resampling]) -> Resampling:
    """Return the mean of a statistic over sets of outliers.

    All share each resample of the inside scores.
    """

    def mean(of_inside: Indices, *of_sets: Indices) -> Scores:
        each = zip(resamplings, of_sets, strict=True)
        return np.asarray(np.mean([one.statistic(of_inside, drawn) for one, drawn in each], axis=0))

    sizes = (resamplings[0].sizes[0], *(one.sizes[1] for one in resamplings))
    return Resampling(mean, sizes, (0.0, 1.0), min(sizes))


def _swapped(resampling: Resampling) -> Resampling:
    """Return the statistic with its two sets exchanged."""
    return resampling._replace(
        statistic=lambda first, second: resampling.statistic(second, first),
        sizes=resampling.sizes[::-1],
    )


def auroc_resampling(inside: Scores, outside: Scores) -> Resampling:
    """Return AUROC as a statistic of both sets, which are resampled independently.

    It is the share of pairs in which the inside score is higher, ties counting half: Mann & Whitney
    (1947), Annals of Mathematical Statistics 18(1), 50-60.
    """
    pairs = len(inside) * len(outside)

    def auroc(of_inside: Counts, of_outside: Counts) -> float:
        twice_above = 2 * of_inside.cumsum() - of_inside  # whole numbers: exact
        return int(of_outside @ twice_above) / (2 * pairs)

    return _resampling(inside, outside, auroc)


def fpr_resampling(inside: Scores, outside: Scores, tpr: float = TPR) -> Resampling:
    """Return the least FPR at a TPR of ``tpr`` or more, as a statistic of both sets."""

    def fpr(of_inside: Counts, of_outside: Counts) -> float:
        threshold = int(np.searchsorted(of_inside.cumsum() / len(inside), tpr))
        return int(of_outside[: threshold + 1].sum()) / len(outside)

    return _resampling(inside, outside, fpr)


def average_precision_resampling(inside: Scores, outside: Scores) -> Resampling:
    """Return average precision as a statistic of both sets.

    It is the mean over inside of the precision at its own score.
    """

    def average_precision(of_inside: Counts, of_outside: Counts) -> float:
        true = of_inside.cumsum()
        # 0 if no score of the resample is so high
        passing = np.maximum(true + of_outside.cumsum(), 1)
        return float(of_inside @ (true / passing)) / len(inside)

    return _resampling(inside, outside, average_precision)


def trapezoid_resampling(inside: Scores, outside: Scores) -> Resampling:
    """Return the area under the precision-recall curve by the trapezoidal rule.

    It starts at precision 1 and recall 0.
    """

    def area(of_inside: Counts, of_outside: Counts) -> float:
        true, passing = of_inside.cumsum(), (of_inside + of_outside).cumsum()
        precision = np.where(passing, true / np.maximum(passing, 1), 1.0)
        return float(of_inside @ (precision + np.r_[1.0, precision[:-1]])) / (2 * len(inside))

    return _resampling(inside, outside, area)


def _resampling(
    inside: Scores, outside: Scores, value: Callable[[Counts, Counts], float]
) -> Resampling:
    """Return a statistic of the counts of each distinct score in both sets.

    Scores are in descending order.

    Resamples are processed one by one, since the counts of one fit into the cache.
    """
    _check(inside, outside)
    distinct, ranks = np.unique(
        -np.concatenate([inside, outside]).astype(np.float64), return_inverse=True
    )
    of_inside, of_outside = ranks[: len(inside)], ranks[len(inside) :]

    def counts(drawn: Indices) -> Counts:
        return np.bincount(drawn, minlength=len(distinct))

    def statistic(drawn_inside: Indices, drawn_outside: Indices) -> Scores:
        resamples = zip(drawn_inside, drawn_outside, strict=True)
        return np.array([value(counts(of_inside[i]), counts(of_outside[j])) for i, j in resamples])

    sizes = (len(inside), len(outside))
    return Resampling(statistic, sizes, (0.0, 1.0), min(sizes))  # pairs without a common image


def _check(inside: Scores, outside: Scores) -> None:
    for what, scores in (("inside", inside), ("outside", outside)):
        if not len(scores):
            raise ValueError(f"there are no scores {what}")
        bad = int((~np.isfinite(scores)).sum())
        if bad:
            raise ValueError(
                f"{bad} of {len(scores)} scores {what} are not finite, so that they cannot be "
                "ranked"
            )
