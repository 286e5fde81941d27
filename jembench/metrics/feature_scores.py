"""Statistics of features of generated images: IS, FID, KID, precision and recall.

torch-fidelity computes their values. The resamples are computed by the implementations here, which are many times
faster and agree with torch-fidelity's.

Legend: N generated images, M reference images, D features, K logits, S splits, R resamples.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench import progress
from jembench.models.devices import one_thread
from jembench.stats.intervals import Indices, Statistic, multiplicities

Matrix = NDArray[Any]

_BLOCK = 1024


class Spread(NamedTuple):
    """The mean and standard deviation of a value over splits or random subsets."""

    mean: float
    std: float


# --- Inception score --------------------------------------------------------------------------------------------------


def inception_score(logits: Float[Tensor, "N K"], splits: int) -> Spread:
    """Return the mean over S splits of the shuffled images of IS = exp(mean over images of KL(p(y|x) || p(y)))."""
    from torch_fidelity.metric_isc import isc_features_to_metric

    return Spread(*isc_features_to_metric(logits.double(), splits=splits).values())


def inception_score_in_order(logits: Float[Tensor, "N K"], splits: int) -> Spread:
    """Return the score of the images in their order, N // S in each split, without the remaining ones.

    This is the score of the code of Barratt & Sharma (2018), arXiv:1801.01973, which the reproducibility report uses.
    Neighbouring images that are alike, as in a replay buffer, lower it.
    """
    parts = logits[: len(logits) // splits * splits].chunk(splits)
    of_splits = np.array([inception_score(part, 1).mean for part in parts])
    return Spread(float(of_splits.mean()), float(of_splits.std()))


def resampled_score(logits: Float[Tensor, "N K"], splits: int, *, even: bool = False) -> Statistic:
    """Return the mean score of index matrices (R, N), whose columns are divided into the S splits.

    With ``even``, the splits are of equal size and the remaining columns are left out.

    With KL = sum_k p log p - sum_k p log q, a split's score needs only the sums of p and of sum_k p log p over it.
    """
    log_p: NDArray[np.float64] = logits.double().log_softmax(dim=1).numpy()
    p = np.exp(log_p)
    n = len(p)
    sums = np.concatenate([p, (p * log_p).sum(axis=1, keepdims=True)], axis=1)
    used = n // splits * splits if even else n
    bounds = [(i * used // splits, (i + 1) * used // splits) for i in range(splits)]

    def scores(indices: Indices) -> NDArray[Any]:
        of_splits = [_score(multiplicities(indices[:, a:b], n) @ sums / (b - a)) for a, b in bounds]
        mean: NDArray[np.float64] = np.stack(of_splits).mean(axis=0)
        return mean

    return scores


def _score(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp of the mean KL from the means of p and, in the last column, of sum_k p log p."""
    q, mean_negentropy = means[:, :-1], means[:, -1]
    log_q = np.log(q, out=np.zeros_like(q), where=q > 0)  # 0 log 0 = 0
    scores: NDArray[np.float64] = np.exp(mean_negentropy - (q * log_q).sum(axis=1))
    return scores


# --- Fréchet distance -------------------------------------------------------------------------------------------------


SMALL = 512
"""The largest number of features for one thread: more threads would cost more than they save. With Inception's 2,048
features a resample of FID takes about half a minute on two busy cores."""


class Moments(NamedTuple):
    """A fitted Gaussian, float64."""

    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D)


def fid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> float:
    """Return |mean_1 - mean_2|^2 + tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)), torch-fidelity's value in float64."""
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = (fid_features_to_statistics(features.double()) for features in (generated, reference))
    return float(fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID])


def frechet_distance(first: Moments, second: Moments) -> float:
    """Return the distance of :func:`fid` through symmetric eigenvalue problems, which are faster than that of S_1 S_2.

    tr (S_1 S_2)^(1/2) is the sum of the square roots of the eigenvalues of S_1^(1/2) S_2 S_1^(1/2), which is symmetric.
    """
    eigenvalues, vectors = torch.linalg.eigh(first.covariance)
    root = vectors * eigenvalues.clamp(min=0).sqrt()  # root @ root.T = S_1
    shared = torch.linalg.eigvalsh(root.T @ second.covariance @ root).clamp(min=0).sqrt().sum()
    traces = first.covariance.trace() + second.covariance.trace()
    return float((first.mean - second.mean).square().sum() + traces - 2 * shared)


def weighted_moments(features: Float[Tensor, "N D"], weights: Float[Tensor, " N"]) -> Moments:
    """Return the mean and the unbiased covariance of features, each repeated as often as its weight."""
    n = weights.sum()
    mean = weights @ features / n
    centred = features - mean
    return Moments(mean, (centred.T * weights) @ centred / (n - 1))


def resampled_fid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> Statistic:
    """Return FID of index matrices (R, N) and (R, M)."""
    samples, real = generated.double(), reference.double()

    def distances(drawn_samples: Indices, drawn_real: Indices) -> NDArray[np.float64]:
        of_samples = torch.from_numpy(multiplicities(drawn_samples, len(samples))).double()
        of_real = torch.from_numpy(multiplicities(drawn_real, len(real))).double()
        with one_thread() if samples.shape[1] <= SMALL else nullcontext():
            return np.array(
                [
                    frechet_distance(weighted_moments(samples, a), weighted_moments(real, b))
                    for a, b in progress.track(list(zip(of_samples, of_real, strict=True)), "", "resamples")
                ]
            )

    return distances


# --- kernel distance --------------------------------------------------------------------------------------------------


def kid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"], subsets: int, subset_size: int) -> Spread:
    """Return the mean over subsets of the unbiased squared MMD; slightly below 0 for equal distributions."""
    from torch_fidelity.metric_kid import kid_features_to_metric

    pools = (features.double() for features in (generated, reference))
    distance = kid_features_to_metric(*pools, kid_subsets=subsets, kid_subset_size=subset_size, verbose=False)
    return Spread(*map(float, distance.values()))


def resampled_kid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> Statistic:
    """Return the unbiased squared MMD of all images, of index matrices (R, N) and (R, M).

    The mean over subsets of :func:`kid` estimates it. An image is not paired with itself, but with its copies in the
    resample; their bias cancels in the interval, which only uses deviations.
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


def _self_kernel(x: Matrix) -> Matrix:
    return _cube((x * x).sum(axis=1) / x.shape[1] + 1)


def _cube(base: Matrix) -> Matrix:
    return base * base * base  # several times faster than base**3


def _pair_sums(x: Matrix, y: Matrix, a: Matrix, b: Matrix) -> Matrix:
    """Return the sum of a_i k(x_i, y_j) b_j for each row of a (R, N) and b (R, M), without the N x M matrix."""
    total = np.zeros(len(a))
    for start in progress.track(range(0, len(x), _BLOCK), "", "blocks"):
        rows = slice(start, start + _BLOCK)
        total += ((a[:, rows] @ _cube(x[rows] @ y.T / x.shape[1] + 1)) * b).sum(axis=1)
    return total


def standardised(
    generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "M D"]]:
    """Shift and scale each feature so that the reference has mean 0 and deviation 1; only shift a constant feature."""
    mean, deviation = reference.mean(dim=0), reference.std(dim=0)
    deviation = deviation.where(deviation > 0, 1.0)
    return (generated - mean) / deviation, (reference - mean) / deviation


# --- precision and recall, density and coverage -----------------------------------------------------------------------


_KEPT_PER_NEIGHBOUR = 12
"""Neighbours kept per neighbour needed: a resample holds 63 % of the images, and fewer than k of the 12 k nearest once
in a million or less."""


def precision_recall(
    generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"], neighbours: int
) -> tuple[float, float]:
    """Return precision and recall: the shares of images of one set inside a k-nearest-neighbour ball of the other."""
    from torch_fidelity.metric_prc import KEY_METRIC_PRECISION, KEY_METRIC_RECALL, prc_features_to_metric

    values = prc_features_to_metric(generated, reference, prc_neighborhood=neighbours, save_cpu_ram=True, verbose=False)
    return values[KEY_METRIC_PRECISION], values[KEY_METRIC_RECALL]


class Balls:
    """Balls around M images, each up to its k-th nearest other image, and the N points inside them.

    A resample holds copies, at distance 0, which would shrink the balls around their neighbours. The k-th neighbour is
    therefore the k-th nearest *other image* that was drawn. The spread of the resamples is then that of independent
    sets of images (checked by simulation), and their mean is nearly the same.
    """

    def __init__(self, points: Tensor, centres: Tensor, neighbours: int) -> None:
        self.neighbours = neighbours
        self.distance = torch.cdist(points, centres).numpy()
        self.others, self.indices = nearest_others(centres, _KEPT_PER_NEIGHBOUR * neighbours)

    def precision(self) -> Statistic:
        """Return the share of points inside a ball, in %: Kynkäänniemi et al. (2019), (2)."""
        return self.statistic(lambda inside, points, _: 100 * points @ inside.any(axis=1) / points.sum())

    def statistic(self, value: Callable[[Matrix, Matrix, Matrix], Any]) -> Statistic:
        """Return a value of index matrices (R, N) and (R, M).

        Args:
            value: of the pairs of a point inside a ball (N, M), and of how often each point and each ball were drawn.
        """

        def values(drawn_points: Indices, drawn_centres: Indices) -> Matrix:
            points = multiplicities(drawn_points, len(self.distance)).astype(float)  # faster products
            balls = multiplicities(drawn_centres, len(self.distance.T)).astype(float)
            rows = progress.track(list(zip(points, balls, strict=True)), "", "resamples")
            return np.array([value(self.inside(of_balls > 0), of_points, of_balls) for of_points, of_balls in rows])

        return values

    def inside(self, drawn: NDArray[np.bool_]) -> Matrix:
        """Return the pairs of a point inside a ball, bool (N, M), of the balls around the images drawn (M,)."""
        inside: Matrix = self.distance <= self.radii(drawn)
        return inside

    def radii(self, drawn: NDArray[np.bool_]) -> Matrix:
        """Return the radius of each ball (M,) among the images drawn (M,); -1 for those that were not."""
        reached = drawn[self.indices].cumsum(axis=1) >= self.neighbours
        position = np.where(reached[:, -1], reached.argmax(axis=1), -1)  # -1: the last one kept, if fewer are drawn
        return np.where(drawn, self.others[np.arange(len(position)), position], -1.0)


def nearest_others(features: Float[Tensor, "M D"], count: int) -> tuple[Matrix, Matrix]:
    """Return the distances and the indices (M, T) of the nearest other images of each image, T = ``count`` or M - 1."""
    parts = []
    for start in range(0, len(features), _BLOCK):
        block = torch.cdist(features[start : start + _BLOCK], features)
        itself = torch.arange(len(block))
        block[itself, start + itself] = -torch.inf  # first in the order despite rounding, then left out
        parts.append(block.topk(min(count + 1, len(features)), largest=False))
    distance, indices = (torch.cat(part)[:, 1:].numpy() for part in zip(*parts, strict=True))
    return distance, indices
