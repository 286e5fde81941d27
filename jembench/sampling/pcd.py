"""Persistent contrastive divergence: chains that go on from where the last iteration left them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from jembench.errors import CheckpointError
from jembench.interfaces import ChainState, DataSpec
from jembench.sampling.replay import ReplayBuffer
from jembench.sampling.sgld import Langevin, LangevinChains


class PersistentChains(LangevinChains):
    """SGLD from a replay buffer (Tieleman, 2008; Du & Mordatch, 2019; Grathwohl et al., 2020, Algorithm 1).

    Args:
        data: the images' shape, bounds and classes.
        langevin: the update.
        buffer_size: N, the number of chains kept.
        reinit: the probability that a drawn chain is started afresh from uniform noise.
    """

    def __init__(self, data: DataSpec, langevin: Langevin, *, buffer_size: int, reinit: float) -> None:
        super().__init__(data, langevin)
        self.reinit = reinit
        self.buffer = ReplayBuffer(buffer_size, data)
        self.filled = False
        self.conditional = False  # whether the slots belong to classes: set by the first chains

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Draw n chains from the buffer, from their classes' slots if y is given; restart some of them."""
        if not self.filled:
            self.buffer.fill(self.start(self.buffer.size, generator=generator).x)
            self.filled = True
        self.buffer.to(generator.device)
        self.conditional = y is not None
        slots = self.buffer.draw(n, generator) if y is None else self.buffer.draw_of_class(y, generator)
        ages = self.buffer.ages[slots]
        restart = torch.rand(n, generator=generator, device=generator.device) < self.reinit
        fresh = self.start(n, y, generator=generator)
        x = torch.where(restart[:, None, None, None], fresh.x, self.buffer.images[slots])
        self.buffer.ages[slots] = ages.masked_fill(restart, 0)
        return ChainState(x, y, slots)

    def finish(self, state: ChainState) -> None:
        """Write the chains back into their slots."""
        assert state.slots is not None
        self.buffer.images[state.slots] = state.x
        self.buffer.ages[state.slots] += self.steps

    def kept(self) -> ChainState | None:
        """A copy of all chains in the buffer, in the order of their slots; None before the first were drawn."""
        if not self.filled:
            return None
        slots = torch.arange(self.buffer.size, device=self.buffer.ages.device)
        y = self.buffer.class_of(slots) if self.conditional else None
        return ChainState(self.buffer.images.clone(), y, slots)

    def state_dict(self) -> dict[str, Tensor]:
        """The buffer, the age of each slot, whether it has been filled, and whether slots belong to classes."""
        return {
            "images": self.buffer.images,
            "ages": self.buffer.ages,
            "filled": torch.tensor(self.filled),
            "conditional": torch.tensor(self.conditional),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a buffer.

        Raises:
            CheckpointError: if it is not the state of such a sampler, or of another size or shape than this one's.
        """
        if state.keys() != self.state_dict().keys():
            raise CheckpointError(
                "The checkpoint holds no replay buffer: it is of a model or a recipe without one. Train anew, or use "
                "the recipe that the checkpoint was made with."
            )
        if state["images"].shape != self.buffer.images.shape:
            raise CheckpointError(
                f"The checkpoint's replay buffer is {tuple(state['images'].shape)}, but the recipe's sampler keeps "
                f"{tuple(self.buffer.images.shape)}. Train anew, or use the recipe that the checkpoint was made with."
            )
        device = self.buffer.images.device
        self.buffer.images = state["images"].to(device, copy=True)
        self.buffer.ages = state["ages"].to(device, copy=True)
        self.filled = bool(state["filled"])
        self.conditional = bool(state["conditional"])
