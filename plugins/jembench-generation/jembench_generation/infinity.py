"""FID at infinitely many images (Chong & Forsyth, 2020, arXiv:1911.07023).

Legend: N generated images, M reference images, D features, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jembench.interfaces import Resampling
from jembench.metrics.generation import FID, Scores
from jembench.plugin import Estimate

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.metrics.base import Array
    from jembench.metrics.sample_protocol import Generated
    from jembench.stats.intervals import Indices, Statistic

PARTS = (1, 2, 3)
"""Numbers of equal parts into which both sets are split; their mean FIDs are extrapolated."""


@dataclass(frozen=True, kw_only=True)
class FIDInfinity(FID):
    """Fréchet distance extrapolated to infinitely many images, along 1 / n.

    The line goes through the FID of all images and the mean FIDs of halves and of thirds of both
    sets. Chong & Forsyth (2020), arXiv:1911.07023, reduce only the generated images. ``features``
    and ``resamples``: as for ``fid``.
    """

    name: ClassVar[str] = "fid-infinity"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return six times the number of features of the network."""
        return (
            6 * dimensions,
            f"six times as many as {network} has features, or FID is not linear in 1 / n",
        )

    def scores(self, sample: Generated, real: Tensor) -> Scores:
        """Return the distance at infinitely many images.

        Both sets are shuffled first, since their own order is not random.
        """
        import numpy as np

        sizes = (sample.n, len(real))
        rng = np.random.default_rng(0)
        statistic = extrapolated_fid(sample.features.pool, real)
        permutations = [rng.permutation(size)[None] for size in sizes]
        (value,) = statistic(*permutations)
        resampling = Resampling(statistic, sizes)
        estimate = Estimate(resampling, "", "lower", sample.n, float(value))
        return Scores({self.name: estimate}, {"parts": len(PARTS)})


def extrapolated_fid(generated: Tensor, reference: Tensor) -> Statistic:
    """Return FID at infinitely many images as a statistic of index matrices.

    The bias of FID is nearly a / N + b / M, so it is k times as large if both sets are 1 / k as
    large. Both sets are divided into k parts in their order; a line in k is fitted to the parts'
    mean FIDs, and evaluated at k = 0.
    """
    import numpy as np

    from jembench.metrics.feature_scores import resampled_fid

    fids = resampled_fid(generated, reference)
    weights = np.linalg.pinv(np.vander(PARTS, 2))[1]

    def distances(drawn_samples: Indices, drawn_real: Indices) -> Array:
        extrapolated = np.zeros(len(drawn_samples))
        for weight, parts in zip(weights, PARTS, strict=True):
            samples = np.array_split(drawn_samples, parts, axis=1)
            real = np.array_split(drawn_real, parts, axis=1)
            of_parts = [fids(*both) for both in zip(samples, real, strict=True)]
            extrapolated += weight * np.mean(of_parts, axis=0)
        return extrapolated

    return distances
