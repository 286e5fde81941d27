"""FID: the Fréchet distance between Gaussians fitted to features of generated and of real images.

Heusel et al. (2017), arXiv:1706.08500, equation 6; computed by torch-fidelity's ``metric_fid`` on float64 features.

Legend: N generated images, M reference images, D features, R resamples.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.estimates import Estimate
from jembench.metrics.generation import Generated, Scored, compare
from jembench.metrics.generative import FID
from jembench.models.devices import one_thread
from jembench.stats import Indices, Statistic, multiplicities

_RESAMPLES = 200
"""With Inception's 2,048 features a resample takes about half a minute on two busy cores: by default there is none."""

_SMALL = 512
"""Up to this number of features, threads cost more than they save, and much more on a busy machine."""


class Moments(NamedTuple):
    """A fitted Gaussian, float64."""

    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D)


def fid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> float:
    """|mean_1 - mean_2|^2 + tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)), torch-fidelity's value in float64."""
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = (fid_features_to_statistics(features.double()) for features in (generated, reference))
    return float(fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID])


def frechet_distance(first: Moments, second: Moments) -> float:
    """The same distance through symmetric eigenvalue problems, faster than those of the product S_1 S_2.

    tr (S_1 S_2)^(1/2) is the sum of the square roots of the eigenvalues of S_1^(1/2) S_2 S_1^(1/2), which is symmetric.
    """
    eigenvalues, vectors = torch.linalg.eigh(first.covariance)
    root = vectors * eigenvalues.clamp(min=0).sqrt()  # root @ root.T = S_1
    shared = torch.linalg.eigvalsh(root.T @ second.covariance @ root).clamp(min=0).sqrt().sum()
    traces = first.covariance.trace() + second.covariance.trace()
    return float((first.mean - second.mean).square().sum() + traces - 2 * shared)


def weighted_moments(features: Float[Tensor, "N D"], weights: Float[Tensor, " N"]) -> Moments:
    """The mean and the unbiased covariance of features, each counted as often as its weight says."""
    n = weights.sum()
    mean = weights @ features / n
    centred = features - mean
    return Moments(mean, (centred.T * weights) @ centred / (n - 1))


def resampled_fid(generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"]) -> Statistic:
    """FID of index matrices (R, N) and (R, M)."""
    samples, real = generated.double(), reference.double()

    def distances(drawn_samples: Indices, drawn_real: Indices) -> NDArray[np.float64]:
        of_samples = torch.from_numpy(multiplicities(drawn_samples, len(samples))).double()
        of_real = torch.from_numpy(multiplicities(drawn_real, len(real))).double()
        with one_thread() if samples.shape[1] <= _SMALL else nullcontext():
            return np.array(
                [
                    frechet_distance(weighted_moments(samples, a), weighted_moments(real, b))
                    for a, b in zip(of_samples, of_real, strict=True)
                ]
            )

    return distances


def compute(metric: FID, evaluation: Evaluation) -> Measurement:
    """Measure generated images."""

    def distance(sample: Generated, real: Tensor) -> Scored:
        pool, n, m = sample.features.pool, sample.n, len(real)
        default = _RESAMPLES if real.shape[1] <= _SMALL else 0
        resampling = Resampling(resampled_fid(pool, real), (n, m), (0.0, np.inf))
        return Scored(
            {"fid": Estimate(resampling, "", "lower", n, fid(pool, real))},
            default if metric.resamples is None else metric.resamples,
        )

    return compare(metric, evaluation, distance)
