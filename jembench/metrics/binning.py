"""Calibration errors in bins of equal width or of equal mass, as statistics of resamples.

Legend: N examples, K columns of confidences, M bins, S rows, R resamples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jembench.metrics.base import Array
    from jembench.stats.intervals import Indices, Statistic


def equal_width(confidence: Array, bins: int) -> Array:
    """Return each confidence's bin, of ``bins`` bins of equal width on [0, 1].

    Bins are [a, b), the last one [a, 1].
    """
    import numpy as np

    edges = np.linspace(0, 1, bins + 1)
    places = np.searchsorted(edges, confidence, side="right") - 1
    return np.minimum(places, bins - 1)


def binned_error(confidence: Array, hit: Array, bins: int) -> Statistic:
    """Return the calibration error in M bins of equal width, 0 to 1.

    The error is the sum over bins of |sum of (hit - confidence)| / N: the mean of |frequency - mean
    confidence|, weighted by the bins' shares of the examples. For several columns (N, K), each with
    its own bins, it is the mean over columns. The statistic takes index matrices (R, N).
    """
    import numpy as np

    columns = confidence.reshape(len(confidence), -1).T
    gaps = hit.reshape(len(hit), -1).T - columns
    sums = _sums_in_bins(gaps, equal_width(columns, bins), bins)
    return lambda indices: np.abs(sums(indices)).sum(axis=0) / gaps.size


def debiased_squared_error(confidence: Array, hit: Array, bins: int) -> Statistic:
    """Return the mean squared gap of the examples' bins, without bias.

    The statistic takes index matrices (R, N).

    In a bin with n_b examples, the squared mean of (hit - confidence) is too large by the variance
    of the mean, which is estimated from these examples and subtracted: Kumar et al. (2019),
    arXiv:1909.10155, section 5. Kumar et al. use the variance of the hits only, for confidences
    that are equal within a bin. A bin with one example counts as 0.
    """
    import numpy as np

    gaps = hit - confidence
    powers = np.stack([np.ones_like(gaps), gaps, gaps**2])
    sums = _sums_in_bins(powers, equal_width(confidence, bins), bins)

    def errors(indices: Indices) -> Array:
        count, first, second = sums(indices).reshape(3, bins, -1)
        # n_b (mean^2 - variance / n_b) = (sum^2 - sum of squares) / (n_b - 1)
        unbiased = (first**2 - second) / (np.maximum(count, 2) - 1)
        of_bins = np.where(count > 1, unbiased, 0.0)
        total: Array = of_bins.sum(axis=0) / indices.shape[1]
        return total

    return errors


def _sums_in_bins(values: Array, where: Array, bins: int) -> Statistic:
    """Return the statistic that sums the drawn examples per bin, (S M, R).

    ``values`` and their bins, ``where``, are (S, N).
    """
    import numpy as np
    from scipy.sparse import csr_array

    from jembench.stats.intervals import multiplicities

    rows, n = values.shape
    bin_of_value = (where + bins * np.arange(rows)[:, None]).ravel()
    example_of_value = np.tile(np.arange(n), rows)
    places = (bin_of_value, example_of_value)
    into_bins = csr_array((values.ravel(), places), shape=(rows * bins, n))
    return lambda indices: into_bins @ multiplicities(indices, n).T


def adaptive_error(confidence: Array, hit: Array, bins: int) -> Statistic:
    """Return the sum of :func:`binned_error` over M bins of equal mass.

    Each resample has bins of its own.

    An example is in bin ceil(F M), where F is the share of examples with at most its confidence. So
    bins hold N / M examples each, up to rounding, and examples of the same confidence are always in
    the same bin.
    """
    import numpy as np

    distinct, group = np.unique(confidence, return_inverse=True)
    groups = len(distinct)
    gap = hit - confidence

    def errors(indices: Indices) -> Array:
        resamples, n = indices.shape
        resample = np.arange(resamples)[:, None]
        # the examples of equal confidence are counted and summed at once
        places = (group[indices] + groups * resample).ravel()
        weights = gap[indices].ravel()
        count = np.bincount(places, minlength=resamples * groups).reshape(resamples, groups)
        gaps = np.bincount(places, weights=weights, minlength=resamples * groups)
        # integer division, rounded up
        where = np.maximum(-(-count.cumsum(axis=1) * bins // n) - 1, 0)
        where += bins * resample
        sums = np.bincount(where.ravel(), weights=gaps, minlength=resamples * bins)
        total: Array = np.abs(sums.reshape(resamples, bins)).sum(axis=1) / n
        return total

    return errors


class Reliability(NamedTuple):
    """A reliability diagram: examples, accuracy and confidence of each bin.

    Accuracy and confidence of an empty bin are NaN.
    """

    edges: Array  # (M + 1,)
    counts: Array  # (M,)
    accuracy: Array  # (M,) in 0..1
    confidence: Array  # (M,) mean, in 0..1


def reliability(confidence: Array, correct: Array, bins: int) -> Reliability:
    """Return accuracy and mean confidence in M bins of equal width.

    Guo et al. (2017), arXiv:1706.04599, figure 1.
    """
    import numpy as np

    edges = np.linspace(0, 1, bins + 1)
    where = equal_width(confidence, bins)
    counts = np.bincount(where, minlength=bins)
    hits = np.bincount(where, weights=correct, minlength=bins)
    confidences = np.bincount(where, weights=confidence, minlength=bins)
    with np.errstate(invalid="ignore"):
        return Reliability(edges, counts, hits / counts, confidences / counts)
