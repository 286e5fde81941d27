"""The nearest adversarial images of an attack, and earlier ones to fall back on if the nearest was found by luck.

An attack queries a stochastic model hundreds of times, and may end at an image that was misclassified by luck. Such an
image is classified correctly when it is evaluated again, and would count as robust.

Legend: N images, B some of them, C channels, H height, W width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jembench.attacks.eps import Norm
from jembench.attacks.target import Target
from jembench.attacks.threat import distance


class Closest(NamedTuple):
    """The nearest image of another class that was found."""

    adversarial: Tensor  # (N, C, H, W); the image itself where none was found
    distance: Tensor  # float64 (N,): 0 where the image itself is misclassified, inf where none was found


class Milestone(NamedTuple):
    """Adversarial images found at one point of the attack."""

    rows: Tensor  # int64 (B,): the indices of the images
    images: Tensor  # (B, C, H, W)
    distances: Tensor  # float64 (B,)


class AttackTrace:
    """The adversarial images of an attack, from its start to the nearest ones.

    Args:
        target: the model.
        x: (N, C, H, W) the images.
        y: (N,) their classes.
        norm: of the distance.
        begin: what is known before; it was not picked for its answers, and remains where nothing else holds.
        apart: the distance of each milestone in units of the last one's, at most.
    """

    def __init__(self, target: Target, x: Tensor, y: Tensor, norm: Norm, begin: Closest, *, apart: float = 1.0) -> None:
        self._target, self.x, self.y, self._norm, self._begin, self._apart = target, x, y, norm, begin, apart
        self.best = Closest(begin.adversarial.clone(), begin.distance.clone())
        """The nearest so far; changed as the attack goes on."""
        self._passed: list[Milestone] = []
        self._last = begin.distance.clone()

    def keep(self, rows: Tensor, images: Tensor, found: Tensor) -> None:
        """Take over those of some adversarial images that are nearer than the nearest so far.

        Args:
            rows: int64 (B,), of which images, each once.
            images: (B, C, H, W).
            found: bool (B,), which are adversarial.
        """
        adversarial, nearest = self.best
        far = distance(self.x[rows], images, self._norm)
        nearer = found & (far < nearest[rows])
        adversarial[rows] = torch.where(nearer[:, None, None, None], images, adversarial[rows])
        nearest[rows] = torch.where(nearer, far, nearest[rows])
        if self._target.stochastic:
            apart = self._target.places(nearer & (far <= self._apart * self._last[rows]))
            self._last[rows[apart]] = far[apart]
            self._passed.append(Milestone(rows[apart], images[apart], far[apart]))

    def nearest(self) -> Closest:
        """The nearest adversarial images; for a stochastic model, the nearest that surely deceive it again."""
        if not self._target.stochastic:
            return self.best
        held = Closest(self._begin.adversarial.clone(), self._begin.distance.clone())
        every = torch.arange(len(self.x), device=self.x.device)
        settled = self.best.distance == self._begin.distance  # nothing was found on the way
        for milestone in (Milestone(every, *self.best), *reversed(self._passed)):
            left = self._target.places(~settled[milestone.rows])
            rows, images, distances = (each[left] for each in milestone)
            if len(rows):
                holds = self._target.places(self._target.surely_deceived(images, self.y[rows]))
                settled[rows[holds]] = True
                held.adversarial[rows[holds]] = images[holds]
                held.distance[rows[holds]] = distances[holds]
        return held
