"""The promise of densities that integrate to 1, for bits per dimension.

Images of one pixel are few enough for an integral over all of them. The midpoint rule covers the
bounds. The substitution

    x = m + h r sinh(t),   int p(x) dx = int p(x(t)) h r cosh(t) dt,

covers all x, with m the middle of the bounds and h half of their range. Equal steps of t are fine
around the middle, and the points reach 550 h, which covers heavy tails. The trapezoidal rule
converges faster than any power of the step where p is smooth.
"""

import dataclasses

import torch
from torch import Tensor

from jembench.data.dequantisation import level_width
from jembench.testing.checks import DoesNotApply, only_if, promise, require
from jembench.testing.models.subject import ModelSubject, needs

POINTS = 2561
"""Ten for each level of a pixel, and one more, so that every other point includes both ends."""

NARROW, FAR = 0.05, 10.0
"""r and the largest t."""

TOLERANCE = 0.02
"""The largest distance of the integral from 1, which is 0.03 bits."""

PRECISION = 0.005
"""The largest relative change of an integral without every other point, or without the ends."""


@promise("models")
def density_integrates_to_1(subject: ModelSubject) -> None:
    """exp(log_prob(x)) integrates to 1 over all images of one pixel, or over all within the bounds.

    Add the log-determinant of every transformation of x, the scaling of pixels included, and the
    constant of the prior. If log_prob is the probability of one of the 256 levels of a pixel,
    subtract log((high - low) / 255) for each of the D pixels of all channels.
    """
    needs(subject.model, "log_prob")
    pixel = ModelSubject(subject.resolved, (dataclasses.replace(subject.data, shape=(1, 1, 1)),))
    try:
        with torch.no_grad():
            pixel.perturbed.log_prob(pixel.x)
    except Exception as error:  # the check shapes-from-data reports faults
        raise DoesNotApply(
            "It cannot be made for one pixel, over which its density could be integrated."
        ) from error
    low, high = subject.data.bounds
    centres = (torch.arange(POINTS) + 0.5) / POINTS
    within = float(_integrate(pixel, low + (high - low) * centres, (high - low) / POINTS).sum())
    if _is_one(within):
        return
    # over all x, since a density may have mass outside of the bounds
    t, scale = torch.linspace(-FAR, FAR, POINTS, dtype=torch.float64), NARROW * (high - low) / 2
    points, steps = (low + high) / 2 + scale * t.sinh(), scale * t.cosh() * (t[1] - t[0])
    parts = _integrate(pixel, points, steps)
    total = float(parts.sum())
    errors = [total - 2 * float(parts[::2].sum()), total - float(parts[2:-2].sum())]
    converged = all(abs(error) <= PRECISION * total for error in errors)  # False for NaN
    is_mass = _is_one(within / level_width(subject.data.bounds))
    only_if(
        converged or is_mass,
        "Its density is too sharp, too wide or not smooth enough to be integrated.",
    )
    integral = total if converged else within
    require(
        _is_one(integral),
        f"For one pixel exp(log_prob(x)) integrates to {integral:.4g}, and not to 1.",
    )


def _integrate(pixel: ModelSubject, points: Tensor, steps: Tensor | float) -> Tensor:
    """Return the contribution of each point to the integral, float64 (N,)."""
    with torch.no_grad():
        log_prob: Tensor = pixel.perturbed.log_prob(points.float().view(-1, 1, 1, 1))
    return log_prob.double().exp() * steps


def _is_one(number: float) -> bool:
    return abs(number - 1) <= TOLERANCE
