"""The images of figures, stored with a measurement: each image once, and grids of indices.

Legend: N images, M of them shown, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Generator, Tensor

from jembench.data import grid

COLUMNS = 10
"""The number of images in a row."""


def pictures(images: UInt8[Tensor, "N C H W"], grids: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Return the images of some grids, and the grids; the index -1 is an empty place.

    The arrays are ``images`` (M, C, H, W), each once; ``shown`` (M,), their indices among the N; and the grids, with
    indices into ``images``.
    """
    used = np.unique(np.concatenate([chosen.ravel() for chosen in grids.values()]))
    shown = used[used >= 0]
    compact = {name: np.where(chosen < 0, -1, np.searchsorted(shown, chosen)) for name, chosen in grids.items()}
    return {"images": images[torch.from_numpy(shown)].numpy(), "shown": shown, **compact}


def in_rows(chosen: NDArray[np.int64], rows: int = COLUMNS) -> NDArray[np.int64]:
    """Arrange the first images in rows, (rows, COLUMNS); -1 where there are too few."""
    cells = np.full(rows * COLUMNS, -1)
    cells[: len(chosen)] = chosen[: len(cells)]
    return cells.reshape(rows, COLUMNS)


def first_of_classes(order: NDArray[np.int64], classes: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """Return the first images of each class (K, COLUMNS) in an order of all images."""
    return np.concatenate([in_rows(order[classes[order] == number], 1) for number in range(num_classes)])


def random_of_classes(classes: NDArray[np.int64], num_classes: int, generator: Generator) -> NDArray[np.int64]:
    """Return random images of each class (K, COLUMNS)."""
    return grid.by_class(torch.from_numpy(classes), num_classes, COLUMNS, generator).numpy()
