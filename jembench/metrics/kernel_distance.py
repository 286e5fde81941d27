"""KID: the squared maximum mean discrepancy between features of generated and of real images.

Binkowski et al. (2018), arXiv:1801.01401, section 3: the kernel (x.y / D + 1)^3 and the unbiased estimator; computed
by torch-fidelity's ``metric_kid``.

Legend: N generated images, M reference images, D features, R resamples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.estimates import Estimate
from jembench.metrics.generation import Generated, Scored, compare
from jembench.metrics.generative import KID
from jembench.stats import Indices, Statistic, multiplicities

Matrix = NDArray[Any]

_BLOCK = 1024


class Distance(NamedTuple):
    """KID: its mean and standard deviation over random subsets."""

    mean: float
    std: float


def kid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"], subsets: int, subset_size: int) -> Distance:
    """The mean over subsets of the unbiased squared MMD; slightly below 0 for equal distributions."""
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, KEY_METRIC_KID_STD, kid_features_to_metric

    found = kid_features_to_metric(
        generated.double(), reference.double(), kid_subsets=subsets, kid_subset_size=subset_size, verbose=False
    )
    return Distance(found[KEY_METRIC_KID_MEAN], found[KEY_METRIC_KID_STD])


def resampled_kid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> Statistic:
    """The unbiased squared MMD of all images, of index matrices (R, N) and (R, M).

    It is what the mean over subsets of :func:`kid` estimates. An image is not paired with itself, but is with its
    copies in the resample; the bias of that cancels in the interval, which keeps only deviations.
    """
    x, y = generated.double().numpy(), reference.double().numpy()

    def distances(drawn_x: Indices, drawn_y: Indices) -> Matrix:
        a, b = multiplicities(drawn_x, len(x)).astype(float), multiplicities(drawn_y, len(y)).astype(float)
        n, m = len(x), len(y)
        within_x = (_pair_sums(x, x, a, a) - a @ _self_kernel(x)) / (n * (n - 1))
        within_y = (_pair_sums(y, y, b, b) - b @ _self_kernel(y)) / (m * (m - 1))
        between = _pair_sums(x, y, a, b) / (n * m)
        unbiased: Matrix = within_x + within_y - 2 * between
        return unbiased

    return distances


def _kernel(x: Matrix, y: Matrix) -> Matrix:
    return _cube(x @ y.T / x.shape[1] + 1)


def _self_kernel(x: Matrix) -> Matrix:
    return _cube((x * x).sum(axis=1) / x.shape[1] + 1)


def _cube(base: Matrix) -> Matrix:
    return base * base * base  # several times faster than base**3


def _pair_sums(x: Matrix, y: Matrix, a: Matrix, b: Matrix) -> Matrix:
    """Sums of a_i k(x_i, y_j) b_j over all i and j, for each row of a (R, N) and b (R, M), without the N x M matrix."""
    total = np.zeros(len(a))
    for start in range(0, len(x), _BLOCK):
        rows = slice(start, start + _BLOCK)
        total += ((a[:, rows] @ _kernel(x[rows], y)) * b).sum(axis=1)
    return total


class Scaled(NamedTuple):
    """Both sets of features in units of the reference's mean and standard deviation."""

    generated: Tensor  # (N, D)
    reference: Tensor  # (M, D)


def standardised(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> Scaled:
    """Shift and scale each feature so that the reference has mean 0 and deviation 1; a constant one is only shifted."""
    mean, deviation = reference.mean(dim=0), reference.std(dim=0)
    deviation = deviation.where(deviation > 0, 1.0)
    return Scaled((generated - mean) / deviation, (reference - mean) / deviation)


def compute(metric: KID, evaluation: Evaluation) -> Measurement:
    """Measure generated images."""

    def distance(sample: Generated, real: Tensor) -> Scored:
        images, n, m = sample.features.pool, sample.n, len(real)
        standardise = sample.network.name != ""
        if standardise:
            images, real = standardised(images, real)
        subset_size = min(metric.subset_size, n, m)
        found = kid(images, real, metric.subsets, subset_size)
        return Scored(
            {"kid": Estimate(Resampling(resampled_kid(images, real), (n, m)), "", "lower", n, found.mean)},
            metric.resamples,
            {"subsets": metric.subsets, "subset_size": subset_size, "standardised": standardise},
            {"std_over_subsets": found.std},
        )

    return compare(metric, evaluation, distance)
