"""Where a decision-based attack begins: at an image that already has another class.

Legend: N attacked images, M images of the pool, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jembench.attacks.target import Target


class Start(NamedTuple):
    """An image of another class for each attacked one."""

    x: Tensor  # (N, C, H, W); the attacked image itself where there is none
    found: Tensor  # bool (N,)


def of_runner_up(
    target: Target, x: Float[Tensor, "N C H W"], pool: Float[Tensor, "M C H W"], labels: Int[Tensor, " M"]
) -> Start:
    """A correctly classified image of the class that is ranked second for the image under attack.

    That is the start of Grathwohl et al. (2020), Appendix G, which does not say which one of them: it is the first in
    the order of the pool. Where no image of that class is classified rightly, the class ranked third follows, and so
    on.
    """
    right = _first_right_of_each(target, pool, labels)
    ranked = target.probabilities(x).argsort(dim=1, descending=True)
    begin, found = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for row in range(len(x)):
        chosen = next((right[k] for k in ranked[row, 1:].tolist() if k in right), None)
        if chosen is not None:
            begin[row], found[row] = pool[chosen], True
    return Start(begin, found)


def _first_right_of_each(target: Target, pool: Tensor, labels: Tensor) -> dict[int, int]:
    """The first image of each class that the model gets right, by most answers if it uses chance."""
    right = ~target.deceived(pool, labels)
    members = labels[right].tolist()
    places = right.nonzero().flatten().tolist()
    return dict(zip(reversed(members), reversed(places), strict=True))  # the first of a class is the last to be written
