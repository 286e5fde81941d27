"""Conversions between pixel levels 0..255 and the floats that a model sees, and a hash of images.

``bounds`` = (low, high) is ``DataSpec.bounds``: the values of level 0 and level 255.

Legend: any shape; images are (B, C, H, W) as a rule.
"""

from __future__ import annotations

import hashlib

from jaxtyping import Float, UInt8
from torch import Tensor

from jembench.errors import Diverged

Bounds = tuple[float, float]


def to_float(images: UInt8[Tensor, "*shape"], bounds: Bounds) -> Float[Tensor, "*shape"]:
    """Levels 0..255 -> float32 from ``low`` to ``high``, both reached exactly."""
    low, high = bounds
    return images.float().div_(255).mul_(high - low).add_(low)


def to_uint8(x: Float[Tensor, "*shape"], bounds: Bounds) -> UInt8[Tensor, "*shape"]:
    """The nearest of the levels 0..255. Values outside ``bounds`` are clamped first.

    Raises:
        Diverged: for NaN, which has no level.
    """
    if x.isnan().any():
        raise Diverged(
            "Images that the model made hold NaN: the model has diverged. Train it again with another seed or a lower "
            "learning rate."
        )
    low, high = bounds
    return x.float().clamp(low, high).sub_(low).mul_(255 / (high - low)).round_().byte()


def noise_to_model(std: float, bounds: Bounds) -> float:
    """A standard deviation on [-1, 1], as published (.03), in the model's units."""
    low, high = bounds
    return std * (high - low) / 2


def content_hash(images: Tensor) -> str:
    """16 hexadecimal digits that depend on the shape, the type and every value, and on nothing else."""
    array = images.detach().cpu().contiguous().numpy()
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(array.data)
    return digest.hexdigest()[:16]
