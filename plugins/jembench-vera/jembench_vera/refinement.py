"""The Metropolis-adjusted Langevin algorithm on the latents of a generator.

Legend: N chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor

TARGET, ADAPTATION = 0.57, 0.02
"""The share of accepted proposals that the step size is adapted towards, and the rate of it, per
step.
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
        steps: their number.
        generator: of all random numbers.
    """

    def slopes(variables: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        with torch.enable_grad():
            leaves = [variable.detach().requires_grad_() for variable in variables]
            value = log_density(*leaves)
            return value.detach(), list(torch.autograd.grad(value.sum(), leaves))

    def log_proposal(
        to: Sequence[Tensor], at: Sequence[Tensor], slope: Sequence[Tensor], h: Tensor
    ) -> Tensor:
        parts = [
            ((b - a - h * g).square() / (4 * h)).flatten(1).sum(1)
            for b, a, g in zip(to, at, slope, strict=True)
        ]
        return -torch.stack(parts).sum(0)

    h = torch.full((), step_size, device=start[0].device)
    now = list(start)
    value, slope = slopes(now)
    for _ in range(steps):
        noise = [torch.randn(v.shape, generator=generator, device=v.device) for v in now]
        there = [v + h * g + (2 * h).sqrt() * e for v, g, e in zip(now, slope, noise, strict=True)]
        new_value, new_slope = slopes(there)
        ratio = (
            new_value
            - value
            + log_proposal(now, there, new_slope, h)
            - log_proposal(there, now, slope, h)
        )
        accepted = torch.rand(len(value), generator=generator, device=value.device).log() < ratio
        value = torch.where(accepted, new_value, value)
        now, slope = (
            [
                torch.where(accepted.view(-1, *(1,) * (b.ndim - 1)), b, a)
                for a, b in zip(old, new, strict=True)
            ]
            for old, new in ((now, there), (slope, new_slope))
        )
        h = h * (1 + ADAPTATION * (accepted.float().mean() - TARGET))
    return tuple(now)
