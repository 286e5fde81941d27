"""The start of a decision-based attack: an image that already has another class.

Legend: N attacked images, M images of the pool, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jembench.attacks.target import Target

_BLOCK = 16  # images of a class that are classified together: usually the first is correct


class Start(NamedTuple):
    """An image of another class for each attacked one."""

    x: Tensor  # (N, C, H, W); the attacked image itself where there is none
    found: Tensor  # bool (N,)


def of_runner_up(
    target: Target,
    x: Float[Tensor, "N C H W"],
    y: Int[Tensor, " N"],
    pool: Float[Tensor, "M C H W"],
    labels: Int[Tensor, " M"],
) -> Start:
    """A correctly classified image of the class that is ranked second for the image under attack.

    This is the start of Grathwohl et al. (2020), Appendix G. They do not say which image of that class they use; here
    it is the first in the pool. If no image of that class is classified correctly, the class ranked third is used, and
    so on. The image's own class is skipped at any rank: a stochastic model may sometimes rank another class first.

    Args:
        target: the model.
        x: images in [0, 1].
        y: their classes.
        pool: where starts are taken from.
        labels: the classes of the pool.
    """
    ranked = target.probabilities(x).argsort(dim=1, descending=True)
    begin, found = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    first: dict[int, int | None] = {}
    for row, own in enumerate(y.tolist()):
        for other in ranked[row].tolist():
            if other == own:
                continue
            if other not in first:
                first[other] = _first_right(target, pool, labels, other)
            place = first[other]
            if place is not None:
                begin[row], found[row] = pool[place], True
                break
    return Start(begin, found)


def _first_right(target: Target, pool: Tensor, labels: Tensor, label: int) -> int | None:
    """The index of the first correctly classified image of a class; for a stochastic model, by most predictions."""
    for places in torch.split((labels == label).nonzero().flatten(), _BLOCK):
        right = places[~target.misclassified(pool[places], labels[places])]
        if len(right):
            return int(right[0])
    return None
