"""Persistent contrastive divergence: chains that continue from their last ends.

A replay buffer keeps the ends.

Legend: N slots, B chains, K classes, M = N / K slots a class, C channels, H height, W width.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import ChainState, DataSpec, Start
from jembench.sampling.sgld import Langevin, ShortRun


class PersistentChains(ShortRun):
    """SGLD from a replay buffer.

    Tieleman (2008); Du and Mordatch (2019); Grathwohl et al. (2020), Algorithm 1.

    The buffer is N images and the age of each, in sampling steps since its last restart. For chains
    on E(x, y), the slots k M to (k + 1) M - 1 belong to class k.

    Args:
        data: the images' shape, bounds and classes.
        langevin: the update.
        buffer_size: N, the number of chains kept.
        reinit: the probability that a drawn chain is started afresh.
        starts: the starts of new chains and of the initial buffer; uniform noise if None.
    """

    def __init__(
        self,
        data: DataSpec,
        langevin: Langevin,
        starts: Start | None = None,
        *,
        buffer_size: int,
        reinit: float,
    ) -> None:
        super().__init__(data, langevin, starts)
        self.data = data
        self.reinit = reinit
        # placeholders until the first chains are drawn
        self.images = torch.zeros((buffer_size, *data.shape))
        self.ages = torch.zeros(buffer_size, dtype=torch.int64)
        self.filled = False
        self.conditional = False  # whether the slots belong to classes: set by the first chains

    @property
    def capacity(self) -> int:
        """The number of chains in the buffer."""
        return len(self.images)

    @property
    def slots_per_class(self) -> int:
        """The number M of slots of each class.

        Raises:
            SpecError: if there are no classes, or the slots cannot be shared out evenly among them.
        """
        classes = self.data.num_classes
        if classes == 0 or self.capacity % classes:
            raise SpecError(
                f"A replay buffer of {self.capacity} images cannot be shared out evenly among "
                f"{classes} classes, which chains on E(x, y) need. Choose a buffer size that is a "
                "multiple of the number of classes."
            )
        return self.capacity // classes

    def check_batch(self, n: int, *, conditional: bool) -> None:
        """Check that n chains, if conditional all of one class, can be drawn at once.

        Raises:
            SpecError: if the buffer, or a class's part of it, has fewer slots.
        """
        slots, share = self.capacity, ""
        if conditional:
            slots, share = self.slots_per_class, " for each class"
        if n > slots:
            raise SpecError(
                f"A batch of {n} chains does not fit a replay buffer of {slots} images{share}. "
                "Make the buffer of the sampler larger or the batch smaller."
            )

    def init(self, n: int, y: Tensor | None = None, *, generator: Generator) -> ChainState:
        """Draw n chains from the buffer, and restart some of them.

        If y is given, each chain is from a slot of its class.
        """
        self.conditional = y is not None
        if not self.filled:
            slots = torch.arange(self.capacity, device=generator.device)
            y_first = self._classes(slots)
            # equal numbers of each class, as in the code of JEM++ and SADA-JEM
            if y_first is None and self.data.num_classes:
                y_first = slots % self.data.num_classes
            self.images = self.starts.draw(len(slots), y_first, generator)
            self.filled = True
        self.images = self.images.to(generator.device)
        self.ages = self.ages.to(generator.device)
        slots = self.draw_slots(n, generator) if y is None else self.draw_slots_of(y, generator)
        x, ages = self.images[slots], self.ages[slots]
        restart = torch.rand(n, generator=generator, device=generator.device) < self.reinit
        self.ages[slots] = ages.masked_fill(restart, 0)
        return ChainState(self.starts.renew(x, restart, y, generator), y, slots)

    def draw_slots(self, n: int, generator: Generator) -> Int[Tensor, " n"]:
        """Draw n different slots.

        The reference code draws with replacement, so that two chains may share a slot.
        """
        self.check_batch(n, conditional=False)
        return torch.randperm(self.capacity, generator=generator, device=generator.device)[:n]

    def draw_slots_of(self, y: Int[Tensor, " B"], generator: Generator) -> Int[Tensor, " B"]:
        """Draw different slots, one for each of the classes y.

        No class occurs in y more often than it has slots.
        """
        shape = self.data.num_classes, self.slots_per_class
        order = torch.rand(shape, generator=generator, device=generator.device).argsort(1)
        same = y[:, None] == y[None, :]
        rank = same.tril(-1).sum(1)  # number of earlier chains of the batch with the same class
        return y * self.slots_per_class + order[y, rank]

    def finish(self, state: ChainState) -> None:
        """Write the chains back into their slots."""
        assert state.slots is not None
        self.images[state.slots] = state.x
        self.ages[state.slots] += state.steps

    def kept(self) -> ChainState | None:
        """Return a copy of the buffer's chains and ages, by slot; None before the first chains."""
        if not self.filled:
            return None
        slots = torch.arange(self.capacity, device=self.ages.device)
        return ChainState(self.images.clone(), self._classes(slots), slots, ages=self.ages.clone())

    def _classes(self, slots: Tensor) -> Tensor | None:
        return slots // self.slots_per_class if self.conditional else None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the buffer's images and ages, and whether it is filled and conditional.

        The slots of a conditional buffer belong to classes.
        """
        return {
            "images": self.images,
            "ages": self.ages,
            "filled": torch.tensor(self.filled),
            "conditional": torch.tensor(self.conditional),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a buffer that :meth:`state_dict` returned.

        Raises:
            CheckpointError: if the state belongs to another kind of sampler, or its buffer has
                another size or shape.
        """
        if state.keys() != self.state_dict().keys():
            raise CheckpointError(
                "The checkpoint holds no replay buffer: its model or recipe has none. "
                "Train anew, or use the recipe that the checkpoint was made with."
            )
        if state["images"].shape != (self.capacity, *self.data.shape):
            raise CheckpointError(
                f"The checkpoint's replay buffer is {tuple(state['images'].shape)}, but the "
                f"recipe's sampler keeps {(self.capacity, *self.data.shape)}. Train anew, or use "
                "the recipe that the checkpoint was made with."
            )
        self.filled = bool(state["filled"])
        self.conditional = bool(state["conditional"])
        device = self.images.device
        self.images = state["images"].to(device, copy=True)
        self.ages = state["ages"].to(device, copy=True)
