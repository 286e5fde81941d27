"""Heuristics against divergence that did not help JEM's authors, and proper SGLD.

Grathwohl et al. (2020, Appendix H.3) name clipped gradients (``optimizer.clip`` of a recipe),
clipped energies and ignored examples of atypical energy, without constants; those here are ours.
Appendix H.1 describes proper SGLD.

Legend: B chains, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from jembench.interfaces import Batch, ChainState, GradEnergy, Loss, Negatives
from jembench.parts import Langevin, hybrid_loss, langevin_step
from jembench_jem.model import JEM

NORMAL = 1.4826
"""The standard deviation of a Gaussian, in units of its median absolute deviation."""


class TamedJEM(JEM):
    """JEM whose loss clips or leaves out the energies of outlying samples.

    Such samples lie far from the other samples of the batch.

    Args:
        net: see :class:`~jembench.parts.LogitModel`.
        energies: ``clip`` or ``drop``.
        limit: the largest distance of an energy from the median, in robust standard deviations.
    """

    def __init__(self, net: nn.Module, energies: Literal["clip", "drop"], limit: float) -> None:
        super().__init__(net)
        self.energies, self.limit = energies, limit

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return JEM's loss with the tamed mean of E(x_q).

        The guard and the history receive all energies unchanged.
        """
        loss = hybrid_loss(self, batch, negatives, self.weights)
        assert loss.energies is not None
        samples = loss.energies.samples
        total = loss.total + samples.mean() - self.tamed_mean(samples)
        return loss._replace(total=total)

    def tamed_mean(self, energies: Float[Tensor, " B"]) -> Float[Tensor, ""]:
        """Return the mean of clipped or kept energies."""
        median = energies.detach().median()
        values = energies.detach()
        spread = NORMAL * (values - median).abs().median()
        low = median - self.limit * spread
        high = median + self.limit * spread
        if self.energies == "clip":
            return energies.clamp(low, high).mean()
        kept = (values >= low) & (values <= high)
        return torch.where(kept, energies, 0).sum() / kept.sum()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProperLangevin(Langevin):
    """SGLD whose noise has a variance of twice step times temperature.

    Welling and Teh (2011).

    Step t of a chain has the size ``step_size (1 + t / offset) ** -decay``, t from 0 in each
    iteration of a training.
    """

    decay: float
    offset: float
    temperature: float

    def step(self, state: ChainState, grad_energy: GradEnergy, generator: Generator) -> ChainState:
        """Take one step with every chain."""
        _, grad = grad_energy(state.x, state.y)
        decayed = (1 + state.steps / self.offset) ** -self.decay
        size = self.step_size * decayed
        noise = (2 * size * self.temperature) ** 0.5
        x = langevin_step(state.x, grad, step_size=size, noise=noise, generator=generator)
        return state._replace(x=x, steps=state.steps + 1)
