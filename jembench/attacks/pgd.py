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
from jembench.attacks.milestones import AttackTrace, Closest
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import project, steepest

STRIDE = 2.5
"""All steps together, in units of eps: enough to come from one end of the ball to the other, and to turn (Madry et al.,
2018). The authors' attack on JEM makes steps of 1/30 in L-inf: 40 of them do not reach the far side from everywhere."""

FIRST: Mapping[Norm, float] = {"linf": 8 / 255, "l2": 0.5}
"""The eps at which the search begins."""


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

        A step makes the host wait for the device four times: for whether the logits are finite, for the rows that
        succeed, for the first of them of each image, and for the rows that are left. A stochastic model is evaluated
        again on the rows that succeed, which makes eight times at most.

        Args:
            target: the model.
            x: images in [0, 1].
            y: their classes.
            eps: the eps of each image.
            starts: the start of each restart relative to the image, in units of eps.
        """
        restarts = starts.shape[1]
        image = torch.arange(len(x), device=x.device).repeat_interleave(restarts)
        restart = torch.arange(restarts, device=x.device).repeat(len(x))
        hits = Hits(x.clone(), torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool))
        moved = project(x[image] + eps[image, None, None, None] * starts.flatten(0, 1), x[image], eps[image], self.norm)
        for step in range(self.steps + 1):
            if step < self.steps:
                gradient, wrong = target.slope(moved, y[image])
            else:
                gradient, wrong = torch.zeros_like(moved), target.classes(moved) != y[image]
            wrong = target.surely(wrong, moved, y[image])
            first = _first_of_each(wrong, image)
            hits.adversarial[image[first]] = moved[first]
            hits.restart[image[first]] = restart[first]
            hits.found[image[first]] = True
            if step == self.steps and target.stochastic:
                often = target.wrong_share(moved, y[image], LOOKS)
                ends = _strongest(torch.where(hits.found[image], -1.0, often), image)
                ends = ends[~hits.found[image[ends]]]
                hits.adversarial[image[ends]] = moved[ends]
            left = (~hits.found[image]).nonzero().flatten()  # as a mask the host would wait for each of four tensors
            image, restart, moved, gradient = image[left], restart[left], moved[left], gradient[left]
            if not len(image):
                break
            size = (STRIDE / self.steps * eps[image])[:, None, None, None]
            moved = project(moved + size * steepest(gradient, self.norm), x[image], eps[image], self.norm)
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
        for some in (starts[:, :1], starts[:, 1:]):  # most images need no second restart
            left = way.nearest().distance.isinf()
            if bool(left.any()) and some.shape[1]:
                hits = self.at(target, x[left], y[left], torch.full_like(y[left], eps, dtype=x.dtype), some[left])
                _keep(way, left, hits)
                tried[left] = hits.adversarial
        closest = way.nearest()
        standing = closest.distance.isinf()
        closest.adversarial[standing] = tried[standing]
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
        image's distance is attacked by itself, as :meth:`robust` does it. For each eps that is tried, the host waits 15
        times at most beside the steps (:meth:`at`).
        """
        way = self._begin(target, x, y)
        left = way.best.distance.isinf()
        chosen = torch.zeros_like(y)
        for _ in range(starts.shape[1]):
            self._descend(target, x, y, starts, chosen, left, way)
            if starts.shape[1] == 1 or not bool(left.any()):
                break
            left, chosen = self._challenge(target, x, y, starts, left, way)
        for size in sizes:
            open_ = (way.best.distance > size) & ((1 - self.tolerance) * way.best.distance < size)
            if bool(open_.any()):
                eps = torch.full_like(y[open_], size, dtype=x.dtype)
                _keep(way, open_, self.at(target, x[open_], y[open_], eps, starts[open_]))
        return way.nearest()

    def _begin(self, target: Target, x: Tensor, y: Tensor) -> AttackTrace:
        misclassified = target.surely_deceived(x, y)  # others are attacked, or luck would count them as robust
        return AttackTrace(target, x, y, self.norm, Closest(x, torch.where(misclassified, 0.0, torch.inf).double()))

    def _descend(
        self, target: Target, x: Tensor, y: Tensor, starts: Tensor, chosen: Tensor, which: Tensor, way: AttackTrace
    ) -> None:
        """Find the smallest eps at which the chosen restart of some images succeeds, and keep what is nearest."""
        largest = largest_distance(self.norm, x[0].numel())
        best = way.best
        failed = torch.zeros_like(best.distance)  # the largest eps below the best at which the restart failed
        leap = torch.full_like(best.distance, 2 * self.tolerance)
        left = which.clone()
        while bool(left.any()):
            eps = _next_eps(failed, best.distance, leap, FIRST[self.norm], largest)
            own = starts[left, chosen[left]][:, None]
            hits = self.at(target, x[left], y[left], eps[left].to(x.dtype), own)
            _keep(way, left, hits)
            failed[left] = torch.where(hits.found, failed[left], eps[left])
            leap = (2 * leap).clamp_max(0.5)
            open_ = best.distance.isinf() & (failed < largest)
            left = left & (
                open_ | (best.distance.isfinite() & (best.distance - failed > self.tolerance * best.distance))
            )

    def _challenge(
        self, target: Target, x: Tensor, y: Tensor, starts: Tensor, which: Tensor, way: AttackTrace
    ) -> tuple[Tensor, Tensor]:
        """Let all restarts try just below the best: the images where one succeeds, and which it is."""
        largest = largest_distance(self.norm, x[0].numel())
        eps = ((1 - self.tolerance) * way.best.distance).clamp_max(largest)
        hits = self.at(target, x[which], y[which], eps[which].to(x.dtype), starts[which])
        _keep(way, which, hits)
        chosen = torch.zeros_like(y)
        chosen[which] = hits.restart
        improved = which.clone()
        improved[which] = hits.found
        return improved, chosen


def _first_of_each(wrong: Bool[Tensor, " B"], image: Int[Tensor, " B"]) -> Int[Tensor, " H"]:
    """Of the rows that succeed, the first of each image; an image's rows are neighbours."""
    rows = wrong.nonzero().flatten()
    of = image[rows]
    return rows[torch.cat([torch.ones_like(of[:1], dtype=torch.bool), of[1:] != of[:-1]])]


def _strongest(often: Float[Tensor, " B"], image: Int[Tensor, " B"]) -> Int[Tensor, " H"]:
    """Of each image's rows the one with the largest value, which is in -1..1."""
    order = (image - 0.4 * often).argsort(stable=True)
    return order[_first_of_each(torch.ones_like(order, dtype=torch.bool), image[order])]


def _next_eps(failed: Tensor, reached: Tensor, leap: Tensor, first: float, largest: float) -> Tensor:
    """Twice as far until one succeeds; from a success down in growing leaps until one fails; then halfway between."""
    up = torch.where(failed == 0, first, 2 * failed).clamp_max(largest)
    down = torch.where(failed == 0, (1 - leap) * reached, (failed + reached) / 2)
    return torch.where(reached.isinf(), up, down)


def _keep(way: AttackTrace, which: Bool[Tensor, " N"], hits: Hits) -> None:
    (rows,) = which.nonzero(as_tuple=True)
    way.keep(rows[hits.found], hits.adversarial[hits.found])
