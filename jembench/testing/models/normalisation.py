"""Densities integrate to 1, as bits per dimension assume.

Images of one or two pixels are few enough for an integral over all of them:

    x = m + h r sinh(t),   int p(x) dx = int p(x(t)) prod_d h r cosh(t_d) dt,

with m the middle of the bounds and h half of their range. In steps of t the middle is passed through slowly and what is
hundreds of ranges away is reached as well, where heavy tails have their mass. The trapezoidal rule converges faster
than any power of the step where p is smooth.

A special mistake is a probability of each of the 256 levels in place of a density. It adds up to 1 over the levels,
and as far as it has an integral at all, that is w^D, with w the width of a level's bin.

Legend: N points of the integral, D pixels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from jembench.data.dequantisation import level_width
from jembench.interfaces import DataSpec
from jembench.testing.checks import DoesNotApply, only_if, promise, require
from jembench.testing.models import consistency
from jembench.testing.models.subject import ModelSubject, needs

SHAPES = ((1, 1, 2), (1, 1, 1))
"""Two pixels are preferred: for one pixel the determinant of a flow is trivial."""

POINTS = 81
"""In each dimension; every other one is left out to see whether they are enough."""

BATCH = POINTS**2
"""Images in a batch."""

NARROW, FAR = 0.05, 10.0
"""r and the largest t: points are 0.0125 h apart in the middle, and go out to 550 h."""

RIM = 2
"""Points at each end, which should contribute nothing."""

LEVELS = 256
"""Of 8-bit pixels."""

TOLERANCE = 0.02
"""How far from 1 the integral may be, which is 0.03 bits in all."""

PRECISION = 0.005
"""How far apart two ways to compute an integral may be if one of them is to be believed."""


@promise("models")
def density_integrates_to_1(subject: ModelSubject) -> None:
    """Over all images of one or two pixels exp(log_prob(x)) integrates to 1, or over those within the bounds."""
    needs(subject.model, "log_prob")
    few = _for_few_pixels(subject)
    data = few.data
    if _is_one(_between(*data.bounds, POINTS, few)):
        return
    try:
        found = _everywhere(few)
    except DoesNotApply:
        for total in _over_levels(few):
            _refuse_masses(total, data)
        raise
    _refuse_masses(found / level_width(data.bounds) ** data.dimensions, data)
    require(
        _is_one(found),
        f"Made for {data.shape}, exp(log_prob(x)) integrates to {found:.4g} over all images, and not to 1: it is "
        "no density, and its bits per dimension mean nothing. Add what is missing: the log-determinant of every "
        "step from x on, that of scaling the pixels too, and the constant of the prior; leave out other factors.",
    )


def _for_few_pixels(subject: ModelSubject) -> ModelSubject:
    """The model for one or two pixels; skips the check if it cannot be made, or another check reports its densities."""
    for shape in SHAPES:
        few = ModelSubject(subject.resolved, (dataclasses.replace(subject.data, shape=shape),))
        try:
            with torch.no_grad():
                found = few.shaken.log_prob(few.x)
        except Exception:  # a refusal, or a fault that shapes-from-data reports
            continue
        only_if(found.shape == (len(few.x),), "It has not one number for each image: see the check log-prob-shape.")
        only_if(consistency.lie_within_their_classes(few), "See the check density-within-its-classes.")
        return few
    raise DoesNotApply("It cannot be made for images of one or two pixels, over which its density could be integrated.")


def _is_one(found: float) -> bool:
    return abs(found - 1) <= TOLERANCE


def _over_levels(few: ModelSubject) -> Iterator[float]:
    """What exp(log_prob(x)) adds up to over all levels, if they go from bound to bound, and if their bins do."""
    low, high = few.data.bounds
    half = level_width(few.data.bounds) / 2
    for start, end in ((low - half, high + half), (low, high)):
        bin_volume = ((end - start) / LEVELS) ** few.data.dimensions
        yield _between(start, end, LEVELS, few) / bin_volume


def _refuse_masses(total: float, data: DataSpec) -> None:
    """Fail the check if ``total`` shows that log_prob gives probabilities of levels."""
    width = level_width(data.bounds)
    same_as_densities = _is_one(width**data.dimensions)
    require(
        same_as_densities or not _is_one(total),
        f"Made for {data.shape}, exp(log_prob(x)) integrates to width^{data.dimensions}, where the width of a "
        f"level's bin is (high - low) / 255 of data.bounds, {width:.3g}: it is the probability mass of the "
        f"{LEVELS} levels of a pixel, or a density in units of them, and no density of x. A density is that "
        "divided by the width of the bin, once for each of the D pixels of all channels: subtract D log(width) "
        "from log_prob.",
    )


def _between(low: float, high: float, n: int, few: ModelSubject) -> float:
    """The integral over a cube by the midpoint rule: at the bounds themselves densities may be infinite."""
    width = (high - low) / n
    points = low + width * (torch.arange(n, dtype=torch.float64) + 0.5)
    return float(_contributions(few, points, torch.full((n,), width)).sum())


def _everywhere(few: ModelSubject) -> float:
    """The integral over all of R^D; skips the check if the points are too few."""
    low, high = few.data.bounds
    t = torch.linspace(-FAR, FAR, POINTS, dtype=torch.float64)
    scale = NARROW * (high - low) / 2
    steps = scale * torch.cosh(t) * (t[1] - t[0])
    contributions = _contributions(few, (low + high) / 2 + scale * torch.sinh(t), steps)
    total = float(contributions.sum())
    coarse = float(_part(contributions, slice(None, None, 2)).sum()) * 2**few.data.dimensions
    without_rim = float(_part(contributions, slice(RIM, -RIM)).sum())
    if not max(abs(total - coarse), abs(total - without_rim)) <= PRECISION * total:  # nor if one is not a number
        raise DoesNotApply("Its density is too sharp, too wide or not smooth enough to be integrated numerically.")
    return total


def _contributions(few: ModelSubject, points: Tensor, steps: Tensor) -> Tensor:
    """What each point contributes to the integral, where all pixels have the same points: (N, ..., N), D times."""
    dimensions = few.data.dimensions
    x, weights = (torch.cartesian_prod(*[values] * dimensions).view(-1, dimensions) for values in (points, steps))
    with torch.no_grad():
        parts = [few.shaken.log_prob(part) for part in torch.split(x.float().view(-1, *few.data.shape), BATCH)]
    return (torch.cat(parts).double().exp() * weights.prod(dim=1)).view([len(points)] * dimensions)


def _part(contributions: Tensor, points: slice) -> Tensor:
    return contributions[(points,) * contributions.ndim]
