"""The Metropolis-adjusted Langevin algorithm on the latents of a generator.

Legend: N chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor

TARGET, ADAPTATION = 0.57, 0.02
"""The share of accepted proposals that the step size is adapted towards, and the rate of adaptation
per step.
"""


def refined(
    log_density: Callable[..., Float[Tensor, " N"]],
    start: Sequence[Tensor],
    step_size: float,
    steps: int,
    generator: Generator,
) -> tuple[Tensor, ...]:
    """Run N chains on several variables together, and return their ends.

    A proposal is v + h grad log p(v) + sqrt(2 h) N(0, I) (Roberts & Tweedie, 1996). After each
    step, h is multiplied by 1 + .02 (share of accepted proposals - .57); the chains of a call share
    h.

    Args:
        log_density: of the variables, up to a constant.
        start: the variables, each of N rows.
        step_size: h of the first step.
        steps: the number of steps.
        generator: of all random numbers.
    """

    def slopes(variables: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        with torch.enable_grad():
            leaves = [variable.detach().requires_grad_() for variable in variables]
            value = log_density(*leaves)
            gradients = torch.autograd.grad(value.sum(), leaves)
            return value.detach(), list(gradients)

    device = start[0].device
    h = torch.full((), step_size, device=device)
    now = list(start)
    value, slope = slopes(now)
    for _ in range(steps):
        # propose a step along the slope
        there = []
        noise = [torch.randn(v.shape, generator=generator, device=v.device) for v in now]
        for v, g, e in zip(now, slope, noise, strict=True):
            there.append(v + h * g + (2 * h).sqrt() * e)
        new_value, new_slope = slopes(there)
        # accept the step by the ratio of Metropolis and Hastings
        ratio = new_value - value
        ratio = ratio + _log_proposal(now, there, new_slope, h)
        ratio = ratio - _log_proposal(there, now, slope, h)
        uniform = torch.rand(len(value), generator=generator, device=value.device)
        accepted = uniform.log() < ratio
        value = torch.where(accepted, new_value, value)
        now = _chosen(accepted, there, now)
        slope = _chosen(accepted, new_slope, slope)
        # adapt the step size
        share = accepted.float().mean()
        h = h * (1 + ADAPTATION * (share - TARGET))
    return tuple(now)


def _log_proposal(
    to: Sequence[Tensor], at: Sequence[Tensor], slope: Sequence[Tensor], h: Tensor
) -> Tensor:
    """Return the log density (N,) of moves from ``at`` to ``to``.

    A constant is left out.
    """
    parts = []
    for b, a, g in zip(to, at, slope, strict=True):
        squared = (b - a - h * g).square() / (4 * h)
        parts.append(squared.flatten(1).sum(1))
    return -torch.stack(parts).sum(0)


def _chosen(accepted: Tensor, new: list[Tensor], old: list[Tensor]) -> list[Tensor]:
    """Return new rows where they are accepted, else old ones."""
    rows = []
    for b, a in zip(new, old, strict=True):
        is_new = accepted.view(-1, *(1,) * (b.ndim - 1))
        rows.append(torch.where(is_new, b, a))
    return rows
