"""Open balls around images, of which density and coverage count the points inside.

Legend: N points, M centres, D features, R resamples.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench.metrics.feature_scores import Balls
from jembench.stats.intervals import Statistic

Matrix = NDArray[Any]

_ROUNDING = 1e-6
"""The relative error of distances between float32 features; one on the border of an open ball is outside."""


class OpenBalls(Balls):
    """Open balls, which do not hold the points at their border, as in the code of Naeem et al. (2020)."""

    def inside(self, drawn: NDArray[np.bool_]) -> Matrix:
        """Return the pairs of a point inside a ball, bool (N, M), of the balls around the images drawn (M,)."""
        inside: Matrix = self.distance < (1 - _ROUNDING) * self.radii(drawn)
        return inside

    def density(self) -> Statistic:
        """Return the mean number of balls around a point, divided by k: Naeem et al. (2020), Section 3."""

        def density(inside: Matrix, points: Matrix, balls: Matrix) -> Any:
            return (points @ inside @ balls) * (balls > 0).sum() / (points.sum() * balls.sum() * self.neighbours)

        return self.statistic(density)

    def coverage(self) -> Statistic:
        """Return the share of balls that hold a point, in %: Naeem et al. (2020), Section 3."""
        return self.statistic(lambda inside, points, balls: 100 * inside[points > 0].any(axis=0) @ balls / balls.sum())
