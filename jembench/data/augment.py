"""Augmentation of a batch on its device, each image with its own random numbers.

Legend: B batch, C channels, H height, W width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor
from torch.nn import functional as F

from jembench.errors import JembenchError


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Random changes of training images that keep their classes."""

    pad: int = 0  # reflected pixels on each side, of which a random crop keeps H x W
    flip: bool = False  # left to right, with probability 1/2
    then: Callable[[Tensor, Generator], Tensor] | None = None  # uint8 (B, C, H, W) to the same

    def __call__(
        self, images: UInt8[Tensor, "B C H W"], generator: Generator
    ) -> UInt8[Tensor, "B C H W"]:
        """Reflect-pad, crop back to H x W at a random place, flip with probability 1/2.

        ``pad=4`` with flips is the augmentation of the reference implementation of JEM for
        CIFAR-10. Random numbers are drawn on the generator's device. Indices of pixels are padded
        and cropped instead of the images, which are read once.

        Raises:
            JembenchError: if an image is too small to reflect ``pad`` pixels.
        """
        if self.flip or self.pad:
            images = self._crop_and_flip(images, generator)
        if self.then is not None:
            images = self.then(images, generator)
        return images

    def _crop_and_flip(self, images: Tensor, generator: Generator) -> Tensor:
        batch, channels, height, width = images.shape
        self.check(height, width)
        device = images.device
        rows, columns = _shifted(height, self.pad, device), _shifted(width, self.pad, device)
        flipped = None
        if self.flip:
            flipped = _integers(2, (batch, 1), generator, device) == 1

        # the row and column from which each pixel comes
        row, column = rows[:1].expand(batch, -1), columns[:1].expand(batch, -1)
        if self.pad:
            down, across = _integers(len(rows), (batch, 2), generator, device).unbind(1)
            row, column = rows[down], columns[across]
        if flipped is not None:
            column = torch.where(flipped, column.flip(1), column)

        pixel = (row[:, :, None] * width + column[:, None, :]).flatten(1)
        sources = pixel[:, None].expand(-1, channels, -1)
        return images.flatten(2).gather(2, sources).view_as(images)

    def check(self, height: int, width: int) -> None:
        """Check that images of a size can be augmented.

        Raises:
            JembenchError: if they are too small to reflect ``pad`` pixels.
        """
        most = min(height, width) - 1
        if self.pad > most:
            raise JembenchError(
                f"Images of {height}x{width} cannot be padded by {self.pad} reflected pixels. Pad "
                f"by {most} or less: --set data.pad={most}."
            )


def _integers(
    high: int, shape: tuple[int, ...], generator: Generator, device: torch.device
) -> Int[Tensor, "*shape"]:
    """Draw uniform integers 0..high-1."""
    return torch.randint(high, shape, generator=generator, device=generator.device).to(device)


def _shifted(size: int, pad: int, device: torch.device) -> Int[Tensor, "S L"]:
    """Return the positions 0..size-1 after each of the S = 2 pad + 1 shifts.

    They are reflected at both ends.
    """
    positions = torch.arange(size, device=device, dtype=torch.float32)[None]
    padded = F.pad(positions, (pad, pad), mode="reflect")[0]
    return padded.long().unfold(0, size, 1)
