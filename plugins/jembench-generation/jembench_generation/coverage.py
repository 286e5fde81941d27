"""Precision, recall, density and coverage of generated images.

Density and coverage: Naeem et al. (2020), arXiv:2002.09797.

Legend: N generated images, M reference images, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jembench.interfaces import Resampling
from jembench.metrics.base import Count, Resamples
from jembench.metrics.generation import ReferenceMetric, Scores
from jembench.plugin import Estimate

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.metrics.sample_protocol import Generated


@dataclass(frozen=True, kw_only=True)
class PRC(ReferenceMetric):
    """Precision and recall of samples among features of the dataset, in %.

    torch-fidelity computes both.

    ``features``: as for ``is``.
    """

    neighbours: Count = 3
    resamples: Resamples = 200
    name: ClassVar[str] = "prc"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return the number of neighbours and one."""
        return self.neighbours + 1, f"each with {self.neighbours} neighbours"

    def scores(self, sample: Generated, real: Tensor) -> Scores:
        """Return precision, of generated images, and recall, of real images."""
        from jembench_generation.balls import Balls, precision_recall

        def inside(value: float, judged: Tensor, manifold: Tensor) -> Estimate:
            balls = Balls(judged, manifold, self.neighbours)
            n = len(judged)
            sizes = (n, len(manifold))
            resampling = Resampling(balls.precision(), sizes, (0.0, 100.0), n)
            return Estimate(resampling, "%", "higher", n, 100 * value)

        images = sample.features.pool
        precision, recall = precision_recall(images, real, self.neighbours)
        of_generated = inside(precision, images, real)
        estimates = {"precision": of_generated, "recall": inside(recall, real, images)}
        return Scores(estimates, {"neighbours": self.neighbours})


@dataclass(frozen=True, kw_only=True)
class DensityCoverage(PRC):
    """Density and coverage of samples among features of the dataset.

    Naeem et al. (2020).

    Each image of the dataset has a ball up to its k-th nearest other image, k = ``neighbours``.
    ``density`` is the mean number of balls that hold a sample, divided by k: 1 is expected of
    samples distributed like the dataset. ``coverage`` is the share of balls, in %, that hold a
    sample: nearly 1 - 2^-k is expected of as many such samples as images. ``features``: as for
    ``is``.
    """

    neighbours: Count = 5
    implementation: ClassVar[str] = "jembench"
    name: ClassVar[str] = "density-coverage"

    def scores(self, sample: Generated, real: Tensor) -> Scores:
        """Return density, of generated images, and coverage, of real images."""
        from jembench_generation.balls import OpenBalls

        sizes = n, m = sample.n, len(real)
        balls = OpenBalls(sample.features.pool, real, self.neighbours)
        density = Resampling(balls.density(), sizes, (0.0, float("inf")))
        coverage = Resampling(balls.coverage(), sizes, (0.0, 100.0), m)
        estimates = {
            "density": Estimate(density, "", "higher", n),
            "coverage": Estimate(coverage, "%", "higher", m),
        }
        return Scores(estimates, {"neighbours": self.neighbours})
