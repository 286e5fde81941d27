"""The Metropolis-adjusted Langevin algorithm: chains whose distribution is exact for steps of any
size.

Legend: B chains, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from jembench.interfaces import ChainState, DataSpec, GradEnergy


class Known(NamedTuple):
    """Values that were computed at the images of a state."""

    by: GradEnergy
    energy: Tensor  # (B,)
    grad: Tensor  # (B, C, H, W)


class Evaluated(ChainState):
    """A state that remembers the energies of its images; one made of it by ``_replace`` does not,
    for it has others.
    """

    known: Known | None = None


class MALA:
    """x' = x - s dE/dx + sqrt(2 s) N(0, I), accepted with probability min(1, exp(E(x) - E(x'))
    q(x|x') / q(x'|x)).

    q(x'|x) is the density of the proposal, a Gaussian of mean x - s dE/dx and variance 2 s. The
    chain's distribution is exp(-E) / Z itself, where Langevin steps that are always taken have
    another, the further off the larger they are. Roberts & Tweedie (1996), Bernoulli 2(4), 341-363.
    Chains begin at uniform noise, and none is kept.

    Args:
        data: the images' shape and bounds; chains may leave the bounds.
        steps: the length of a chain during training.
        step_size: s, in units of x squared; of larger steps fewer are accepted.
    """

    def __init__(self, data: DataSpec, *, steps: int, step_size: float) -> None:
        self.data = data
        self.steps = steps
        self.step_size = step_size

    def start(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """n chains at uniform noise."""
        low, high = self.data.bounds
        noise = torch.rand((n, *self.data.shape), generator=generator, device=generator.device)
        return ChainState(low + (high - low) * noise, y)

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """n new chains."""
        return self.start(n, y, generator=generator)

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> ChainState:
        """Propose a step to every chain, which takes it or stays. One gradient a step, and one more
        at the first.
        """
        before = _known(state, grad_energy)
        noise = torch.randn(state.x.shape, generator=generator, device=state.x.device)
        proposed = state.x - self.step_size * before.grad + (2 * self.step_size) ** 0.5 * noise
        after = Known(grad_energy, *grad_energy(proposed, state.y))
        ratio = before.energy - after.energy
        ratio += self._log_density(state.x, proposed, after.grad) - self._log_density(
            proposed, state.x, before.grad
        )
        draw = torch.rand(len(ratio), generator=generator, device=ratio.device)
        accepted = draw.log() < ratio  # not where an energy is NaN
        moved = Evaluated(
            *state._replace(x=_where(accepted, proposed, state.x), steps=state.steps + 1)
        )
        energy = _where(accepted, after.energy, before.energy)
        moved.known = Known(grad_energy, energy, _where(accepted, after.grad, before.grad))
        return moved

    def _log_density(self, to: Tensor, x: Tensor, grad: Tensor) -> Tensor:
        """log q(to|x), up to a constant: (B,)."""
        return -(to - x + self.step_size * grad).square().flatten(1).sum(dim=1) / (
            4 * self.step_size
        )

    def finish(self, state: ChainState) -> None:
        """Nothing of a chain outlives it."""

    def kept(self) -> ChainState | None:
        """None."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """There is no state to load."""


def _known(state: ChainState, grad_energy: GradEnergy) -> Known:
    """The energies of a state, as the last step left them or computed."""
    if isinstance(state, Evaluated) and state.known and state.known.by is grad_energy:
        return state.known
    return Known(grad_energy, *grad_energy(state.x, state.y))


def _where(accepted: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """The new values (B, ...) of the chains that accept, the old ones of the others."""
    return torch.where(accepted.view(-1, *[1] * (new.ndim - 1)), new, old)
