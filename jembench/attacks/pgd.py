"""Projected gradient descent on many images and restarts at once.

The search for the smallest eps is here as well.

Madry et al. (2018), arXiv:1706.06083; the search for the smallest eps is that of Grathwohl et al.
(2020), arXiv:1912.03263, Appendix G.

Legend: N images, R restarts, B rows (an image with one of its restarts), C channels, H height, W
    width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jembench import progress
from jembench.attacks.eps import Norm, largest_distance
from jembench.attacks.gradient import Images
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import Closest, distance, per_image, project, stabilise, steepest

Starts = Float[Tensor, "N R C H W"]
"""The starts of restarts relative to each image, in units of eps."""

STRIDE = 2.5
"""The length of all steps together in units of eps: enough to cross the ball and turn (Madry et
al., 2018). The attack of JEM's authors takes steps of 1/30 in L-inf, 40 of which do not reach every
point of the ball from every other one.
"""

FIRST: Mapping[Norm, float] = {"linf": 8 / 255, "l2": 0.5}
"""The first eps of a search."""

REMOVAL_INTERVAL = 5
"""Steps between two removals of finished images on a GPU. Their rows cost 2 % more passes in a
search; with a removal per step the GPU would wait for the host 41 times per attempt.
"""


class Hits(NamedTuple):
    """The result for each image."""

    # (N, C, H, W): the first success; else x, or for a stochastic model the best end
    adversarial: Tensor
    restart: Tensor  # int64 (N,): the restart of the success
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
        self, target: Target, x: Images, y: Tensor, eps: Float[Tensor, " N"], starts: Starts
    ) -> Hits:
        """Attack each image from all restarts within its own eps, until a success.

        The rows of a finished image have no effect and are removed from the batch. For this the
        host waits for the device, so on a GPU rows are removed every ``REMOVAL_INTERVAL`` steps.
        For a stochastic model they are removed at every step, since successes are confirmed at
        once: the same rows draw the same noise on every device.

        Args:
            target: the model.
            x: images in [0, 1].
            y: their classes, int64 (N,).
            eps: the eps of each image.
            starts: of all restarts.
        """
        restarts = starts.shape[1]
        hits = Hits(x.clone(), torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool))
        left = torch.arange(len(x), device=x.device)
        around, label, radius = (each.repeat_interleave(restarts, dim=0) for each in (x, y, eps))
        moved = project(
            around + per_image(radius) * starts.flatten(0, 1), around, radius, self.norm
        )
        every = 1 if target.stochastic or x.device.type == "cpu" else REMOVAL_INTERVAL
        for step in progress.track(range(1, self.steps + 1), "", "steps"):
            gradient, wrong = target.slope(moved, label)
            _take(hits, left, moved, target.confirmed(wrong, moved, label).double())
            if step % every == 0:
                stay = (~hits.found[left]).nonzero().flatten()
                if not len(stay):
                    target.check()
                    return hits
                if len(stay) < len(left):
                    left = left[stay]
                    around, label, radius, moved, gradient = (
                        _by_image(each, restarts)[stay].flatten(0, 1)
                        for each in (around, label, radius, moved, gradient)
                    )
            size = per_image(STRIDE / self.steps * radius)
            moved = project(moved + size * steepest(gradient, self.norm), around, radius, self.norm)
        _take(
            hits, left, moved, target.wrong_share(moved, label, LOOKS), failures=target.stochastic
        )
        return hits

    def robust(self, target: Target, x: Images, y: Tensor, eps: float, starts: Starts) -> Closest:
        """Find an image of another class within eps of each image.

        A misclassified image is at distance 0.

        If the attack fails on a stochastic model, the image is the end of the restart that is
        misclassified most often.
        """
        closest = _misclassified(target, x, y)
        size = torch.full_like(closest.distance, eps)
        for some in (starts[:, :1], starts[:, 1:]):  # most images need no second restart
            rows = closest.distance.isinf().nonzero().flatten()
            if len(rows) and some.shape[1]:
                hits = self.at(target, x[rows], y[rows], size[rows].to(x.dtype), some[rows])
                far = distance(x[rows], hits.adversarial, self.norm)
                closest.adversarial[rows] = hits.adversarial
                closest.distance[rows] = torch.where(hits.found, far, torch.inf)
        return closest

    def minimal(
        self, target: Target, x: Images, y: Tensor, starts: Starts, sizes: Sequence[float] = ()
    ) -> Closest:
        """Find the smallest eps of each image.

        At ``1 - tolerance`` times its distance, every restart fails.

        The first restart searches the smallest eps at which it succeeds. Then all restarts attack
        just below it, and one that succeeds searches in its turn, until none succeeds. The result
        is the best of all restarts, as from a search with each of them, for a fraction of the
        passes. A size in ``sizes`` that is within the tolerance below an image's distance is
        attacked separately, as in :meth:`robust`.
        """
        closest, largest = _misclassified(target, x, y), largest_distance(self.norm, x[0].numel())
        best = closest.distance

        def attempt(rows: Tensor, eps: Tensor, starts: Tensor) -> Hits:
            hits = self.at(target, x[rows], y[rows], eps[rows].to(x.dtype), starts[rows])
            closest.keep(x, rows, hits.adversarial, hits.found, self.norm)
            return hits

        rows, own = best.isinf().nonzero().flatten(), starts[:, :1].clone()
        for _ in range(starts.shape[1]):
            # the largest eps below the best at which the restart failed
            left, failed = rows, torch.zeros_like(best)
            leap = 2 * self.tolerance
            while len(left):
                eps = _next_eps(failed, best, leap, FIRST[self.norm], largest)
                hits = attempt(left, eps, own)
                failed[left] = torch.where(hits.found, failed[left], eps[left])
                leap = min(2 * leap, 0.5)
                wide = best.isfinite() & (best - failed > self.tolerance * best)
                left = left[(wide | (best.isinf() & (failed < largest)))[left]]
            if starts.shape[1] == 1 or not len(rows):
                break
            hits = attempt(rows, ((1 - self.tolerance) * best).clamp_max(largest), starts)
            own[rows] = starts[rows, hits.restart][:, None]
            rows = rows[hits.found]
        for size in sizes:
            rows = ((best > size) & ((1 - self.tolerance) * best < size)).nonzero().flatten()
            if len(rows):
                attempt(rows, torch.full_like(best, size), starts)
        return stabilise(target, x, y, closest, self.norm)


def _misclassified(target: Target, x: Tensor, y: Tensor) -> Closest:
    """Return the state before a search.

    The distance is 0 for images that deceive the model unchanged, else infinity.
    """
    return Closest(x.clone(), torch.where(target.deceived(x, y), 0.0, torch.inf).double())


def _take(
    hits: Hits, left: Tensor, moved: Tensor, share: Tensor, *, failures: bool = False
) -> None:
    """Record the row of each unfinished image that is most often misclassified.

    It counts only if it is always misclassified.

    Args:
        hits: changed in place.
        left: int64 (M,), the images of the rows; the rows of an image are consecutive.
        moved: (B, C, H, W), the rows.
        share: float64 (B,), the share of their predictions that are wrong.
        failures: True to record rows without a success as well.
    """
    share = share.view(len(left), -1)
    each, restart = torch.arange(len(left), device=share.device), share.argmax(dim=1)
    going = ~hits.found[left]
    success = going & (share[each, restart] == 1)
    images = _by_image(moved, share.shape[1])[each, restart]
    taken = going if failures else success
    hits.adversarial[left] = torch.where(per_image(taken), images, hits.adversarial[left])
    hits.restart[left] = torch.where(success, restart, hits.restart[left])
    hits.found[left] = hits.found[left] | success


def _by_image(rows: Tensor, restarts: int) -> Tensor:
    """Reshape (B, ...) to (N, R, ...)."""
    return rows.view(-1, restarts, *rows.shape[1:])


def _next_eps(failed: Tensor, reached: Tensor, leap: float, first: float, largest: float) -> Tensor:
    """Return the next eps.

    It doubles until a success, then falls by growing leaps until a failure, and is then bisected.
    """
    up = torch.where(failed == 0, first, 2 * failed).clamp_max(largest)
    down = torch.where(failed == 0, (1 - leap) * reached, (failed + reached) / 2)
    return torch.where(reached.isinf(), up, down)
