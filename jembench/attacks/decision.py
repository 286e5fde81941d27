"""Attacks that see only the predicted class of a model: boundary and pointwise, by foolbox.

Legend: N images, M images of the pool, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from jembench.attacks.foolbox_bridge import foolbox, seeded, wrapped
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import AttackTrace, Closest, distance

Attack = Literal["boundary", "pointwise"]

_BLOCK = 16  # images of a class that are classified together: usually the first is correct
_APART = 0.97  # an image is kept to fall back on if its distance is at most this share of the last one's


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


class _OutOfQueries(Exception):
    """No image has any queries left."""


class _Watched:
    """Wraps the model for foolbox: counts the queries of each image and keeps the nearest adversarial image.

    An image that is known to be adversarial is not queried again. So randomness cannot invalidate a start, which would
    make foolbox end the whole batch, and a finished image costs nothing while others continue. For a stochastic model,
    a wrong prediction counts only if most of some further predictions are wrong. An image without queries left is
    reported as correctly classified.
    """

    def __init__(self, target: Target, x: Tensor, y: Tensor, start: Tensor, limit: int) -> None:
        self._target, self._x, self._y, self._limit = target, x, y, limit
        self._most = 1 + LOOKS if target.stochastic else 1  # queries that one image may cost
        self._asked = torch.zeros_like(y)
        self.way = AttackTrace(target, x, y, "l2", Closest(start, distance(x, start, "l2")), apart=_APART)

    def logits(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K"]:
        """One-hot logits: the true class, or another one if the image is adversarial."""
        wrong = (x == self.way.best.adversarial).flatten(1).all(dim=1)
        able = self._asked + self._most <= self._limit
        rows = self._target.places(able & ~wrong)
        if len(rows):
            wrong[rows] = self._ask(x[rows], rows)
            self.way.keep(rows, x[rows], wrong[rows])
        elif not bool(wrong.all() | able.any()):
            raise _OutOfQueries
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
    """The nearest adversarial image in L2 that the attack finds within ``queries`` queries per image.

    Boundary: Brendel et al. (2018), arXiv:1712.04248. All images share its random directions, so the result of one
    image does not depend on the others. Pointwise: Schott et al. (2019), arXiv:1805.09190, which resets pixels one by
    one and so finds few changed pixels rather than a small L2 distance; their order is drawn for all images in turn.

    The distance is 0 for a misclassified image, and infinite for an image that has no start or whose start is not of
    another class.

    Args:
        name: the attack.
        target: the model.
        x: images in [0, 1].
        y: their classes.
        start: the start of each image.
        queries: the limit of queries per image. The checks of the image and its start before the attack, and of the
            result of a stochastic model afterwards, are not counted.
        seed: the random seed.
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
