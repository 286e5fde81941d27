"""Bins of confidence, for reliability diagrams and calibration errors. Imports no torch.

Legend: N examples, K columns of confidences, M bins, R resamples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench.stats import Indices, Statistic, multiplicities

Floats = NDArray[np.float64]


class Reliability(NamedTuple):
    """A reliability diagram: the examples of each bin, their accuracy and confidence; NaN for an empty bin."""

    edges: Floats  # (M + 1,)
    counts: NDArray[np.int64]  # (M,)
    accuracy: Floats  # (M,) in 0..1
    confidence: Floats  # (M,) mean, in 0..1


def reliability(confidence: Floats, correct: NDArray[np.bool_], bins: int) -> Reliability:
    """Return accuracy and mean confidence in M bins of equal width. Guo et al. (2017), arXiv:1706.04599, figure 1."""
    where = equal_width(confidence, bins)
    counts = np.bincount(where, minlength=bins)
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(where, weights=correct, minlength=bins) / counts
        mean = np.bincount(where, weights=confidence, minlength=bins) / counts
    return Reliability(np.linspace(0, 1, bins + 1), counts, accuracy, mean)


def equal_width(confidence: Floats, bins: int) -> NDArray[np.int64]:
    """Return the bin of each confidence among M of equal width on [0, 1]: [a, b), the last one [a, 1]."""
    edges = np.linspace(0, 1, bins + 1)
    return np.minimum(np.searchsorted(edges, confidence, side="right") - 1, bins - 1)


def binned_error(confidence: Floats, hit: NDArray[np.bool_], bins: int) -> Statistic:
    """Return the sum over M bins of equal width of |sum of (hit - confidence)| / N, in 0..1, of index matrices (R, N).

    The weight of a bin is its share of the examples, so this is the weighted mean of |frequency - mean confidence|. For
    several columns, (N, K), each with its own bins, it is the mean over columns.
    """
    from scipy.sparse import csr_array

    n = len(confidence)
    columns = confidence.reshape(n, -1)
    k = columns.shape[1]
    gaps = hit.reshape(n, -1) - columns
    where = equal_width(columns, bins) + bins * np.arange(k)
    # an example is in one bin per column: N K of the N K M weights of the sum are not zero
    into_bins = csr_array((gaps.ravel(), (where.ravel(), np.repeat(np.arange(n), k))), shape=(k * bins, n))

    def errors(indices: Indices) -> Floats:
        sums = into_bins @ multiplicities(indices, n).T
        total: Floats = np.abs(sums).sum(axis=0) / (n * k)
        return total

    return errors


def debiased_squared_error(confidence: Floats, hit: NDArray[np.bool_], bins: int) -> Statistic:
    """Return the mean over examples of the squared gap of their bin, without bias, of index matrices (R, N).

    The squared mean of (hit - confidence) of a bin with n_b examples is too large by that mean's variance, which is
    estimated from the n_b examples and subtracted: Kumar et al. (2019), arXiv:1909.10155, section 5. Their variance
    is that of hits alone, for confidences that are equal within a bin. A bin with one example counts as 0.
    """
    from scipy.sparse import csr_array

    gaps, where, examples = hit - confidence, equal_width(confidence, bins), np.arange(len(confidence))
    weights = np.concatenate([np.ones_like(gaps), gaps, gaps**2])
    rows = np.concatenate([where, where + bins, where + 2 * bins])
    into_sums = csr_array((weights, (rows, np.tile(examples, 3))), shape=(3 * bins, len(confidence)))

    def errors(indices: Indices) -> Floats:
        sums = into_sums @ multiplicities(indices, len(confidence)).T
        count, first, second = sums.reshape(3, bins, -1)
        several = np.maximum(count, 2)
        # n_b (mean^2 - variance / n_b) = (sum^2 - sum of squares) / (n_b - 1)
        of_bins = np.where(count > 1, (first**2 - second) / (several - 1), 0.0)
        total: Floats = of_bins.sum(axis=0) / indices.shape[1]
        return total

    return errors


def adaptive_error(confidence: Floats, hit: NDArray[np.bool_], bins: int) -> Statistic:
    """Return the sum of :func:`binned_error` over M bins of equal mass, which are those of each resample.

    An example is in bin ceil(F M), where F is the share of examples that are not more confident. So bins hold N / M
    examples each, up to rounding, and examples of the same confidence are always in the same bin.
    """
    distinct, group = np.unique(confidence, return_inverse=True)
    gap = hit - confidence

    def errors(indices: Indices) -> Floats:
        rows, n = indices.shape
        places = (group[indices] + len(distinct) * np.arange(rows)[:, None]).ravel()
        shape = (rows, len(distinct))
        count = np.bincount(places, minlength=rows * len(distinct)).reshape(shape)
        gaps = np.bincount(places, weights=gap[indices].ravel(), minlength=rows * len(distinct)).reshape(shape)
        where = np.maximum(-(-count.cumsum(axis=1) * bins // n) - 1, 0)  # integer division, rounded up
        where += bins * np.arange(rows)[:, None]
        sums = np.bincount(where.ravel(), weights=gaps.ravel(), minlength=rows * bins).reshape(rows, bins)
        total: Floats = np.abs(sums).sum(axis=1) / n
        return total

    return errors
