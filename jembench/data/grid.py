"""Grids of images: each image's place, and pictures of grids.

Legend: N images, C channels, H height, W width, K classes, R rows, S columns of a grid.
"""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jembench.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

Indices = NDArray[np.int64]
Pixels = NDArray[np.uint8]

COLUMNS = 10
"""The default number of images in a row."""

GROUND = 128
"""The grey between the images of a file."""

GAP = 2
"""Pixels between the images of a file, and around them."""

LINE = 14
"""Pixels from one line of a title to the next."""

SMALLEST = 32
"""The shortest side of a file's images: smaller ones are enlarged by a whole factor."""


def arranged(chosen: Indices, rows: int = COLUMNS, columns: int = COLUMNS) -> Indices:
    """Arrange the first indices row by row, (R, S); -1 where there are too few."""
    cells = np.full(rows * columns, -1)
    cells[: len(chosen)] = chosen[: len(cells)]
    return cells.reshape(rows, columns)


def first_of_classes(
    order: Indices, classes: Indices, num_classes: int, columns: int = COLUMNS
) -> Indices:
    """Return the first images of each class (K, S) in an order; -1: too few."""
    rows = [arranged(order[classes[order] == number], 1, columns) for number in range(num_classes)]
    return np.concatenate(rows)


def sheet(images: Pixels, grid: Indices, gap: int = 4, ground: int = 255, side: int = 64) -> Pixels:
    """Join pictures into one: (N, C, H, W) and (R, S) -> (height, width, 3).

    ``ground`` fills empty places.

    The images are enlarged by a whole factor, pixel by pixel, until their shorter side has ``side``
    pixels, with ``gap`` pixels between them. Images of two channels are shown by their first
    channel.
    """
    channels = 3 if images.shape[1] >= 3 else 1
    images = images[:, :channels]
    height, width = images.shape[2:]
    scale = math.ceil(side / min(height, width))
    step_y, step_x = height * scale + gap, width * scale + gap
    rows, columns = grid.shape
    picture = np.full((rows * step_y - gap, columns * step_x - gap, 3), ground, dtype=np.uint8)
    for row, column in np.argwhere(grid >= 0):
        image = images[grid[row, column]].transpose(1, 2, 0)
        image = image.repeat(scale, axis=0).repeat(scale, axis=1)
        top, left = row * step_y, column * step_x
        # one channel fills all three
        picture[top : top + height * scale, left : left + width * scale] = image
    return picture


def pictures(images: "Tensor", grids: Mapping[str, Indices]) -> dict[str, NDArray[Any]]:
    """Return the images uint8 (N, C, H, W) of some grids, and the grids, for figures.

    The index -1 is an empty place.

    The arrays are ``images``, each once; ``shown``, their indices among the N images; and the
    grids, with indices into ``images``.
    """
    used = np.unique(np.concatenate([chosen.ravel() for chosen in grids.values()]))
    shown = used[used >= 0]
    compact = {}
    for name, chosen in grids.items():
        compact[name] = np.where(chosen < 0, -1, np.searchsorted(shown, chosen))
    return {"images": images[shown].numpy(), "shown": shown, **compact}


def write_png(
    path: Path,
    images: Pixels,
    grid: Indices,
    option: str = "--store",
    title: str = "",
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a grid of images (N, C, H, W) on grey, below a title wrapped to fit.

    Args:
        path: of the file.
        images: uint8.
        grid: (R, S), with -1 for an empty place.
        option: of the command line that determines ``path``, for errors.
        title: above the images; "": none.
        texts: of the file's metadata, by their keywords.

    Raises:
        StoreError: if the file cannot be written.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    pixels = sheet(images, grid, GAP, GROUND, SMALLEST)
    # a character of Pillow's font is 6 pixels wide
    lines = textwrap.wrap(title, pixels.shape[1] // 6)
    margins = ((GAP + LINE * len(lines), GAP), (GAP, GAP), (0, 0))
    pixels = np.pad(pixels, margins, constant_values=GROUND)
    if images.shape[1] < 3:
        pixels = pixels[..., 0]
    picture = Image.fromarray(pixels)
    ImageDraw.Draw(picture).multiline_text((GAP, GAP), "\n".join(lines), "white")
    about = PngImagePlugin.PngInfo()
    for keyword, text in texts.items():
        about.add_text(keyword, text)
    write_atomically(path, lambda stream: picture.save(stream, "PNG", pnginfo=about), option)
