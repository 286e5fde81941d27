"""Attacks that see nothing of a model but its class: boundary and pointwise, by foolbox.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from jembench.attacks.foolbox_bridge import foolbox, seeded, wrapped
from jembench.attacks.pgd import Closest
from jembench.attacks.starts import Start
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import distance

Attack = Literal["boundary", "pointwise"]

AGAIN, SURE = 20, 0.8
"""How often a model that uses chance is asked again at the end, and the share of answers of which more must be wrong.
It is above one half, since the image was picked among thousands for its wrong answers."""

_APART = 0.97  # of each image, those are kept to fall back on that came so much nearer than the last


class _OutOfQueries(Exception):
    """No image has any left."""


class _Milestone(NamedTuple):
    """Images on the way."""

    rows: Tensor  # int64 (B,)
    images: Tensor  # (B, C, H, W)
    distances: Tensor  # float64 (B,)


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
        self._best = Closest(start.clone(), distance(x, start, "l2"))
        self._begun = Closest(start, self._best.distance.clone())
        self._passed: list[_Milestone] = []
        self._last = self._begun.distance.clone()

    def logits_in_parts(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K"]:
        """1 for the own class of each image, or for another one."""
        wrong = (x == self._best.adversarial).flatten(1).all(dim=1)
        able = self._asked + self._most <= self._limit
        if not bool(wrong.all() | able.any()):
            raise _OutOfQueries
        (rows,) = (able & ~wrong).nonzero(as_tuple=True)
        if len(rows):
            wrong[rows] = self._ask(x[rows], rows)
            self._keep(x[rows[wrong[rows]]], rows[wrong[rows]])
        classes = self._target.data.num_classes
        return F.one_hot(torch.where(wrong, (self._y + 1) % classes, self._y), classes).to(x.dtype)

    def _ask(self, x: Tensor, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        wrong = self._target.classes(x) != self._y[rows]
        self._asked[rows] += torch.where(wrong, self._most, 1)
        return self._target.confirmed(wrong, x, self._y[rows])

    def _keep(self, x: Tensor, rows: Int[Tensor, " B"]) -> None:
        far = distance(self._x[rows], x, "l2")
        nearer = far < self._best.distance[rows]
        x, rows, far = x[nearer], rows[nearer], far[nearer]
        self._best.adversarial[rows] = x
        self._best.distance[rows] = far
        if self._target.stochastic:
            apart = far <= _APART * self._last[rows]
            self._last[rows[apart]] = far[apart]
            self._passed.append(_Milestone(rows[apart], x[apart], far[apart]))

    def nearest(self) -> Closest:
        """Of each image; where the model uses chance, the nearest of those passed that is still wrong when asked again.

        An attack that asks thousands of times ends where answers are wrong by luck. Its start was not picked for them,
        and remains where nothing else holds.
        """
        if not self._target.stochastic:
            return self._best
        held = Closest(self._begun.adversarial.clone(), self._begun.distance.clone())
        every = torch.arange(len(self._x), device=self._x.device)
        settled = torch.zeros_like(every, dtype=torch.bool)
        for milestone in (_Milestone(every, *self._best), *reversed(self._passed)):
            left = ~settled[milestone.rows]
            rows, images = milestone.rows[left], milestone.images[left]
            if len(rows):
                holds = self._target.wrong_share(images, self._y[rows], AGAIN) > SURE
                settled[rows[holds]] = True
                held.adversarial[rows[holds]] = images[holds]
                held.distance[rows[holds]] = milestone.distances[left][holds]
        return held


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
    wrong = target.deceived(x, y)
    best = Closest(x.clone(), torch.where(wrong, 0.0, torch.inf).double())
    ready = ~wrong & start.found
    ready[ready.clone()] = target.deceived(start.x[ready], y[ready])
    if not bool(ready.any()):
        return best
    x, y, begin = x[ready], y[ready], start.x[ready]
    watched = _Watched(target, x, y, begin, queries)
    with seeded(seed), torch.no_grad(), suppress(_OutOfQueries):
        _make(name, queries)(wrapped(watched, x.device), x, y, epsilons=None, starting_points=begin)
    found = watched.nearest()
    best.adversarial[ready] = found.adversarial
    best.distance[ready] = found.distance
    return best


def _make(name: Attack, queries: int) -> Any:
    attacks = foolbox().attacks
    return attacks.BoundaryAttack(steps=queries) if name == "boundary" else attacks.PointwiseAttack()
