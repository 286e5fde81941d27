"""The replay buffer: where persistent chains rest between two training iterations. It never sees an energy.

Legend: N slots, B chains, K classes, M = N / K slots a class, C channels, H height, W width.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from jembench.errors import SpecError
from jembench.interfaces import DataSpec


class ReplayBuffer:
    """N images and the age of each, in sampling steps since its last restart.

    Class k owns the slots k M to (k + 1) M - 1 for chains on E(x, y).

    Args:
        size: N.
        data: the images' shape and classes.
    """

    def __init__(self, size: int, data: DataSpec) -> None:
        self.num_classes = data.num_classes
        self.images = torch.zeros((size, *data.shape))  # until they are filled
        self.ages = torch.zeros(size, dtype=torch.int64)

    def to(self, device: torch.device) -> None:
        """Move the buffer to ``device`` if it is elsewhere, as after loading."""
        self.images = self.images.to(device)
        self.ages = self.ages.to(device)

    def fill(self, images: Float[Tensor, "N C H W"]) -> None:
        """Put a new image into every slot."""
        self.images = images
        self.ages = torch.zeros(self.size, dtype=torch.int64, device=images.device)

    @property
    def size(self) -> int:
        """The number of slots, N."""
        return len(self.ages)

    def check(self, n: int, *, of_class: bool) -> None:
        """Check that n different slots can be drawn, all of one class if ``of_class``.

        Raises:
            SpecError: if there are fewer.
        """
        room = self._slots_per_class() if of_class else self.size
        if n > room:
            if of_class:
                problem = f"may ask for {n} chains of one class, and its part of the replay buffer has {room} images"
            else:
                problem = f"of {n} chains does not fit a replay buffer of {room} images"
            raise SpecError(f"A batch {problem}. Make the sampler's buffer larger or the batch smaller.")

    def draw(self, n: int, generator: Generator) -> Int[Tensor, " n"]:
        """Draw n different slots. (The reference code draws with replacement, so two chains may write one slot.)"""
        self.check(n, of_class=False)
        return torch.randperm(self.size, generator=generator, device=generator.device)[:n]

    def draw_of_class(self, y: Int[Tensor, " B"], generator: Generator) -> Int[Tensor, " B"]:
        """Draw different slots, each among those of the wanted class."""
        per_class = self._slots_per_class()
        order = torch.rand((self.num_classes, per_class), generator=generator, device=generator.device).argsort(1)
        same = y[:, None] == y[None, :]
        rank = same.tril(-1).sum(1)  # how many earlier chains of the batch want the same class
        if len(y) > per_class and int(rank.max()) >= per_class:
            raise SpecError(
                f"A batch asks for {int(rank.max()) + 1} chains of one class, but its part of the replay buffer has "
                f"{per_class} images. Make the sampler's buffer larger or the batch smaller."
            )
        return y * per_class + order[y, rank]

    def _slots_per_class(self) -> int:
        if self.num_classes == 0 or self.size % self.num_classes:
            raise SpecError(
                f"A replay buffer of {self.size} images cannot be shared out evenly among {self.num_classes} classes, "
                "which chains on E(x, y) need. Choose a buffer size that is a multiple of the number of classes."
            )
        return self.size // self.num_classes

    def class_of(self, slots: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return the class that owns each slot."""
        return slots // self._slots_per_class()
