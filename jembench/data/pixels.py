"""Between pixel levels 0..255 and the floats that a model sees, and between their units. Nowhere else is it done.

``bounds`` = (low, high) is ``DataSpec.bounds``: what level 0 and level 255 become.

Legend: any shape; images are (B, C, H, W) as a rule.
"""

from __future__ import annotations

from jaxtyping import Float, UInt8
from torch import Tensor

Bounds = tuple[float, float]


def to_float(images: UInt8[Tensor, "*shape"], bounds: Bounds) -> Float[Tensor, "*shape"]:
    """Levels 0..255 -> float32 from ``low`` to ``high``, both reached exactly."""
    low, high = bounds
    return images.float().div_(255).mul_(high - low).add_(low)


def to_uint8(x: Float[Tensor, "*shape"], bounds: Bounds) -> UInt8[Tensor, "*shape"]:
    """The nearest of the levels 0..255; what lies outside of ``bounds`` is clamped first.

    Raises:
        ValueError: for NaN, which has no level.
    """
    if x.isnan().any():
        raise ValueError("images that hold NaN cannot be written as pixels")
    low, high = bounds
    return x.float().clamp(low, high).sub_(low).mul_(255 / (high - low)).round_().byte()


def noise_to_model(std: float, bounds: Bounds) -> float:
    """A standard deviation on [-1, 1], as published (.03), in the model's units."""
    low, high = bounds
    return std * (high - low) / 2
