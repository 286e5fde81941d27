"""Persistent contrastive divergence: chains that go on from where the last iteration left them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from jembench.errors import CheckpointError
from jembench.interfaces import ChainState, DataSpec, Start
from jembench.sampling.replay import ReplayBuffer
from jembench.sampling.sgld import Langevin, LangevinChains


class PersistentChains(LangevinChains):
    """SGLD from a replay buffer (Tieleman, 2008; Du & Mordatch, 2019; Grathwohl et al., 2020, Algorithm 1).

    Args:
        data: the images' shape, bounds and classes.
        langevin: the update.
        buffer_size: N, the number of chains kept.
        reinit: the probability that a drawn chain is started afresh.
        starts: where new chains begin, the buffer's first ones among them; uniform noise if None.
    """

    def __init__(
        self, data: DataSpec, langevin: Langevin, starts: Start | None = None, *, buffer_size: int, reinit: float
    ) -> None:
        super().__init__(data, langevin, starts)
        self.data = data
        self.reinit = reinit
        self.buffer = ReplayBuffer(buffer_size, data)
        self.filled = False
        self.conditional = False  # whether the slots belong to classes: set by the first chains

    @property
    def capacity(self) -> int:
        """The number of chains in the buffer."""
        return self.buffer.size

    def check_batch(self, n: int, *, conditional: bool) -> None:
        """Check that n chains can be drawn at once, if conditional all of one class.

        Raises:
            SpecError: if the buffer, or a class's part of it, has fewer.
        """
        self.buffer.check(n, of_class=conditional)

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Draw n chains from the buffer, from their classes' slots if y is given; restart some of them."""
        self.conditional = y is not None
        if not self.filled:
            slots = torch.arange(self.buffer.size, device=generator.device)
            y_first = self._classes(slots)
            if y_first is None and self.data.num_classes:  # as many of each class, as in the code of JEM++ and SADA-JEM
                y_first = slots % self.data.num_classes
            self.buffer.fill(self.starts.draw(len(slots), y_first, generator))
            self.filled = True
        self.buffer.to(generator.device)
        slots = self.buffer.draw(n, generator) if y is None else self.buffer.draw_of_class(y, generator)
        x, ages = self.buffer.images[slots], self.buffer.ages[slots]
        restart = torch.rand(n, generator=generator, device=generator.device) < self.reinit
        self.buffer.ages[slots] = ages.masked_fill(restart, 0)
        return ChainState(self.starts.renew(x, restart, y, generator), y, slots)

    def finish(self, state: ChainState) -> None:
        """Write the chains back into their slots."""
        assert state.slots is not None
        self.buffer.images[state.slots] = state.x
        self.buffer.ages[state.slots] += state.steps

    def kept(self) -> ChainState | None:
        """Copy all chains in the buffer and their ages, by slot; None before the first were drawn."""
        if not self.filled:
            return None
        slots = torch.arange(self.buffer.size, device=self.buffer.ages.device)
        return ChainState(self.buffer.images.clone(), self._classes(slots), slots, ages=self.buffer.ages.clone())

    def _classes(self, slots: Tensor) -> Tensor | None:
        return self.buffer.class_of(slots) if self.conditional else None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the buffer, the age of each slot, whether it has been filled, and whether slots belong to classes."""
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
        if state["images"].shape != (self.buffer.size, *self.data.shape):
            raise CheckpointError(
                f"The checkpoint's replay buffer is {tuple(state['images'].shape)}, but the recipe's sampler keeps "
                f"{(self.buffer.size, *self.data.shape)}. Train anew, or use the recipe that the checkpoint was made "
                "with."
            )
        self.filled = bool(state["filled"])
        self.conditional = bool(state["conditional"])
        device = self.buffer.images.device
        self.buffer.images = state["images"].to(device, copy=True)
        self.buffer.ages = state["ages"].to(device, copy=True)
