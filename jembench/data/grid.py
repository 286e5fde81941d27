"""Pictures of many images at once, as PNG.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor

from jembench.files import write_atomically

SMALLEST = 32
"""Images with a shorter side are enlarged by a whole factor, pixel by pixel, to at least this many pixels."""


def by_class(classes: Int[Tensor, " N"], num_classes: int, columns: int, generator: Generator) -> Int[Tensor, "K M"]:
    """Which images to show: a row a class, in it ``columns`` images drawn at random; -1 where there are too few."""
    order = torch.randperm(len(classes), generator=generator)
    chosen = torch.full((num_classes, columns), -1)
    for number in range(num_classes):
        members = order[classes[order] == number][:columns]
        chosen[number, : len(members)] = members
    return chosen


def at_random(n: int, columns: int, generator: Generator) -> Int[Tensor, "R M"]:
    """Which of n images to show: ten rows of ``columns``, drawn at random; -1 where there are too few."""
    chosen = torch.full((10 * columns,), -1)
    drawn = torch.randperm(n, generator=generator)[: len(chosen)]
    chosen[: len(drawn)] = drawn
    return chosen.view(10, columns)


def write_png(
    path: Path, images: UInt8[Tensor, "N C H W"], chosen: Int[Tensor, "R M"], option: str = "--store"
) -> None:
    """Write the images of ``chosen``, rows and columns as there, on a grey ground; -1 leaves a place empty.

    ``option`` is the one that leads to ``path``.

    Raises:
        StoreError: if the file cannot be written.
    """
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    _, channels, height, width = images.shape
    scale = max(1, math.ceil(SMALLEST / min(height, width)))
    gap = 2
    step_y, step_x = height * scale + gap, width * scale + gap
    rows, columns = chosen.shape
    sheet = torch.full((channels, rows * step_y + gap, columns * step_x + gap), 128, dtype=torch.uint8)
    for row, column in (chosen >= 0).nonzero().tolist():
        image = images[chosen[row, column]].repeat_interleave(scale, 1).repeat_interleave(scale, 2)
        top, left = gap + row * step_y, gap + column * step_x
        sheet[:, top : top + height * scale, left : left + width * scale] = image
    array = sheet.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array.squeeze(2) if channels == 1 else array)
    mark = PngInfo()
    mark.add_text("Software", "jembench")  # by which a command knows what it may write over
    write_atomically(path, lambda stream: picture.save(stream, format="PNG", pnginfo=mark), option)
