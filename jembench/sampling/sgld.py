"""Stochastic gradient Langevin dynamics: the update, and the sampler that starts every chain from noise.

Legend: B chains, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from jembench.interfaces import ChainState, DataSpec, GradEnergy, StepInfo


def langevin_step(
    x: Float[Tensor, "B C H W"],
    grad: Float[Tensor, "B C H W"],
    *,
    step_size: float,
    noise: float,
    generator: Generator,
) -> Float[Tensor, "B C H W"]:
    """x' = x - step_size dE/dx + noise N(0, I).

    Proper Langevin dynamics has noise = sqrt(2 step_size); the papers sample colder. JEM's Appendix H writes
    step_size = alpha / 2 with alpha = 2. On E = |x|^2 / (2 s^2) the stationary variance is
    noise^2 s^4 / (step_size (2 s^2 - step_size)).
    """
    kick = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return x.sub(grad, alpha=step_size).add_(kick, alpha=noise)


def uniform_start(n: int, data: DataSpec, generator: Generator) -> Float[Tensor, "n C H W"]:
    """Images of independent pixels, uniform within the bounds, on the generator's device."""
    low, high = data.bounds
    return torch.rand((n, *data.shape), generator=generator, device=generator.device).mul_(high - low).add_(low)


@dataclass(frozen=True, kw_only=True, slots=True)
class Langevin:
    """What every SGLD chain has: its length and the two constants of its update."""

    steps: int
    step_size: float
    noise: float

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> tuple[ChainState, StepInfo]:
        """One Langevin step of every chain."""
        energy, grad = grad_energy(state.x, state.y)
        x = langevin_step(state.x, grad, step_size=self.step_size, noise=self.noise, generator=generator)
        return state._replace(x=x), StepInfo(energy, grad)


class LangevinChains:
    """What chains by SGLD have in common, however they begin and whatever is kept of them."""

    def __init__(self, data: DataSpec, langevin: Langevin) -> None:
        self.data = data
        self.langevin = langevin

    @property
    def steps(self) -> int:
        """The length of a chain during training."""
        return self.langevin.steps

    def start(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """n new chains at uniform noise."""
        return ChainState(uniform_start(n, self.data, generator), y)

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> tuple[ChainState, StepInfo]:
        """One Langevin step of every chain."""
        return self.langevin.step(state, grad_energy, generator)


class ShortRun(LangevinChains):
    """Short-run SGLD: every chain starts from uniform noise and nothing is kept (Nijkamp et al., 2019).

    JEM needs 80 to 100 steps for it to be stable (Grathwohl et al., 2020, Appendix H.2).
    """

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """n chains at uniform noise."""
        return self.start(n, y, generator=generator)

    def finish(self, state: ChainState) -> None:
        """Nothing outlives a short run."""

    def kept(self) -> ChainState | None:
        """None: there is no buffer."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Empty: there is no state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """There is no state to load."""
