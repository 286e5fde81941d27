"""Attacks that only use the predicted class of a model: boundary and pointwise, by foolbox.

Legend: N images, M images of the pool, C channels, H height, W width, K classes.
"""

import functools
from contextlib import suppress
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from jembench import progress
from jembench.attacks.foolbox_bridge import foolbox, seeded, wrapped
from jembench.attacks.gradient import Classes, Images, Logits, rows_where
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import Closest, before_search, distance, stabilise
from jembench.progress import Phase

Attack = Literal["boundary", "pointwise"]

_BLOCK = 16  # images of a class per pass; few, since mostly the first is correct


class FirstImages(NamedTuple):
    """The start of an attack on each image: an image of another class."""

    x: Tensor  # (N, C, H, W); the attacked image itself if there is no start
    exists: Tensor  # bool (N,)


def choose_starts(
    target: Target, x: Images, y: Classes, pool: Float[Tensor, "M C H W"], labels: Int[Tensor, " M"]
) -> FirstImages:
    """Choose, for each image, a correct image of the class ranked second.

    This is the start of Grathwohl et al. (2020), Appendix G. The paper does not say which image of
    that class is used; here it is the first in the pool. If no image of that class is classified
    correctly, the class ranked third is used, and so on. The image's own class is skipped at any
    rank: a stochastic model may sometimes rank another class first.

    Args:
        target: the model.
        x: images in [0, 1].
        y: their classes.
        pool: the images to choose starts from.
        labels: the classes of the pool.
    """

    @functools.cache
    def first_right(label: int) -> int | None:
        """Return the index of the first correct image of a class.

        An image is correct if most of its predictions are.
        """
        of_class = rows_where(labels == label)
        for places in torch.split(of_class, _BLOCK):
            wrong = target.wrong_share(pool[places], labels[places], LOOKS)
            right = places[wrong < 0.5]
            if len(right):
                return int(right[0])
        return None

    with torch.no_grad():
        # by logits, since probabilities may round to 0 and tie
        ranked = target.logits(x).argsort(dim=1, descending=True)
    start = FirstImages(x.clone(), torch.zeros_like(y, dtype=torch.bool))
    for row, own in enumerate(y.tolist()):
        for label in ranked[row].tolist():
            place = None
            if label != own:
                place = first_right(label)
            if place is not None:
                start.x[row] = pool[place]
                start.exists[row] = True
                break
    return start


class _OutOfQueries(Exception):
    """The error that ends foolbox's attack once no image has queries left."""


class _QueryLimit:
    """The model that foolbox queries, with a count of queries.

    It keeps the nearest adversarial image of each image.

    An image that is known to be adversarial is not queried again. So randomness cannot invalidate a
    start, at which foolbox would end the whole batch, and a finished image costs no queries while
    other images continue. An image without queries left is reported as correctly classified.
    """

    def __init__(self, target: Target, x: Tensor, y: Tensor, start: Tensor, spent: Phase) -> None:
        self._target = target
        self._x = x
        self._y = y
        self._spent = spent
        # largest number of queries for one prediction
        self._most = LOOKS if target.stochastic else 1
        self._queries = torch.zeros_like(y)
        self.closest = Closest(start.clone(), distance(x, start, "l2"))

    def logits(self, x: Images) -> Logits:
        """Return one-hot logits, of a wrong class where an image is adversarial."""
        # the nearest adversarial images are known to be adversarial
        same = x == self.closest.adversarial
        deceived = same.flatten(1).all(dim=1)
        able = self._queries + self._most <= self._spent.total
        rows = rows_where(able & ~deceived)
        if len(rows):
            asked, y = x[rows], self._y[rows]
            wrong = self._target.classes(asked) != y
            self._queries[rows] += torch.where(wrong, self._most, 1)
            self._spent.done = int(self._queries.max())
            deceived[rows] = self._target.confirmed(wrong, asked, y)
            self.closest.keep(self._x, rows, asked, deceived[rows], "l2")
        elif not bool(deceived.all() | able.any()):
            raise _OutOfQueries

        classes = self._target.data.num_classes
        wrong_class = (self._y + 1) % classes
        shown = torch.where(deceived, wrong_class, self._y)
        return F.one_hot(shown, classes).to(x.dtype)


def attack(
    name: Attack,
    target: Target,
    x: Images,
    y: Classes,
    start: FirstImages,
    *,
    queries: int,
    seed: int,
) -> Closest:
    """Find the nearest adversarial image in L2 within ``queries`` queries per image.

    Boundary: Brendel et al. (2018), arXiv:1712.04248. All images share the attack's random
    directions, so the result of an image does not depend on other images. Pointwise: Schott et al.
    (2019), arXiv:1805.09190, which resets pixels one by one, in a random order for each image, and
    so finds few changed pixels rather than a small L2 distance.

    The distance is 0 for a misclassified image, and infinite for an image that has no start or
    whose start is not of another class.

    Args:
        name: the attack.
        target: the model.
        x: images in [0, 1].
        y: their classes.
        start: the start of each image.
        queries: the limit of queries per image. The checks of the image and its start before the
            attack are not counted.
        seed: the random seed.
    """
    closest = before_search(target, x, y)
    wrong = closest.distance == 0
    ready = ~wrong & start.exists
    ready[ready.clone()] = target.wrong_share(start.x[ready], y[ready], LOOKS) > 0.5
    if not bool(ready.any()):
        return closest

    x = x[ready]
    y = y[ready]
    begin = start.x[ready]
    attacks = foolbox().attacks
    if name == "boundary":
        algorithm = attacks.BoundaryAttack(steps=queries)
    else:
        algorithm = attacks.PointwiseAttack()
    with seeded(seed), torch.no_grad(), progress.phase("", queries, "queries") as spent:
        limited = _QueryLimit(target, x, y, begin, spent)
        model = wrapped(limited.logits, x.device)
        with suppress(_OutOfQueries):
            algorithm(model, x, y, epsilons=None, starting_points=begin)

    nearest = stabilise(target, x, y, limited.closest, "l2")
    closest.adversarial[ready] = nearest.adversarial
    closest.distance[ready] = nearest.distance
    return closest
