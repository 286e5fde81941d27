"""The images of figures, stored with a measurement: each image once, and grids of indices.

Legend: N images, M of them shown, C channels, H height, W width.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor


def pictures(images: UInt8[Tensor, "N C H W"], grids: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Return the images of some grids, and the grids; the index -1 is an empty place.

    The arrays are ``images`` (M, C, H, W), each once; ``shown`` (M,), their indices among the N; and the grids, with
    indices into ``images``.
    """
    used = np.unique(np.concatenate([chosen.ravel() for chosen in grids.values()]))
    shown = used[used >= 0]
    compact = {name: np.where(chosen < 0, -1, np.searchsorted(shown, chosen)) for name, chosen in grids.items()}
    return {"images": images[torch.from_numpy(shown)].numpy(), "shown": shown, **compact}
