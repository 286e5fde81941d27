"""Grids of images, written as PNG.

Legend: N images, C channels, H height, W width, K classes.
"""

import math
from pathlib import Path

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor
from torch.nn import functional as F

from jembench.files import write_atomically

SMALLEST = 32
"""Images with a shorter side are enlarged by a whole factor, pixel by pixel, to at least this many pixels."""


def by_class(classes: Int[Tensor, " N"], num_classes: int, columns: int, generator: Generator) -> Int[Tensor, "K M"]:
    """Choose images for a grid with a row per class, ``columns`` drawn at random; -1 where there are too few."""
    order = torch.randperm(len(classes), generator=generator)
    chosen = torch.full((num_classes, columns), -1)
    for number in range(num_classes):
        members = order[classes[order] == number][:columns]
        chosen[number, : len(members)] = members
    return chosen


def at_random(n: int, columns: int, generator: Generator) -> Int[Tensor, "R M"]:
    """Choose some of n images at random for a grid of ten rows of ``columns``; -1 where there are too few."""
    chosen = torch.full((10 * columns,), -1)
    drawn = torch.randperm(n, generator=generator)[: len(chosen)]
    chosen[: len(drawn)] = drawn
    return chosen.view(10, columns)


def write_png(
    path: Path, images: UInt8[Tensor, "N C H W"], chosen: Int[Tensor, "R M"], option: str = "--store"
) -> None:
    """Write the images with the indices ``chosen`` as a grid on a grey ground; -1 leaves a place empty.

    ``option`` is the option of the command line that determines ``path``, for errors.

    Raises:
        StoreError: if the file cannot be written.
    """
    from PIL import Image

    _, channels, height, width = images.shape
    scale = max(1, math.ceil(SMALLEST / min(height, width)))
    gap = 2
    blank = torch.full((1, channels, height, width), 128, dtype=torch.uint8)
    tiles = torch.cat([images, blank])[chosen]  # -1 is the blank one
    tiles = F.pad(tiles.repeat_interleave(scale, 3).repeat_interleave(scale, 4), (gap, 0, gap, 0), value=128)
    rows, columns = chosen.shape
    sheet = tiles.permute(2, 0, 3, 1, 4).reshape(channels, rows * tiles.shape[3], columns * tiles.shape[4])
    sheet = F.pad(sheet, (0, gap, 0, gap), value=128)
    array = sheet.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array.squeeze(2) if channels == 1 else array)
    write_atomically(path, lambda stream: picture.save(stream, format="PNG"), option)
