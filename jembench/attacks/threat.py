"""Changes of images: how large they are and may be, the nearest that deceives a model, and whether it does.

All images here are in [0, 1]. Legend: B or N images, C channels, H height, W width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from jembench.attacks.eps import Norm, largest_distance, rounding
from jembench.attacks.target import Target


def distance(x: Float[Tensor, "B C H W"], other: Float[Tensor, "B C H W"], norm: Norm) -> Float[Tensor, " B"]:
    """The norm of each image's change, in float64."""
    change = (other.double() - x.double()).flatten(1)
    return change.abs().amax(dim=1) if norm == "linf" else change.norm(dim=1)


def project(
    moved: Float[Tensor, "B C H W"], x: Float[Tensor, "B C H W"], eps: Float[Tensor, " B"], norm: Norm
) -> Float[Tensor, "B C H W"]:
    """The nearest image within eps of x, then clamped to [0, 1], which brings it no farther from x.

    The ball is smaller by what float32 may round off, so that the distance of the result, measured in float64, is never
    above eps.
    """
    radius = _per_image((eps - rounding(norm, x[0].numel())).clamp_min(0))
    change = moved - x
    if norm == "linf":
        change = torch.minimum(torch.maximum(change, -radius), radius)
    else:
        length = _per_image(torch.linalg.vector_norm(change.flatten(1), dim=1, dtype=torch.float64)).to(change.dtype)
        change = change * torch.where(length > radius, radius / length.clamp_min(1e-12), 1.0)
    return (x + change).clamp_(0, 1)


def steepest(gradient: Float[Tensor, "B C H W"], norm: Norm) -> Float[Tensor, "B C H W"]:
    """The step of norm 1 along which a linear function grows fastest; 0 where the gradient is 0, or not finite."""
    gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
    if norm == "linf":
        return gradient.sign()
    return gradient / _per_image(gradient.flatten(1).norm(dim=1)).clamp_min(1e-12)


def starts(restarts: int, shape: tuple[int, ...], norm: Norm, generator: Generator) -> Float[Tensor, "R C H W"]:
    """Where the restarts of an attack on one image begin, in units of eps from it: (R, *shape).

    The first begins at the image itself, the others anywhere in the ball, uniformly.
    """
    drawn = in_unit_ball(restarts - 1, shape, norm, generator.device, generator)
    return torch.cat([torch.zeros(1, *shape, device=drawn.device), drawn])


def in_unit_ball(
    n: int, shape: tuple[int, ...], norm: Norm, device: torch.device, generator: Generator | None = None
) -> Tensor:
    """n changes drawn uniformly from the ball of radius 1, (n, *shape); from PyTorch's global generator if None."""
    if norm == "linf":
        return torch.rand(n, *shape, generator=generator, device=device) * 2 - 1
    direction = torch.randn(n, *shape, generator=generator, device=device)
    radius = torch.rand(n, generator=generator, device=device) ** (1 / math.prod(shape))
    return steepest(direction, "l2") * _per_image(radius)


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


# --- the nearest image that deceives a model --------------------------------------------------------------------------


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

    An attack queries a stochastic model hundreds of times, and may end at an image that was misclassified by luck. Such
    an image is classified correctly when it is evaluated again, and would count as robust. So earlier ones are kept to
    fall back on.

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


# --- verification, by code that is independent of the attacks ---------------------------------------------------------

VERIFICATIONS = 10
"""Number of predictions per adversarial image if the model is stochastic."""


class Verified(NamedTuple):
    """The verified properties of the images that an attack returns."""

    found: Tensor  # bool (N,): most predictions are of another class
    linf: Tensor  # float64 (N,): how far it is from the image; the largest possible distance where none was found
    l2: Tensor  # the same in L2
    predicted: Tensor  # int64 (N,): the class that it is given, the first time
    wrong: Tensor  # float64 (N,): how often that is not the label, 0 to 1


def verify(
    target: Target,
    x: Float[Tensor, "N C H W"],
    y: Int[Tensor, " N"],
    adversarial: Float[Tensor, "N C H W"],
    claimed: Bool[Tensor, " N"],
) -> Verified:
    """Measure the distances anew and ask for the classes anew; a claim that does not hold is none.

    Args:
        target: with random numbers that the attack did not see.
        x: images in [0, 1].
        y: their classes.
        adversarial: what was made of them.
        claimed: where the attack says that it has succeeded.

    Raises:
        ValueError: if an adversarial image is no image: not finite, or outside of [0, 1].
    """
    if not bool(((adversarial >= 0) & (adversarial <= 1)).all()):
        raise ValueError("an attack gave values outside of 0..1, or that are not finite")
    wrong = target.wrong_share(adversarial, y, VERIFICATIONS)
    found = claimed & (wrong > 0.5)
    linf, l2 = (
        torch.where(found, distance(x, adversarial, norm), largest_distance(norm, x[0].numel()))
        for norm in ("linf", "l2")
    )
    return Verified(found, linf, l2, target.classes(adversarial), wrong)
