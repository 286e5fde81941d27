"""Projected gradient descent on many images and restarts at once, and the smallest eps at which it succeeds.

Madry et al. (2018), arXiv:1706.06083; the search for the smallest eps is that of Grathwohl et al. (2020),
arXiv:1912.03263, Appendix G.

Legend: N images, R restarts, B rows (an image with one of its restarts), C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jembench.attacks.eps import Norm, largest_distance
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import AttackTrace, Closest, project, steepest

STRIDE = 2.5
"""All steps together, in units of eps: enough to come from one end of the ball to the other, and to turn (Madry et al.,
2018). The authors' attack on JEM makes steps of 1/30 in L-inf: 40 of them do not reach the far side from everywhere."""

FIRST: Mapping[Norm, float] = {"linf": 8 / 255, "l2": 0.5}
"""The eps at which the search begins."""

LOOK = 5
"""Steps after which a GPU is asked which images have ended. In a search their rows cost 2 % more passes; to ask at each
step would leave the GPU idle 41 times an attempt."""


class Hits(NamedTuple):
    """The result for each image."""

    adversarial: Tensor  # (N, C, H, W): the first image of another class; else, of random answers, the most often wrong
    restart: Tensor  # int64 (N,): the restart that found it
    found: Tensor  # bool (N,)


@dataclass(frozen=True, kw_only=True, slots=True)
class PGD:
    """The attack and its budget.

    Args:
        norm: the norm of the perturbation.
        steps: the steps per restart.
        tolerance: the relative accuracy of the smallest eps.
    """

    norm: Norm
    steps: int = 40
    tolerance: float = 0.01

    def at(
        self,
        target: Target,
        x: Float[Tensor, "N C H W"],
        y: Int[Tensor, " N"],
        eps: Float[Tensor, " N"],
        starts: Float[Tensor, "N R C H W"],
    ) -> Hits:
        """Attack every image from all its restarts at once, within its own eps. The first success ends an image.

        The rows of an image that has ended go on without effect until they are left out. That makes the host wait for
        the device, so on a GPU it is done every ``LOOK`` steps. Of a stochastic model the host looks at every step,
        since a wrong answer is asked for again: the same rows are left, and draw the same noise, on every device.

        Args:
            target: the model.
            x: images in [0, 1].
            y: their classes.
            eps: the eps of each image.
            starts: the start of each restart relative to the image, in units of eps.
        """
        restarts = starts.shape[1]
        hits = Hits(x.clone(), torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool))
        left = torch.arange(len(x), device=x.device)
        around, label, radius = (each.repeat_interleave(restarts, dim=0) for each in (x, y, eps))
        moved = project(around + _per_row(radius) * starts.flatten(0, 1), around, radius, self.norm)
        every = 1 if target.stochastic or x.device.type == "cpu" else LOOK
        for step in range(1, self.steps + 1):
            gradient, wrong = target.slope(moved, label)
            changed = _take(target, hits, left, wrong, moved, label)
            if changed and step % every == 0:
                stay = target.places(~hits.found[left])
                if not len(stay):
                    return hits
                if len(stay) < len(left):
                    left = left[stay]
                    around, label, radius, moved, gradient = (
                        _by_image(each, restarts)[stay].flatten(0, 1)
                        for each in (around, label, radius, moved, gradient)
                    )
            size = _per_row(STRIDE / self.steps * radius)
            moved = project(moved + size * steepest(gradient, self.norm), around, radius, self.norm)
        _take(target, hits, left, target.classes(moved) != label, moved, label)
        if target.stochastic:
            often = target.wrong_share(moved, label, LOOKS).view(-1, restarts)
            _put(hits.adversarial, left, ~hits.found[left], _each(moved, often))
        return hits

    def robust(
        self,
        target: Target,
        x: Float[Tensor, "N C H W"],
        y: Int[Tensor, " N"],
        eps: float,
        starts: Float[Tensor, "N R C H W"],
    ) -> Closest:
        """An image of another class within eps of each image, if one is found. Misclassified ones are at 0.

        If none is found for a stochastic model, it is the end of the restart that is misclassified most often.
        """
        way, tried = self._begin(target, x, y), x.clone()
        size = torch.full_like(way.best.distance, eps)
        for some in (starts[:, :1], starts[:, 1:]):  # most images need no second restart
            rows = target.places(way.nearest().distance.isinf())
            if len(rows) and some.shape[1]:
                tried[rows] = self._try(target, way, rows, size, some).adversarial
        closest = way.nearest()
        _put(closest.adversarial, torch.arange(len(x), device=x.device), closest.distance.isinf(), tried)
        return closest

    def minimal(
        self,
        target: Target,
        x: Float[Tensor, "N C H W"],
        y: Int[Tensor, " N"],
        starts: Float[Tensor, "N R C H W"],
        sizes: Sequence[float] = (),
    ) -> Closest:
        """The smallest eps of each image: at ``1 - tolerance`` times its distance, every restart fails.

        One restart descends by itself, to the smallest eps at which it succeeds. Then all the others try just below.
        The one that succeeds descends in its turn, until none does. That gives the best of all restarts, as a search
        with each of them would, for a fraction of the passes. A size in ``sizes`` that is within the tolerance below an
        image's distance is attacked by itself, as :meth:`robust` does it. For each eps that is tried, the host waits
        twice beside the steps.
        """
        way = self._begin(target, x, y)
        best, largest = way.best.distance, largest_distance(self.norm, x[0].numel())
        rows, own = target.places(best.isinf()), starts[:, :1].clone()
        for _ in range(starts.shape[1]):
            self._descend(target, way, rows, own)
            if starts.shape[1] == 1 or not len(rows):
                break
            hits = self._try(target, way, rows, ((1 - self.tolerance) * best).clamp_max(largest), starts)
            own[rows] = starts[rows, hits.restart][:, None]
            rows = rows[target.places(hits.found)]
        for size in sizes:
            rows = target.places((best > size) & ((1 - self.tolerance) * best < size))
            if len(rows):
                self._try(target, way, rows, torch.full_like(best, size), starts)
        return way.nearest()

    def _begin(self, target: Target, x: Tensor, y: Tensor) -> AttackTrace:
        misclassified = target.surely_deceived(x, y)  # others are attacked, or luck would count them as robust
        return AttackTrace(target, x, y, self.norm, Closest(x, torch.where(misclassified, 0.0, torch.inf).double()))

    def _descend(self, target: Target, way: AttackTrace, rows: Int[Tensor, " M"], starts: Tensor) -> None:
        """Find the smallest eps at which the only restart of some images succeeds, and keep what is nearest."""
        best, largest = way.best.distance, largest_distance(self.norm, way.x[0].numel())
        failed = torch.zeros_like(best)  # the largest eps below the best at which the restart failed
        leap = 2 * self.tolerance
        while len(rows):
            eps = _next_eps(failed, best, leap, FIRST[self.norm], largest)
            hits = self._try(target, way, rows, eps, starts)
            failed[rows] = torch.where(hits.found, failed[rows], eps[rows])
            leap = min(2 * leap, 0.5)
            near = best.isfinite() & (best - failed > self.tolerance * best)
            rows = rows[target.places((near | (best.isinf() & (failed < largest)))[rows])]

    def _try(self, target: Target, way: AttackTrace, rows: Int[Tensor, " M"], eps: Tensor, starts: Tensor) -> Hits:
        """Attack some images within their eps, and keep what is nearest."""
        hits = self.at(target, way.x[rows], way.y[rows], eps[rows].to(way.x.dtype), starts[rows])
        way.keep(rows, hits.adversarial, hits.found)
        return hits


def _take(target: Target, hits: Hits, left: Tensor, wrong: Bool[Tensor, " B"], moved: Tensor, label: Tensor) -> bool:
    """Note the first row that succeeds of each image that had not succeeded; False: the host knows that there is none.

    The rows of each image in ``left`` are neighbours. A stochastic model has to be deceived surely.
    """
    if target.stochastic:
        again = target.places(wrong)
        if not len(again):
            return False
        wrong[again] = target.surely(moved[again], label[again])
    wrong = wrong.view(len(left), -1)
    new = wrong.any(dim=1) & ~hits.found[left]
    _put(hits.adversarial, left, new, _each(moved, wrong.byte()))
    _put(hits.restart, left, new, wrong.byte().argmax(dim=1))
    hits.found[left] = hits.found[left] | new
    return True


def _each(rows: Float[Tensor, "B C H W"], value: Tensor) -> Float[Tensor, "N C H W"]:
    """Of each image's rows the first with its largest value, (N, R)."""
    return _by_image(rows, value.shape[1])[torch.arange(len(value), device=rows.device), value.argmax(dim=1)]


def _by_image(rows: Tensor, restarts: int) -> Tensor:
    """(B, ...) as (N, R, ...)."""
    return rows.view(-1, restarts, *rows.shape[1:])


def _put(into: Tensor, index: Int[Tensor, " M"], where: Bool[Tensor, " M"], values: Tensor) -> None:
    """``into[index[where]] = values[where]``, for which the host need not wait."""
    into[index] = torch.where(where.view(-1, *(1,) * (values.dim() - 1)), values, into[index])


def _per_row(values: Float[Tensor, " B"]) -> Float[Tensor, "B 1 1 1"]:
    return values[:, None, None, None]


def _next_eps(failed: Tensor, reached: Tensor, leap: float, first: float, largest: float) -> Tensor:
    """Twice as far until one succeeds; from a success down in growing leaps until one fails; then halfway between."""
    up = torch.where(failed == 0, first, 2 * failed).clamp_max(largest)
    down = torch.where(failed == 0, (1 - leap) * reached, (failed + reached) / 2)
    return torch.where(reached.isinf(), up, down)
