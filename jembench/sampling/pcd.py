"""Persistent contrastive divergence: chains that go on from where the last iteration left them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Generator, Tensor

from jembench.errors import CheckpointError, SpecError
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
        self.rank = 0  # which part of all chains these are
        self.filled = False
        self.conditional = False  # whether the slots belong to classes: set by the first chains

    def share(self, rank: int, size: int) -> None:
        """Keep one of ``size`` equal parts of the buffer, and of each class's slots if they belong to classes.

        Raises:
            SpecError: if the parts cannot be equal.
        """
        if self.buffer.size % size:
            raise SpecError(
                f"A replay buffer of {self.buffer.size} images cannot be shared out evenly among {size} processes. "
                "Choose a buffer size that is a multiple of their number."
            )
        self.rank = rank
        self.buffer = ReplayBuffer(self.buffer.size // size, self.data, size)

    def whole(self, parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The state of the whole buffer, from those of its parts in the order of their ranks."""
        state = dict(parts[0])
        for name in ("images", "ages"):
            joined = torch.cat([part[name] for part in parts])
            state[name] = torch.empty_like(joined)
            state[name][self._order(bool(state["conditional"]))] = joined
        return state

    def _order(self, conditional: bool) -> Tensor:
        """The slots of the whole buffer, part after part."""
        size, shares = self.buffer.size, self.buffer.shares
        classes = self.buffer.num_classes if conditional else 1
        return torch.arange(shares * size).view(classes, shares, size // classes).transpose(0, 1).flatten()

    @property
    def capacity(self) -> int:
        """The number of chains in the whole buffer."""
        return self.buffer.shares * self.buffer.size

    def check_batch(self, n: int, *, conditional: bool) -> None:
        """Whether n chains can be drawn at once, if conditional all of one class.

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
        """A copy of all chains in the buffer and of their ages, by slot; None before the first were drawn."""
        if not self.filled:
            return None
        slots = torch.arange(self.buffer.size, device=self.buffer.ages.device)
        return ChainState(self.buffer.images.clone(), self._classes(slots), slots, ages=self.buffer.ages.clone())

    def _classes(self, slots: Tensor) -> Tensor | None:
        return self.buffer.class_of(slots) if self.conditional else None

    def state_dict(self) -> dict[str, Tensor]:
        """The buffer, the age of each slot, whether it has been filled, and whether slots belong to classes."""
        return {
            "images": self.buffer.images,
            "ages": self.buffer.ages,
            "filled": torch.tensor(self.filled),
            "conditional": torch.tensor(self.conditional),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a whole buffer, or of a whole one the part that is kept.

        Raises:
            CheckpointError: if it is not the state of such a sampler, or of another size or shape than this one's.
        """
        if state.keys() != self.state_dict().keys():
            raise CheckpointError(
                "The checkpoint holds no replay buffer: it is of a model or a recipe without one. Train anew, or use "
                "the recipe that the checkpoint was made with."
            )
        whole = (self.buffer.shares * self.buffer.size, *self.data.shape)
        if state["images"].shape != whole:
            raise CheckpointError(
                f"The checkpoint's replay buffer is {tuple(state['images'].shape)}, but the recipe's sampler keeps "
                f"{whole}. Train anew, or use the recipe that the checkpoint was made with."
            )
        self.filled = bool(state["filled"])
        self.conditional = bool(state["conditional"])
        device = self.buffer.images.device
        slots = self._order(self.conditional).chunk(self.buffer.shares)[self.rank].to(state["images"].device)
        self.buffer.images = state["images"][slots].to(device)
        self.buffer.ages = state["ages"][slots].to(device)
