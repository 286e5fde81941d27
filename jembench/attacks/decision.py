"""Attacks that see nothing of a model but its class: boundary and pointwise, by foolbox.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from jembench.attacks.foolbox_bridge import foolbox, seeded, wrapped
from jembench.attacks.milestones import AttackTrace, Closest
from jembench.attacks.starts import Start
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import distance

Attack = Literal["boundary", "pointwise"]

_APART = 0.97  # of each image, those are kept to fall back on that came so much nearer than the last


class _OutOfQueries(Exception):
    """No image has any left."""


class _Watched:
    """What foolbox asks in place of the model: it counts the answers of each image and keeps the nearest adversarial.

    Once the nearest is known to be adversarial it is not asked for again. So chance cannot take back a start, which
    foolbox would end the whole batch for, and an image that is finished costs nothing while others go on. Where the
    model uses chance, a wrong answer counts when most of some further ones are wrong. An image without answers left is
    told that it failed.
    """

    def __init__(self, target: Target, x: Tensor, y: Tensor, start: Tensor, limit: int) -> None:
        self._target, self._x, self._y, self._limit = target, x, y, limit
        self._most = 1 + LOOKS if target.stochastic else 1  # answers that one image shown may cost
        self._asked = torch.zeros_like(y)
        self.way = AttackTrace(target, x, y, "l2", Closest(start, distance(x, start, "l2")), apart=_APART)

    def logits_in_parts(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K"]:
        """1 for the own class of each image, or for another one."""
        wrong = (x == self.way.best.adversarial).flatten(1).all(dim=1)
        able = self._asked + self._most <= self._limit
        if not bool(wrong.all() | able.any()):
            raise _OutOfQueries
        (rows,) = (able & ~wrong).nonzero(as_tuple=True)
        if len(rows):
            wrong[rows] = self._ask(x[rows], rows)
            self.way.keep(rows[wrong[rows]], x[rows[wrong[rows]]])
        classes = self._target.data.num_classes
        return F.one_hot(torch.where(wrong, (self._y + 1) % classes, self._y), classes).to(x.dtype)

    def _ask(self, x: Tensor, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        wrong = self._target.classes(x) != self._y[rows]
        self._asked[rows] += torch.where(wrong, self._most, 1)
        return self._target.confirmed(wrong, x, self._y[rows])


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

    Boundary: Brendel et al. (2018), arXiv:1712.04248. Its random directions are shared by all images, so that what
    becomes of one depends on no other. Pointwise: Schott et al. (2019), arXiv:1805.09190, which sets pixels back one
    after the other and so finds few changed pixels rather than a small L2; their order is drawn for all images in turn.

    Misclassified images are at 0; one without a start, or with a start that is not of another class, is at no distance
    (inf).

    Args:
        name: the attack.
        target: the model.
        x: images in [0, 1].
        y: their classes.
        start: where each begins.
        queries: answers that it may ask for, an image. Looking at the image and its start before, and at what was found
            afterwards where the model uses chance, is not counted.
        seed: of its chance.
    """
    wrong = target.misclassified(x, y)
    best = Closest(x.clone(), torch.where(wrong, 0.0, torch.inf).double())
    ready = ~wrong & start.found
    ready[ready.clone()] = target.misclassified(start.x[ready], y[ready])
    if not bool(ready.any()):
        return best
    x, y, begin = x[ready], y[ready], start.x[ready]
    watched = _Watched(target, x, y, begin, queries)
    with seeded(seed), torch.no_grad(), suppress(_OutOfQueries):
        _make(name, queries)(wrapped(watched, x.device), x, y, epsilons=None, starting_points=begin)
    found = watched.way.nearest()
    best.adversarial[ready] = found.adversarial
    best.distance[ready] = found.distance
    return best


def _make(name: Attack, queries: int) -> Any:
    attacks = foolbox().attacks
    return attacks.BoundaryAttack(steps=queries) if name == "boundary" else attacks.PointwiseAttack()
