"""Balls around images up to their nearest neighbours, and the points inside.

They give precision, recall, density and coverage. torch-fidelity computes the values of precision
and recall, and the classes here compute the values of resamples.

Legend: N points, M centres, D features, R resamples.
"""

from collections.abc import Callable, Iterator
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
"""The relative error of distances between float32 features; a point on the border of an open ball
is outside.
"""

_KEPT_PER_NEIGHBOUR = 12
"""Neighbours kept per neighbour needed: a resample holds 63 % of the images, and fewer than k of
the 12 k nearest at most once in a million.
"""


def precision_recall(
    generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"], neighbours: int
) -> tuple[float, float]:
    """Return precision and recall.

    Each is the share of one set's images inside a k-nearest-neighbour ball of the other set.
    """
    from torch_fidelity.metric_prc import (
        KEY_METRIC_PRECISION,
        KEY_METRIC_RECALL,
        prc_features_to_metric,
    )

    options = {"prc_neighborhood": neighbours, "save_cpu_ram": True, "verbose": False}
    values = prc_features_to_metric(generated, reference, **options)
    return values[KEY_METRIC_PRECISION], values[KEY_METRIC_RECALL]


class Balls:
    """Balls around M images up to the k-th nearest image, and points.

    A resample holds copies, at distance 0, which would shrink the balls around their neighbours.
    The k-th neighbour is therefore the k-th nearest *other image* that was drawn. Resamples then
    spread like independent sets of images (checked by simulation), about nearly the same mean.

    A radius is at least the distance of the k-th other image, drawn or not, and at most the
    distance of the last image kept. So most points are inside or outside of a ball in every
    resample, and few distances are compared again.
    """

    def __init__(self, points: Tensor, centres: Tensor, neighbours: int) -> None:
        self.neighbours = neighbours
        self.others, self.indices = nearest_others(centres, _KEPT_PER_NEIGHBOUR * neighbours)
        smallest = self.others[:, neighbours - 1]
        largest = self.others[:, -1]
        # True: the point is inside of the ball in every resample
        self.always = np.empty((len(points), len(centres)), dtype=bool)
        undecided = []
        for rows in self._blocks():
            distance = torch.cdist(points[rows], centres).numpy()
            self.always[rows] = self.within(distance, smallest)
            possible = self.within(distance, largest) & ~self.always[rows]
            point, centre = np.nonzero(possible)
            pairs = (rows.start + point, centre, distance[point, centre])
            undecided.append(pairs)
        columns = [np.concatenate(parts) for parts in zip(*undecided, strict=True)]
        self.point, self.centre, self.distance = columns

    def _blocks(self) -> list[slice]:
        """Return blocks of points, whose distances fit into memory."""
        starts = range(0, len(self.always), _BLOCK)
        return [slice(start, start + _BLOCK) for start in starts]

    def within(self, distance: Matrix, radius: Matrix) -> Matrix:
        """Return whether points at these distances are inside balls of these radii."""
        inside: Matrix = distance <= radius
        return inside

    def precision(self) -> Statistic:
        """Return the share of points inside a ball, in %, equation (2)."""

        def precision(points: Matrix, balls: Matrix) -> Matrix:
            covered = points * (self.balls_around(balls) > 0)
            count = points.sum(axis=1, dtype=float)
            share: Matrix = 100 * covered.sum(axis=1, dtype=float) / count
            return share

        return self.statistic(precision)

    def statistic(self, value: Callable[[Matrix, Matrix], Matrix]) -> Statistic:
        """Return a value as a statistic of indices (R, N) and (R, M).

        Args:
            value: the function from how often each point (R, N) and each ball (R, M) was drawn to
                values (R,).
        """

        def values(drawn_points: Indices, drawn_centres: Indices) -> Matrix:
            points, balls = map(multiplicities, (drawn_points, drawn_centres), self.always.shape)
            # float32 counts exactly up to 2^24
            return value(points.astype(np.float32), balls.astype(np.float32))

        return values

    def balls_around(self, balls: Matrix) -> Matrix:
        """Count the balls around each point, (R, N), with multiplicities."""
        blocks = []
        for rows in self._blocks():
            always = self.always[rows].T.astype(np.float32)
            blocks.append(balls @ always)
        around = np.concatenate(blocks, axis=1)
        triples = zip(around, balls, self._decided(balls), strict=True)
        for sums, drawn, (point, centre) in triples:
            sums += np.bincount(point, drawn[centre], len(sums))
        return around

    def points_inside(self, points: Matrix, balls: Matrix) -> Matrix:
        """Count the points inside each drawn ball, (R, M), with multiplicities."""
        inside = np.zeros_like(balls)
        for rows in self._blocks():
            always = self.always[rows].astype(np.float32)
            inside += points[:, rows] @ always
        triples = zip(inside, points, self._decided(balls), strict=True)
        for sums, drawn, (point, centre) in triples:
            sums += np.bincount(centre, drawn[point], len(sums))
        return inside

    def _decided(self, balls: Matrix) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield the undecided pairs that are inside, for each resample."""
        for drawn in progress.track(list(balls > 0), "", "resamples"):
            radius = self.radii(drawn)[self.centre]
            inside = self.within(self.distance, radius)
            yield self.point[inside], self.centre[inside]

    def radii(self, drawn: NDArray[np.bool_]) -> Matrix:
        """Return the radius of each ball (M,) that was drawn, else -1."""
        reached = drawn[self.indices].cumsum(axis=1) >= self.neighbours
        # -1: the last image kept, if fewer than k were drawn
        position = np.where(reached[:, -1], reached.argmax(axis=1), -1)
        radius = self.others[np.arange(len(position)), position]
        return np.where(drawn, radius, -1.0)


class OpenBalls(Balls):
    """Balls without borders, as in the code of Naeem et al. (2020)."""

    def within(self, distance: Matrix, radius: Matrix) -> Matrix:
        """Return whether points at these distances are inside balls of these radii."""
        inside: Matrix = distance < (1 - _ROUNDING) * radius
        return inside

    def density(self) -> Statistic:
        """Return the mean number of balls around a point, divided by k.

        Naeem et al. (2020), Section 3.
        """

        def density(points: Matrix, balls: Matrix) -> Matrix:
            around = points * self.balls_around(balls)
            pairs = around.sum(axis=1, dtype=float)
            count = points.sum(axis=1, dtype=float)
            number = count * balls.sum(axis=1, dtype=float) * self.neighbours
            density: Matrix = pairs * (balls > 0).sum(axis=1) / number
            return density

        return self.statistic(density)

    def coverage(self) -> Statistic:
        """Return the share of balls that hold a point, in % (Section 3)."""

        def coverage(points: Matrix, balls: Matrix) -> Matrix:
            holding = balls * (self.points_inside(points, balls) > 0)
            count = balls.sum(axis=1, dtype=float)
            share: Matrix = 100 * holding.sum(axis=1, dtype=float) / count
            return share

        return self.statistic(coverage)


def nearest_others(features: Float[Tensor, "M D"], count: int) -> tuple[Matrix, Matrix]:
    """Return distances and indices (M, T) of each image's nearest other images.

    T is ``count``, or M - 1 if that is smaller.
    """
    kept = min(count + 1, len(features))
    distances = []
    indices = []
    for start in range(0, len(features), _BLOCK):
        block = torch.cdist(features[start : start + _BLOCK], features)
        itself = torch.arange(len(block))
        # the image itself comes first despite rounding, and is then left out
        block[itself, start + itself] = -torch.inf
        distance, index = block.topk(kept, largest=False)
        distances.append(distance[:, 1:])
        indices.append(index[:, 1:])
    return torch.cat(distances).numpy(), torch.cat(indices).numpy()
