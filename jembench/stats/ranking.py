"""Rank statistics of a score on two sets of images: AUROC, FPR at 95 % TPR, average precision.

The scores are ranked once, and each resample then takes a few sums over ranks instead of a sort. A
higher score means more likely inside.

Legend: N scores inside, M outside, U distinct scores.
"""

from collections.abc import Callable, Sequence

import numpy as np

from jembench.interfaces import Resampling
from jembench.stats.intervals import Counts, Indices, Values

TPR = 0.95
"""The share of the positive class above the threshold of ``fpr95``."""


def resamplings(inside: Values, outside: Values) -> dict[str, Resampling]:
    """Return AUROC, FPR at 95 % TPR and average precision as statistics, 0 to 1.

    They are statistics of both sets.

    ``auroc`` is P(inside scores higher than outside), ties counting half. With inside as the
    positive class, ``fpr95-in`` is the least share of outside above a threshold that at least 95 %
    of inside reach, and ``aupr-in`` the average precision. ``fpr95-out`` and ``aupr-out`` are the
    same statistics of the negated scores, with outside as the positive class. The sets are
    resampled independently.

    Raises:
        ValueError: if a score is not finite, or if there are no scores.
    """
    inside = np.asarray(inside, dtype=np.float64)
    outside = np.asarray(outside, dtype=np.float64)
    return {
        "auroc": auroc_resampling(inside, outside),
        "fpr95-in": fpr_resampling(inside, outside),
        "aupr-in": average_precision_resampling(inside, outside),
        "fpr95-out": _swapped(fpr_resampling(-outside, -inside)),
        "aupr-out": _swapped(average_precision_resampling(-outside, -inside)),
    }


def trapezoids(inside: Values, outside: Values) -> dict[str, Resampling]:
    """Return the trapezoidal areas under both precision-recall curves.

    They are statistics of both sets.
    """
    area_in = trapezoid_resampling(inside, outside)
    area_out = _swapped(trapezoid_resampling(-outside, -inside))
    return {"aupr-in-trapezoid": area_in, "aupr-out-trapezoid": area_out}


def mean_over_sets(resamplings: Sequence[Resampling]) -> Resampling:
    """Return the mean of a statistic over sets of outliers.

    All sets share each resample of the inside scores.
    """

    def mean(of_inside: Indices, *of_sets: Indices) -> Values:
        values = []
        for resampling, of_set in zip(resamplings, of_sets, strict=True):
            values.append(resampling.statistic(of_inside, of_set))
        return np.asarray(np.mean(values, axis=0))

    outside = [resampling.sizes[1] for resampling in resamplings]
    sizes = (resamplings[0].sizes[0], *outside)
    return Resampling(mean, sizes, (0.0, 1.0), min(sizes))


def _swapped(resampling: Resampling) -> Resampling:
    """Return the statistic with its two sets exchanged."""
    return resampling._replace(
        statistic=lambda first, second: resampling.statistic(second, first),
        sizes=resampling.sizes[::-1],
    )


def auroc_resampling(inside: Values, outside: Values) -> Resampling:
    """Return AUROC as a statistic of both sets, which are resampled independently.

    It is the share of pairs in which the inside score is higher, ties counting half: Mann & Whitney
    (1947), Annals of Mathematical Statistics 18(1), 50-60.
    """
    pairs = len(inside) * len(outside)

    def auroc(of_inside: Counts, of_outside: Counts) -> float:
        twice_above = 2 * of_inside.cumsum() - of_inside  # whole numbers: exact
        return int(of_outside @ twice_above) / (2 * pairs)

    return _resampling(inside, outside, auroc)


def fpr_resampling(inside: Values, outside: Values, tpr: float = TPR) -> Resampling:
    """Return the least FPR at a TPR of ``tpr`` or more, as a statistic of both sets."""

    def fpr(of_inside: Counts, of_outside: Counts) -> float:
        rates = of_inside.cumsum() / len(inside)
        threshold = int(np.searchsorted(rates, tpr))
        return int(of_outside[: threshold + 1].sum()) / len(outside)

    return _resampling(inside, outside, fpr)


def average_precision_resampling(inside: Values, outside: Values) -> Resampling:
    """Return average precision as a statistic of both sets.

    It is the mean, over the inside scores, of the precision at each score.
    """

    def average_precision(of_inside: Counts, of_outside: Counts) -> float:
        true = of_inside.cumsum()
        # at least 1, since a resample may have no score so high
        passing = np.maximum(true + of_outside.cumsum(), 1)
        return float(of_inside @ (true / passing)) / len(inside)

    return _resampling(inside, outside, average_precision)


def trapezoid_resampling(inside: Values, outside: Values) -> Resampling:
    """Return the trapezoidal area under the precision-recall curve.

    The curve starts at precision 1 and recall 0.
    """

    def area(of_inside: Counts, of_outside: Counts) -> float:
        true = of_inside.cumsum()
        passing = (of_inside + of_outside).cumsum()
        precision = np.where(passing, true / np.maximum(passing, 1), 1.0)
        before = np.r_[1.0, precision[:-1]]
        return float(of_inside @ (precision + before)) / (2 * len(inside))

    return _resampling(inside, outside, area)


def _resampling(
    inside: Values, outside: Values, value: Callable[[Counts, Counts], float]
) -> Resampling:
    """Return a statistic of the counts of each distinct score in both sets.

    The distinct scores are in descending order. Resamples are processed one by one, since the
    counts of one resample fit into the cache.
    """
    _check(inside, outside)
    scores = np.concatenate([inside, outside]).astype(np.float64)
    distinct, ranks = np.unique(-scores, return_inverse=True)
    n, most = len(inside), len(distinct)
    inside_ranks, outside_ranks = ranks[:n], ranks[n:]

    def statistic(drawn_inside: Indices, drawn_outside: Indices) -> Values:
        values = []
        for i, j in zip(drawn_inside, drawn_outside, strict=True):
            of_inside = np.bincount(inside_ranks[i], minlength=most)
            of_outside = np.bincount(outside_ranks[j], minlength=most)
            values.append(value(of_inside, of_outside))
        return np.array(values)

    sizes = (n, len(outside))
    return Resampling(statistic, sizes, (0.0, 1.0), min(sizes))  # most pairs without a common image


def _check(inside: Values, outside: Values) -> None:
    for what, scores in (("inside", inside), ("outside", outside)):
        if not len(scores):
            raise ValueError(f"there are no scores {what}")
        bad = np.count_nonzero(~np.isfinite(scores))
        if bad:
            raise ValueError(
                f"{bad} of {len(scores)} scores {what} are not finite, so that they cannot be "
                "ranked"
            )
