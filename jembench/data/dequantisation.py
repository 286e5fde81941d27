"""Conversions for flows: to the unit cube and back, nats to bits per dimension.

Neighbouring levels of 8-bit images lie w = (high - low) / 255 apart. Level i has the cell of width
w around it, so that the cells of an image fill a cube with sides 256 w, which is scaled to the unit
cube around 0.

Legend: B batch, C channels, H height, W width, D dimensions.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from jembench.data.pixels import Bounds
from jembench.interfaces import DataSpec


def level_width(bounds: Bounds) -> float:
    """Return w, the distance of neighbouring levels in the model's units of x."""
    low, high = bounds
    return (high - low) / 255


def to_unit(x: Float[Tensor, "B C H W"], bounds: Bounds) -> Float[Tensor, "B C H W"]:
    """Map the cube of all cells to [-1/2, 1/2]."""
    return (x - sum(bounds) / 2) / (256 * level_width(bounds))


def from_unit(v: Float[Tensor, "B C H W"], bounds: Bounds) -> Float[Tensor, "B C H W"]:
    """Invert :func:`to_unit`."""
    return v * (256 * level_width(bounds)) + sum(bounds) / 2


def log_det_to_unit(data: DataSpec) -> float:
    """Return the logarithm of the Jacobian determinant of :func:`to_unit`, in nats per image."""
    return -data.dimensions * math.log(256 * level_width(data.bounds))


def dequantised(
    x: Float[Tensor, "B C H W"], bounds: Bounds, generator: Generator | None = None
) -> Tensor:
    """Move each pixel to a uniformly random place in the cell of its level.

    Args:
        x: images at the 256 levels.
        bounds: of the images.
        generator: on the images' device; None: PyTorch's global one, for training losses.
    """
    uniform = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return x + (uniform - 0.5) * level_width(bounds)


def bits_per_dim(log_prob: Float[Tensor, " B"], data: DataSpec) -> Float[Tensor, " B"]:
    """Return -log2 of the probability of the cell of x, per dimension.

    It is (-log p(x) / D - log w) / log 2.

    The density is taken as constant within the cell; its mean over dequantised images is the usual
    upper bound on the code length. The uniform density over all cells has 8 bits.
    """
    return (-log_prob / data.dimensions - math.log(level_width(data.bounds))) / math.log(2)
