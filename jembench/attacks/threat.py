"""Distances, projections and steps of changes of images, and verification of adversarial images.

All images here are in [0, 1]. Legend: B or N images, C channels, H height, W width.
"""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from jembench.attacks.eps import Norm as Norm
from jembench.attacks.eps import largest_distance, rounding
from jembench.attacks.target import Target


def distance(x: Float[Tensor, "B C H W"], other: Float[Tensor, "B C H W"], norm: Norm) -> Float[Tensor, " B"]:
    """Return the norm of each image's change, in float64."""
    change = (other.double() - x.double()).flatten(1)
    return change.abs().amax(dim=1) if norm == "linf" else change.norm(dim=1)


def project(
    moved: Float[Tensor, "B C H W"], x: Float[Tensor, "B C H W"], eps: Float[Tensor, " B"], norm: Norm
) -> Float[Tensor, "B C H W"]:
    """Return the nearest image within eps of x, then clamped to [0, 1], which brings it no farther from x.

    The ball is smaller by what float32 may round off, so that the distance of the result, measured in float64, is never
    above eps.
    """
    radius = per_image((eps - rounding(norm, x[0].numel())).clamp_min(0))
    change = moved - x
    if norm == "linf":
        change = torch.minimum(torch.maximum(change, -radius), radius)
    else:
        length = per_image(torch.linalg.vector_norm(change.flatten(1), dim=1, dtype=torch.float64)).to(change.dtype)
        change = change * torch.where(length > radius, radius / length.clamp_min(1e-12), 1.0)
    return (x + change).clamp_(0, 1)


def steepest(gradient: Float[Tensor, "B C H W"], norm: Norm) -> Float[Tensor, "B C H W"]:
    """Return the step of norm 1 along which a linear function grows fastest; 0 where the gradient is 0 or infinite."""
    gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
    if norm == "linf":
        return gradient.sign()
    return gradient / per_image(gradient.flatten(1).norm(dim=1)).clamp_min(1e-12)


def starts(restarts: int, shape: tuple[int, ...], norm: Norm, generator: Generator) -> Float[Tensor, "R C H W"]:
    """Draw the starts of the restarts of an attack on one image, in units of eps from it: (R, *shape).

    The first begins at the image itself, the others anywhere in the ball, uniformly.
    """
    drawn = in_unit_ball(restarts - 1, shape, norm, generator.device, generator)
    return torch.cat([torch.zeros(1, *shape, device=drawn.device), drawn])


def in_unit_ball(
    n: int, shape: tuple[int, ...], norm: Norm, device: torch.device, generator: Generator | None = None
) -> Tensor:
    """Draw n changes uniformly from the ball of radius 1, (n, *shape); from PyTorch's global generator if None."""
    if norm == "linf":
        return torch.rand(n, *shape, generator=generator, device=device) * 2 - 1
    direction = torch.randn(n, *shape, generator=generator, device=device)
    radius = torch.rand(n, generator=generator, device=device) ** (1 / math.prod(shape))
    return steepest(direction, "l2") * per_image(radius)


def per_image(values: Tensor) -> Tensor:
    """Return a value of each image, (B,), in a shape that multiplies images, (B, 1, 1, 1)."""
    return values[:, None, None, None]


# --- the nearest image that deceives a model --------------------------------------------------------------------------


class Closest(NamedTuple):
    """The nearest image of another class that was found for each image."""

    adversarial: Tensor  # (N, C, H, W); the image itself where none was found
    distance: Tensor  # float64 (N,): 0 where the image itself is misclassified, inf where none was found

    def keep(self, x: Tensor, rows: Tensor, images: Tensor, found: Tensor, norm: Norm) -> None:
        """Replace, in place, those images that some adversarial images are nearer than.

        Args:
            x: (N, C, H, W) the attacked images.
            rows: int64 (B,), the images that ``images`` were made of, each once.
            images: (B, C, H, W).
            found: bool (B,), which of them are adversarial.
            norm: of the distance.
        """
        far = distance(x[rows], images, norm)
        nearer = found & (far < self.distance[rows])
        self.adversarial[rows] = torch.where(per_image(nearer), images, self.adversarial[rows])
        self.distance[rows] = torch.where(nearer, far, self.distance[rows])


STRETCH, STRETCHES = 1.05, 12
"""Factor by which an image that does not hold is moved away from the attacked one, and how often at most."""


def hold(target: Target, x: Float[Tensor, "N C H W"], y: Int[Tensor, " N"], closest: Closest, norm: Norm) -> Closest:
    """Move adversarial images of a stochastic model farther away until they deceive it when it is asked once more.

    A search makes hundreds of predictions, and so ends at images that were misclassified by luck. Those would be
    classified correctly by :func:`verify` and count as robust.
    """
    if not target.stochastic:
        return closest
    rows = ((closest.distance > 0) & closest.distance.isfinite()).nonzero().flatten()
    for _ in range(STRETCHES):
        rows = rows[~target.deceived(closest.adversarial[rows], y[rows])]
        if not len(rows):
            break
        moved = (x[rows] + STRETCH * (closest.adversarial[rows] - x[rows])).clamp(0, 1)
        closest.adversarial[rows], closest.distance[rows] = moved, distance(x[rows], moved, norm)
    return closest


# --- verification, by code that is independent of the attacks ---------------------------------------------------------

VERIFICATIONS = 10
"""Number of predictions per adversarial image if the model is stochastic; more than half of them must be wrong."""


def verify(
    target: Target,
    x: Float[Tensor, "N C H W"],
    y: Int[Tensor, " N"],
    adversarial: Float[Tensor, "N C H W"],
    claimed: Bool[Tensor, " N"],
) -> dict[str, Tensor]:
    """Measure the distances and predict the classes again, and discard claims that do not hold.

    Args:
        target: with random numbers that the attack did not see.
        x: images in [0, 1].
        y: their classes.
        adversarial: the attack's images.
        claimed: where the attack reports a success.

    Returns:
        ``found``, bool (N,): a claim, and most predictions are of another class; ``distance-linf`` and ``distance-l2``,
        float64 (N,), the largest possible ones where nothing was found; ``predicted``, int64 (N,), a predicted class;
        ``wrong``, float64 (N,), the share of wrong predictions, 0 to 1, and ``wrong-as-it-is`` that of x, if the model
        is stochastic; ``unverified``, bool (N,): a claim that does not hold; ``adversarial``.

    Raises:
        ValueError: if an adversarial image is no image: not finite, or outside of [0, 1].
    """
    if not bool(((adversarial >= 0) & (adversarial <= 1)).all()):
        raise ValueError("an attack gave values outside of 0..1, or that are not finite")
    wrong = target.wrong_share(adversarial, y, VERIFICATIONS)
    found = claimed & (wrong > 0.5)
    arrays = {"adversarial": adversarial, "found": found, "wrong": wrong, "unverified": claimed & ~found}
    for norm in get_args(Norm):
        largest = largest_distance(norm, x[0].numel())
        arrays[f"distance-{norm}"] = torch.where(found, distance(x, adversarial, norm), largest)
    arrays["predicted"] = target.classes(adversarial)
    if target.stochastic:
        arrays["wrong-as-it-is"] = target.wrong_share(x, y, VERIFICATIONS)
    return arrays
