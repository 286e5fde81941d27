"""Augmentation of a batch where it lies, each image by draws of its own.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from jembench.errors import JembenchError


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """What may be done to a training image without changing its class."""

    pad: int = 0  # reflected pixels on each side, of which a random crop keeps H x W
    flip: bool = False  # left to right, every other image
    then: Callable[[Tensor, Generator], Tensor] | None = None  # uint8 (B, C, H, W) to the same; draws from it alone

    def __call__(self, images: UInt8[Tensor, "B C H W"], generator: Generator) -> UInt8[Tensor, "B C H W"]:
        """Reflect-pad, crop back to H x W at a random place, flip with probability 1/2.

        Pad 4 with flips is the augmentation of the reference implementation of JEM for CIFAR-10. The draws are made on
        the generator's device. Reflection, crop and flip are one look-up of rows and columns; no padded image is made.

        Raises:
            JembenchError: if an image is too small to reflect ``pad`` pixels.
        """
        batch, _, height, width = images.shape
        self.check(height, width)
        rows = torch.arange(height, device=images.device).expand(batch, -1)
        columns = torch.arange(width, device=images.device).expand(batch, -1)
        if self.flip:
            flipped = _integers(2, (batch, 1), generator, images.device)
            columns = torch.where(flipped == 1, width - 1 - columns, columns)
        if self.pad:
            shift = _integers(2 * self.pad + 1, (batch, 2), generator, images.device) - self.pad
            rows = _reflect(rows + shift[:, :1], height)
            columns = _reflect(columns + shift[:, 1:], width)
        source = rows[:, :, None] * width + columns[:, None, :]
        moved = images.flatten(2).gather(2, source.flatten(1)[:, None].expand(-1, images.shape[1], -1)).view_as(images)
        return moved if self.then is None else self.then(moved, generator)

    def check(self, height: int, width: int) -> None:
        """Whether images of that size can be augmented.

        Raises:
            JembenchError: if they are too small to reflect ``pad`` pixels.
        """
        most = min(height, width) - 1
        if self.pad > most:
            raise JembenchError(
                f"Images of {height}x{width} cannot be padded by {self.pad} reflected pixels. Pad by {most} or less: "
                f"--set data.pad={most}."
            )


NONE = Augmentation()
"""The image as it is."""


def add_noise(x: Float[Tensor, "B C H W"], std: float, generator: Generator) -> Float[Tensor, "B C H W"]:
    """Gaussian noise on every pixel, ``std`` in the model's units. The result may leave the bounds, as published."""
    if std == 0:
        return x
    noise = torch.randn(x.shape, generator=generator, device=generator.device, dtype=x.dtype)
    return x + std * noise.to(x.device)


def _integers(high: int, shape: tuple[int, ...], generator: Generator, device: torch.device) -> Int[Tensor, "*shape"]:
    """Uniform integers 0..high-1."""
    return torch.randint(high, shape, generator=generator, device=generator.device).to(device)


def _reflect(positions: Int[Tensor, "B L"], length: int) -> Int[Tensor, "B L"]:
    """Positions beyond either end, mirrored at the first or the last pixel, which is not repeated."""
    return (length - 1) - ((length - 1) - positions.abs()).abs()
