"""Augmentation of a batch where it lies, each image by draws of its own.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
    _tables: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, images: UInt8[Tensor, "B C H W"], generator: Generator) -> UInt8[Tensor, "B C H W"]:
        """Reflect-pad, crop back to H x W at a random place, flip with probability 1/2.

        Pad 4 with flips is the augmentation of the reference implementation of JEM for CIFAR-10. The draws are made on
        the generator's device. Reflection, crop and flip are one look-up of rows and columns; no padded image is made.

        Raises:
            JembenchError: if an image is too small to reflect ``pad`` pixels.
        """
        if self.flip or self.pad:
            images = self._moved(images, generator)
        return images if self.then is None else self.then(images, generator)

    def _moved(self, images: Tensor, generator: Generator) -> Tensor:
        batch, channels, height, width = images.shape
        rows, columns = self._places(height, width, images.device)
        column = row = torch.zeros(1, dtype=torch.int64, device=images.device)
        if self.flip:
            column = _integers(2, (batch, 1), generator, images.device)[:, 0] * len(rows)
        if self.pad:
            row, shift = _integers(len(rows), (batch, 2), generator, images.device).unbind(1)
            column = column + shift
        source = (rows[row][..., :, None] + columns[column][..., None, :]).expand(batch, -1, -1)
        return images.flatten(2).gather(2, source.flatten(1)[:, None].expand(-1, channels, -1)).view_as(images)

    def _places(self, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where the pixels of an image come from, made once.

        Returns:
            rows (S, H), as numbers of pixels, by the S = 2 pad + 1 shifts; columns (2 S, W), of flipped images last.
        """
        key = height, width, device
        if key not in self._tables:
            self.check(height, width)
            shifts = torch.arange(-self.pad, self.pad + 1, device=device)[:, None]
            row, column = torch.arange(height, device=device), torch.arange(width, device=device)
            rows = _reflect(row + shifts, height) * width
            columns = [_reflect(place + shifts, width) for place in (column, column.flip(0))]
            self._tables[key] = rows, torch.cat(columns)
        return self._tables[key]

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
