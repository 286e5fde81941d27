"""Attacks that see nothing of a model but its class: boundary and pointwise, by foolbox.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jembench.attacks.foolbox_bridge import foolbox, seeded, wrapped
from jembench.attacks.pgd import Closest
from jembench.attacks.starts import Start
from jembench.attacks.target import Target
from jembench.attacks.threat import distance
from jembench.errors import JembenchError

Attack = Literal["boundary", "pointwise"]


class _OutOfQueries(Exception):
    """The limit of an image is reached."""


class _Watched(Target):
    """A target that keeps the nearest adversarial image it is shown of each image, and counts what it is asked.

    A limit is of a whole batch's answers, as all its images are asked together.
    """

    def __init__(self, target: Target, x: Tensor, y: Tensor, limit: int) -> None:
        super().__init__(target.model, target.data)
        self._inner, self._x, self._y, self._limit = target, x, y, limit
        self.asked = 0
        self.best = Closest(x.clone(), torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device))

    def logits_in_parts(self, x: Tensor) -> Tensor:
        if self.asked >= self._limit:
            raise _OutOfQueries
        self.asked += 1
        logits = self._inner.logits_in_parts(x)
        if len(x) == len(self._x):
            self._see(x.detach(), logits.detach().argmax(dim=1) != self._y)
        return logits

    def _see(self, x: Tensor, wrong: Tensor) -> None:
        far = distance(self._x, x, "l2")
        nearer = wrong & (far < self.best.distance)
        nearer = self._inner.confirmed(nearer, x, self._y)
        self.best.adversarial[nearer] = x[nearer]
        self.best.distance[nearer] = far[nearer]


def attack(
    name: Attack,
    target: Target,
    x: Float[Tensor, "N C H W"],
    y: Int[Tensor, " N"],
    start: Start,
    *,
    queries: int,
    seed: int,
) -> Closest:
    """The nearest image of another class, in L2, that the attack shows the model within so many queries of each image.

    Boundary: Brendel et al. (2018), arXiv:1712.04248. Pointwise: Schott et al. (2019), arXiv:1805.09190, which sets
    pixels back one after the other and so finds few changed pixels rather than a small L2. Misclassified images are at
    0; one without a start, or with a start that is not of another class, is at no distance (inf).

    Args:
        name: the attack.
        target: the model.
        x: images in [0, 1].
        y: their classes.
        start: where each begins.
        queries: answers that it may ask for, an image.
        seed: of its chance.
    """
    wrong = target.deceived(x, y)
    best = Closest(x.clone(), torch.where(wrong, 0.0, torch.inf).double())
    ready = ~wrong & start.found
    ready[ready.clone()] = target.deceived(start.x[ready], y[ready])
    if not bool(ready.any()):
        return best
    watched = _Watched(target, x[ready], y[ready], queries)
    with seeded(seed), torch.no_grad():
        try:
            _make(name, queries)(
                wrapped(watched, x.device), x[ready], y[ready], epsilons=None, starting_points=start.x[ready]
            )
        except _OutOfQueries:
            pass
        except JembenchError:
            raise
        except (AssertionError, ValueError):
            # a model that uses chance may give a start its own class again, which foolbox does not expect
            if not target.stochastic:
                raise
    best.adversarial[ready] = watched.best.adversarial
    best.distance[ready] = watched.best.distance
    return best


def _make(name: Attack, queries: int) -> Any:
    attacks = foolbox().attacks
    return attacks.BoundaryAttack(steps=queries) if name == "boundary" else attacks.PointwiseAttack()
