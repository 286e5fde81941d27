"""Distances, projections and steps of changes of images, and verification of adversarial images.

All images here are in [0, 1]. Legend: N images, B some of them, C channels, H height, W width.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from jembench.attacks.eps import Norm as Norm
from jembench.attacks.eps import largest_distance, rounding
from jembench.attacks.gradient import (
    Classes,
    Flags,
    Images,
    Logits,
    Numbers,
    logits_of,
    rows_where,
)
from jembench.attacks.target import Target
from jembench.interfaces import DataSpec
from jembench.models.energies import LogitModel
from jembench.models.execution import mode


def distance(x: Images, moved: Images, norm: Norm) -> Numbers:
    """Return the norm of each image's change, in float64."""
    change = (moved.double() - x.double()).flatten(1)
    if norm == "linf":
        return change.abs().amax(dim=1)
    lengths: Numbers = change.norm(dim=1)
    return lengths


def project(moved: Images, x: Images, eps: Numbers, norm: Norm) -> Images:
    """Project images onto the ball of radius eps around x, and clamp them to [0, 1].

    Clamping moves no pixel away from x.

    The radius is reduced by the rounding error of float32, so that the distance of the result,
    measured in float64, is never above eps.
    """
    least = eps - rounding(norm, x[0].numel())
    radius = per_image(least.clamp_min(0))
    change = moved - x
    if norm == "linf":
        change = torch.minimum(torch.maximum(change, -radius), radius)
    else:
        lengths = torch.linalg.vector_norm(change.flatten(1), dim=1, dtype=torch.float64)
        length = per_image(lengths).to(change.dtype)
        shrink = radius / length.clamp_min(1e-12)
        change = change * torch.where(length > radius, shrink, 1.0)
    return (x + change).clamp_(0, 1)


def steepest(gradient: Images, norm: Norm) -> Images:
    """Return the step of norm 1 along which a linear function grows fastest.

    Elements of the gradient that are not finite count as 0; the step of a zero gradient is 0.
    """
    gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
    if norm == "linf":
        return gradient.sign()
    length = per_image(gradient.flatten(1).norm(dim=1))
    return gradient / length.clamp_min(1e-12)


Score = Callable[[Tensor], Tensor]
"""A function of images (N, C, H, W) in [0, 1]: the sum of their scores, ()."""


def ascend(
    score: Score,
    x: Images,
    eps: float,
    norm: Norm,
    *,
    steps: int,
    step_size: float,
    start: Images | None = None,
) -> Images:
    """Return the last images of projected gradient ascent within eps of images.

    The loop serves training on attacks: it can be compiled with a loss, and never waits for the
    device. The caller sets the mode of the model.

    Args:
        score: the function that increases.
        x: images in [0, 1].
        eps: the radius of the ball.
        norm: of the ball and of each step.
        steps: 0 returns the start.
        step_size: the norm of a step, in units of a pixel's range.
        start: the first images, which are projected onto the ball; x if None.
    """
    radius = torch.full_like(x[:, 0, 0, 0], eps)
    moved = x
    if start is not None:
        moved = project(start, x, radius, norm)
    gradient = torch.func.grad(score)  # unlike autograd.grad, is compiled with the loss
    with torch.no_grad():
        for _ in range(steps):
            step = step_size * steepest(gradient(moved), norm)
            moved = project(moved + step, x, radius, norm)
    return moved


class Attack(NamedTuple):
    """Projected gradient ascent from training images; lengths for pixels in [0, 1]."""

    norm: Norm
    eps: float
    steps: int
    step_size: float

    def random_start(self, x: Images) -> Images:
        """Draw an image uniformly from the ball around each image, which may leave [0, 1]."""
        changes = in_unit_ball(len(x), tuple(x.shape[1:]), self.norm, x.device)
        return x + self.eps * changes


class AttackedModel(LogitModel):
    """A classifier that is trained on attacks, which move images in [0, 1].

    Args:
        net: (B, C, H, W) -> (B, K).
        data: the description of the images.
    """

    def __init__(self, net: nn.Module, data: DataSpec) -> None:
        super().__init__(net)
        self.data = data

    def unit(self, x: Images) -> Images:
        """Return images clamped to [0, 1], so that adversarial images are valid."""
        low, high = self.data.bounds
        unit = (x - low) / (high - low)
        return unit.clamp(0, 1)

    def logits_of_unit(self, x: Images) -> Logits:
        """Return f(x) of images in [0, 1], in float32 or float64."""
        return logits_of(self, self.data, x)

    def attacked(
        self, attack: Attack, x: Images, score: Score, start: Images | None = None
    ) -> Images:
        """Return the last images of :func:`ascend` from images in [0, 1], successful or not.

        The network is in evaluation mode, so that the attack does not change the statistics of
        batch norm, and dropout draws no new mask at each step.
        """
        norm, eps, steps, step_size = attack
        with mode(self, train=False):
            return ascend(score, x, eps, norm, steps=steps, step_size=step_size, start=start)


def starts(
    restarts: int, shape: tuple[int, ...], norm: Norm, generator: Generator
) -> Float[Tensor, "R C H W"]:
    """Draw an attack's starts relative to an image, in units of eps: (R, *shape).

    The first start is the image itself, the others are uniform in the ball.
    """
    drawn = in_unit_ball(restarts - 1, shape, norm, generator.device, generator)
    return torch.cat([torch.zeros(1, *shape, device=drawn.device), drawn])


def in_unit_ball(
    n: int,
    shape: tuple[int, ...],
    norm: Norm,
    device: torch.device,
    generator: Generator | None = None,
) -> Tensor:
    """Draw n changes uniformly from the ball of radius 1, (n, *shape).

    Without a generator, PyTorch's global generator is used.
    """
    if norm == "linf":
        uniform = torch.rand(n, *shape, generator=generator, device=device)
        return uniform * 2 - 1
    direction = torch.randn(n, *shape, generator=generator, device=device)
    exponent = 1 / math.prod(shape)
    radius = torch.rand(n, generator=generator, device=device) ** exponent
    return steepest(direction, "l2") * per_image(radius)


def per_image(values: Tensor) -> Tensor:
    """Reshape values of images (N,) to (N, 1, 1, 1)."""
    return values[:, None, None, None]


# --- the nearest image that deceives a model ------------------------------------------------------


class Closest(NamedTuple):
    """The nearest adversarial image found for each image."""

    adversarial: Tensor  # (N, C, H, W); the image itself if none was found
    distance: Tensor  # float64 (N,): 0 if the image itself is misclassified, inf if none was found

    def keep(self, x: Tensor, rows: Tensor, images: Tensor, deceive: Tensor, norm: Norm) -> None:
        """Keep new adversarial images, in place, if they are nearer than the kept images.

        Args:
            x: (N, C, H, W) the attacked images.
            rows: int64 (B,), the index of the attacked image of each of ``images``, without
                repetition.
            images: (B, C, H, W).
            deceive: bool (B,), True for adversarial images.
            norm: of the distance.
        """
        far = distance(x[rows], images, norm)
        nearer = deceive & (far < self.distance[rows])
        self.adversarial[rows] = torch.where(per_image(nearer), images, self.adversarial[rows])
        self.distance[rows] = torch.where(nearer, far, self.distance[rows])


def before_search(target: Target, x: Images, y: Classes) -> Closest:
    """Return each image at distance 0 if it deceives the model, else at infinity."""
    deceived = target.deceived(x, y)
    return Closest(x.clone(), torch.where(deceived, 0.0, torch.inf).double())


STRETCH, STRETCHES = 1.05, 12
"""The factor by which an adversarial image that fails is moved away, and the largest number of
moves.
"""


def stabilise(target: Target, x: Images, y: Classes, closest: Closest, norm: Norm) -> Closest:
    """Move adversarial images farther until they deceive new predictions too.

    A search makes hundreds of predictions of a stochastic model, and so ends at images that were
    misclassified by chance; :func:`verify` would classify such images correctly and count them as
    robust.
    """
    if not target.stochastic:
        return closest
    rows = rows_where((closest.distance > 0) & closest.distance.isfinite())
    for _ in range(STRETCHES):
        rows = rows[~target.deceived(closest.adversarial[rows], y[rows])]
        if not len(rows):
            break
        change = closest.adversarial[rows] - x[rows]
        moved = (x[rows] + STRETCH * change).clamp(0, 1)
        closest.adversarial[rows] = moved
        closest.distance[rows] = distance(x[rows], moved, norm)
    return closest


# --- verification, by code that is independent of the attacks -------------------------------------

VERIFICATIONS = 10
"""The number of predictions per adversarial image if the model is stochastic; more than half of
them must be wrong.
"""


def verify(
    target: Target, x: Images, y: Classes, adversarial: Images, claimed: Flags
) -> dict[str, Tensor]:
    """Measure the distances, predict the classes again, and discard claims that are not confirmed.

    Args:
        target: with random numbers that the attack did not use.
        x: images in [0, 1].
        y: their classes.
        adversarial: the attack's images.
        claimed: True if the attack reports a success.

    Returns:
        ``found``, bool (N,): a claim, and most predictions are of another class; ``distance-linf``
        and ``distance-l2``, float64 (N,), the largest possible distances if not found;
        ``predicted``, int64 (N,), a predicted class; ``wrong``, float64 (N,), the share of wrong
        predictions, 0 to 1, and ``wrong-as-it-is``, the share for x, if the model is stochastic;
        ``unverified``, bool (N,): a claim that is not confirmed; ``adversarial``.

    Raises:
        ValueError: if an adversarial image is not finite, or outside of [0, 1].
    """
    is_valid = (adversarial >= 0) & (adversarial <= 1)
    if not bool(is_valid.all()):
        raise ValueError("an attack returned values that are outside of 0..1 or not finite")
    wrong = target.wrong_share(adversarial, y, VERIFICATIONS)
    verified = claimed & (wrong > 0.5)
    arrays = {"adversarial": adversarial, "found": verified, "wrong": wrong}
    arrays["unverified"] = claimed & ~verified
    for norm in get_args(Norm):
        largest = largest_distance(norm, x[0].numel())
        distances = distance(x, adversarial, norm)
        arrays[f"distance-{norm}"] = torch.where(verified, distances, largest)
    arrays["predicted"] = target.classes(adversarial)
    if target.stochastic:
        arrays["wrong-as-it-is"] = target.wrong_share(x, y, VERIFICATIONS)
    return arrays
