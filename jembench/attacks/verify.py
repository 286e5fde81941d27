"""Verification of adversarial images by code that is independent of the attacks.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jembench.attacks.eps import largest_distance
from jembench.attacks.target import Target
from jembench.attacks.threat import distance

LOOKS = 10
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
    wrong = target.wrong_share(adversarial, y, LOOKS)
    found = claimed & (wrong > 0.5)
    linf, l2 = (
        torch.where(found, distance(x, adversarial, norm), largest_distance(norm, x[0].numel()))
        for norm in ("linf", "l2")
    )
    return Verified(found, linf, l2, target.classes(adversarial), wrong)
