"""Balls around images up to their nearest neighbours, and the points inside: precision, recall, density and coverage.

torch-fidelity computes the values of precision and recall, and the classes here the statistics of resamples.

Legend: N points, M centres, D features, R resamples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench import progress
from jembench.stats.intervals import Indices, Statistic, multiplicities

Matrix = NDArray[Any]

_BLOCK = 1024

_ROUNDING = 1e-6
"""The relative error of distances between float32 features; one on the border of an open ball is outside."""

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
