"""Parts of a training: an optimiser, an augmentation and a start of chains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec, Split


class SignSGD(torch.optim.Optimizer):
    """w <- w - lr sign(g)."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move every weight."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.sub_(weight.grad.sign(), alpha=group["lr"])


class Erase:
    """Sets a square of ``side`` pixels to 0, at a random place of each image."""

    def __init__(self, side: int) -> None:
        self.side = side

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """uint8 (B, C, H, W) to the same."""
        batch, _, height, width = images.shape
        device = images.device
        corner = torch.rand(batch, 2, 1, generator=generator, device=device)
        spans = [
            (torch.arange(size, device=device) - (corner[:, axis] * (size - self.side + 1)).long())
            for axis, size in enumerate((height, width))
        ]
        rows, columns = ((span >= 0) & (span < self.side) for span in spans)
        return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)


class Grey:
    """Starts every chain at the same image."""

    def __init__(self, data: DataSpec, level: float) -> None:
        low, high = data.bounds
        self.shape, self.value = data.shape, low + level * (high - low)

    def inform(self, train: Split) -> None:
        """The training images do not matter."""

    def draw(self, n: int, y: Tensor | None, generator: Generator) -> Tensor:
        """n grey images."""
        return torch.full((n, *self.shape), self.value, device=generator.device)

    def renew(self, x: Tensor, restart: Tensor, y: Tensor | None, generator: Generator) -> Tensor:
        """Grey images in place of the chains of ``restart``."""
        return torch.where(restart[:, None, None, None], self.draw(len(x), y, generator), x)
