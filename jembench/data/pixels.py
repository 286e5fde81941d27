"""Conversions of pixel levels 0..255, noise, and a hash of images.

Models take floats in place of levels.

``bounds`` = (low, high) is ``DataSpec.bounds``: the values of level 0 and level 255.

Legend: any shape; images are (B, C, H, W) as a rule.
"""

import hashlib

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from jembench.data.images import Images, parts
from jembench.errors import Diverged

Bounds = tuple[float, float]


def to_float(images: UInt8[Tensor, "*shape"], bounds: Bounds) -> Float[Tensor, "*shape"]:
    """Map levels 0..255 to float32 from ``low`` to ``high``, both reached exactly."""
    low, high = bounds
    return images.float().div_(255).mul_(high - low).add_(low)


def to_uint8(x: Float[Tensor, "*shape"], bounds: Bounds) -> UInt8[Tensor, "*shape"]:
    """Round to the nearest of the levels 0..255, after clamping to ``bounds``.

    Raises:
        Diverged: if a value is NaN.
    """
    if x.isnan().any():
        raise Diverged(
            "Images that the model made hold NaN: the model has diverged. Train it again with "
            "another seed or a lower learning rate."
        )
    low, high = bounds
    return x.float().clamp(low, high).sub_(low).mul_(255 / (high - low)).round_().byte()


def noise_to_model(std: float, bounds: Bounds) -> float:
    """Convert a standard deviation on [-1, 1], as published (.03), to the model's units."""
    low, high = bounds
    return std * (high - low) / 2


def add_noise(
    x: Float[Tensor, "B C H W"], std: float, generator: Generator
) -> Float[Tensor, "B C H W"]:
    """Add Gaussian noise of ``std``, in the model's units.

    The result is not clamped, as in the papers.
    """
    if std == 0:
        return x
    noise = torch.randn(x.shape, generator=generator, device=generator.device, dtype=x.dtype)
    return x + std * noise.to(x.device)


def content_hash(images: Tensor) -> str:
    """Return a hash of the shape, the type and all values, in 16 hexadecimal digits."""
    if isinstance(images, Images) and images.hash:
        return images.hash
    kind = torch.empty(0, dtype=images.dtype).numpy().dtype.str
    digest = hashlib.sha256(f"{kind}{tuple(images.shape)}".encode())
    for part in parts(images, 32):  # small buffers, whose memory is used again
        # numpy() makes a whole tensor out of a copy that takes no memory yet
        plain = part.detach().cpu().clone(memory_format=torch.contiguous_format)
        digest.update(plain.numpy().data)
    hashed = digest.hexdigest()[:16]
    if isinstance(images, Images):
        images.hash = hashed
    return hashed
