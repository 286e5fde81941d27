"""Projected gradient descent on many images and restarts at once.

Madry et al. (2018), arXiv:1706.06083. The module also has the search for the smallest eps of
Grathwohl et al. (2020), arXiv:1912.03263, Appendix G.

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
from jembench.attacks.gradient import Images, Numbers, rows_where
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import (
    Closest,
    before_search,
    distance,
    per_image,
    project,
    stabilise,
    steepest,
)

Starts = Float[Tensor, "N R C H W"]
"""The starts of restarts relative to each image, in units of eps."""

STRIDE = 2.5
"""The length of all steps together in units of eps: enough to cross the ball and turn (Madry et
al., 2018). The attack of JEM's authors takes steps of 1/30 in L-inf, 40 of which do not reach every
point of the ball from every other point.
"""

FIRST: Mapping[Norm, float] = {"linf": 8 / 255, "l2": 0.5}
"""The first eps of a search."""

REMOVAL_INTERVAL = 5
"""Steps between two removals of finished images on a GPU. Finished images cost 2 % more passes in a
search; with a removal per step the GPU would wait for the host 41 times per attempt.
"""


class Hits(NamedTuple):
    """The result for each image."""

    # (N, C, H, W): the first success; else x, or for a stochastic model the best end
    adversarial: Tensor
    restart: Tensor  # int64 (N,): the restart of the success
    succeeded: Tensor  # bool (N,)


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

    def at(self, target: Target, x: Images, y: Tensor, eps: Numbers, starts: Starts) -> Hits:
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
        hits = Hits(x.clone(), torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool))
        left = torch.arange(len(x), device=x.device)

        # the rows of the images that are left: each with all of its restarts
        restarts = starts.shape[1]
        around = x.repeat_interleave(restarts, dim=0)
        label = y.repeat_interleave(restarts, dim=0)
        radius = eps.repeat_interleave(restarts, dim=0)
        begin = around + per_image(radius) * starts.flatten(0, 1)
        moved = project(begin, around, radius, self.norm)

        # on a GPU a removal at every step would take longer than the rows
        interval = REMOVAL_INTERVAL
        if target.stochastic or x.device.type == "cpu":
            interval = 1

        for step in progress.track(range(1, self.steps + 1), "", "steps"):
            gradient, wrong = target.slope(moved, label)
            confirmed = target.confirmed(wrong, moved, label)
            _take(hits, left, moved, confirmed.double())
            if step % interval == 0:
                stay = rows_where(~hits.succeeded[left])
                if not len(stay):
                    target.check()
                    return hits
                if len(stay) < len(left):
                    left = left[stay]
                    rows = [around, label, radius, moved, gradient]
                    rows = [_by_image(values, restarts)[stay].flatten(0, 1) for values in rows]
                    around, label, radius, moved, gradient = rows
            size = per_image(STRIDE / self.steps * radius)
            moved = moved + size * steepest(gradient, self.norm)
            moved = project(moved, around, radius, self.norm)

        wrong_share = target.wrong_share(moved, label, LOOKS)
        _take(hits, left, moved, wrong_share, failures=target.stochastic)
        return hits

    def robust(self, target: Target, x: Images, y: Tensor, eps: float, starts: Starts) -> Closest:
        """Find an image of another class within eps.

        A misclassified image is at distance 0.

        If the attack fails on a stochastic model, the image is the end of the restart that is
        misclassified most often.
        """
        closest = before_search(target, x, y)
        radius = torch.full_like(closest.distance, eps).to(x.dtype)
        for begins in (starts[:, :1], starts[:, 1:]):  # most images need no second restart
            rows = rows_where(closest.distance.isinf())
            if len(rows) and begins.shape[1]:
                hits = self.at(target, x[rows], y[rows], radius[rows], begins[rows])
                far = distance(x[rows], hits.adversarial, self.norm)
                closest.adversarial[rows] = hits.adversarial
                closest.distance[rows] = torch.where(hits.succeeded, far, torch.inf)
        return closest

    def minimal(
        self, target: Target, x: Images, y: Tensor, starts: Starts, sizes: Sequence[float] = ()
    ) -> Closest:
        """Find the smallest eps of each image.

        At ``1 - tolerance`` times that eps, every restart fails.

        The first restart searches the smallest eps at which it succeeds. Then all restarts attack
        just below this eps, and a restart that succeeds searches next, until none succeeds. The
        result is the best of all restarts, as if each restart searched, for a fraction of the
        passes. A size in ``sizes`` that is within the tolerance below an image's distance is
        attacked separately, as in :meth:`robust`.
        """
        closest = before_search(target, x, y)
        best = closest.distance
        largest = largest_distance(self.norm, x[0].numel())
        shrink = 1 - self.tolerance

        def attempt(rows: Tensor, eps: Tensor, starts: Tensor) -> Hits:
            radius = eps[rows].to(x.dtype)
            hits = self.at(target, x[rows], y[rows], radius, starts[rows])
            closest.keep(x, rows, hits.adversarial, hits.succeeded, self.norm)
            return hits

        rows = rows_where(best.isinf())
        own = starts[:, :1].clone()
        restarts = starts.shape[1]
        for search in range(1, restarts + 1):
            # one restart of each image searches its smallest eps
            left = rows
            failed = torch.zeros_like(best)  # the largest failed eps below the best
            leap = 2 * self.tolerance
            with progress.phase(f"search {search}:", len(rows), "images") as searched:
                while len(left):
                    eps = _next_eps(failed, best, leap, FIRST[self.norm], largest)
                    hits = attempt(left, eps, own)
                    failed[left] = torch.where(hits.succeeded, failed[left], eps[left])
                    leap = min(2 * leap, 0.5)
                    wide = best.isfinite() & (best - failed > self.tolerance * best)
                    growing = best.isinf() & (failed < largest)
                    left = left[(wide | growing)[left]]
                    searched.done = len(rows) - len(left)
            if restarts == 1 or not len(rows):
                break

            # all restarts attack just below the best; a restart that succeeds searches next
            with progress.phase(f"checked by {restarts} restarts"):
                hits = attempt(rows, (shrink * best).clamp_max(largest), starts)
            own[rows] = starts[rows, hits.restart][:, None]
            rows = rows[hits.succeeded]

        # the points of a curve, which may lie between the last failure and the best
        for size in sizes:
            rows = rows_where((best > size) & (shrink * best < size))
            if len(rows):
                attempt(rows, torch.full_like(best, size), starts)
        return stabilise(target, x, y, closest, self.norm)


def _take(
    hits: Hits, left: Tensor, moved: Tensor, share: Tensor, *, failures: bool = False
) -> None:
    """Record the row of each unfinished image that is most often misclassified.

    The row is a success only if it is always misclassified.

    Args:
        hits: changed in place.
        left: int64 (M,), the images of the rows; the rows of an image are consecutive.
        moved: (B, C, H, W), the rows.
        share: float64 (B,), the share of a row's predictions that are wrong.
        failures: True to also record rows without a success.
    """
    # the restart of each image that is misclassified most often
    share = share.view(len(left), -1)
    row = torch.arange(len(left), device=share.device)
    restart = share.argmax(dim=1)
    images = _by_image(moved, share.shape[1])[row, restart]

    going = ~hits.succeeded[left]
    success = going & (share[row, restart] == 1)
    taken = going if failures else success
    hits.adversarial[left] = torch.where(per_image(taken), images, hits.adversarial[left])
    hits.restart[left] = torch.where(success, restart, hits.restart[left])
    hits.succeeded[left] |= success


def _by_image(rows: Tensor, restarts: int) -> Tensor:
    """Reshape (B, ...) to (N, R, ...)."""
    return rows.view(-1, restarts, *rows.shape[1:])


def _next_eps(failed: Tensor, reached: Tensor, leap: float, first: float, largest: float) -> Tensor:
    """Return the next eps.

    The eps doubles until a success, then falls by growing leaps until a failure, and is then
    bisected.
    """
    up = torch.where(failed == 0, first, 2 * failed).clamp_max(largest)
    halfway = (failed + reached) / 2
    down = torch.where(failed == 0, (1 - leap) * reached, halfway)
    return torch.where(reached.isinf(), up, down)
