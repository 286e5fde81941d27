"""FID: the Fréchet distance between Gaussians fitted to features of generated and of real images.

Heusel et al. (2017), arXiv:1706.08500, equation 6; computed by torch-fidelity's ``metric_fid`` on float64 features.

Legend: N generated images, M reference images, D features, R resamples.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Capability, Evaluation, FeatureNetwork, Measurement, Planned
from jembench.metrics.generation import Reference, foreseen, generated, reference_pool, require_images
from jembench.metrics.protocol import bootstrap_rng, require_at_least, value_of
from jembench.metrics.sample_protocol import ALL_KEPT, SampleProtocol
from jembench.models.devices import one_thread
from jembench.stats import Indices, Statistic, bootstrap_interval, multiplicities

_RESAMPLES = 200
_SMALL = 512
"""Up to so many features, threads cost more than they save, and much more on a busy machine."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class FrechetDistance:
    """FID of a model's samples against a part of the dataset, lower is better, with a bootstrap interval.

    The interval resamples generated and reference images. With Inception's 2,048 features a resample takes about half
    a minute on two busy cores: there the interval is left out unless a number of resamples is asked for.

    Args:
        resamples: of the bootstrap; None: 200 for up to 512 features, else none.
    """

    features: str = "auto"
    samples: SampleProtocol = ALL_KEPT
    reference: Reference = "train"
    resamples: int | None = None
    name: ClassVar[str] = "fid"

    def __post_init__(self) -> None:
        if self.resamples is not None:
            require_at_least(0, self.name, resamples=self.resamples)

    @property
    def requires(self) -> frozenset[Capability]:
        """What a model must be able to do."""
        return self.samples.requires

    def check(self, planned: Planned) -> None:
        """Whether there will be enough images."""
        n, network = seen = foreseen(planned, self.features, self.samples)
        self._require(n, planned.count(self.reference), seen.dimensions, network)

    def _require(self, n: int | None, real: int, dimensions: int, network: FeatureNetwork) -> None:
        because = f"as many as {network.identity} has features, or the fitted Gaussian is degenerate"
        require_images(n, dimensions, "generated images", self.name, because)
        require_images(real, dimensions, f"{self.reference} images", self.name, because)

    def compute(self, evaluation: Evaluation) -> Measurement:
        sample = generated(evaluation, self.features, self.samples)
        real = reference_pool(evaluation, self.features, self.reference)
        dimensions = real.shape[1]
        self._require(sample.n, len(real), dimensions, sample.network)
        distance = fid(sample.features.pool, real)
        interval = bootstrap_interval(
            distance,
            resampled_fid(sample.features.pool, real),
            sample.n,
            len(real),
            rng=bootstrap_rng(evaluation, self.name),
            resamples=self._resamples(dimensions),
            within=(0.0, np.inf),
        )
        return Measurement(
            protocol=sample.protocol(self.name, evaluation, reference=self.reference, reference_images=len(real)),
            values={sample.label("fid"): value_of(distance, interval, sample.n, "", "lower")},
        )

    def _resamples(self, dimensions: int) -> int:
        if self.resamples is not None:
            return self.resamples
        return _RESAMPLES if dimensions <= _SMALL else 0
