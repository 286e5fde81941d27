"""The input that a network was trained with, as a function of jembench's images.

Legend: B batch, C channels of the data, H height, W width; c, h, w: of the network's input.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from jembench.data.pixels import Bounds
from jembench.errors import SpecError
from jembench.interfaces import DataSpec


class Affine(NamedTuple):
    """The map ``x * factor + shift`` from the data's range to a network's."""

    factor: Float[Tensor, "c 1 1"]
    shift: Float[Tensor, "c 1 1"]


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The size, crop, range and normalisation of the images that a network was trained with."""

    bounds: Bounds = (0.0, 1.0)  # the values of level 0 and level 255, before the normalisation
    mean: tuple[float, ...] = (0.0,)  # three values: grey images are shown as three equal channels
    std: tuple[float, ...] = (1.0,)
    resize: int | tuple[int, int] | None = None  # of the shorter side, or (H, W); None: none
    crop: tuple[int, int] | None = None  # (H, W) of the central part; what lies outside is black
    method: str = "bilinear"
    order: tuple[int, ...] = (0, 1, 2)  # of three channels: (2, 1, 0) is BGR
    # True: half a pixel of a margin is rounded, as by torchvision, not cut off
    rounds: bool = False

    def affine(self, bounds: Bounds) -> Affine:
        """Return the map from images within ``bounds`` to normalised ones."""
        low, high = bounds
        own_low, own_high = self.bounds
        scale = (own_high - own_low) / (high - low)
        mean = torch.tensor(self.mean, dtype=torch.float64).view(-1, 1, 1)
        std = torch.tensor(self.std, dtype=torch.float64).view(-1, 1, 1)
        factor = scale / std
        shift = (own_low - scale * low - mean) / std
        return Affine(factor.float(), shift.float())

    def fit(self, x: Float[Tensor, "B C H W"], bounds: Bounds) -> Float[Tensor, "B C h w"]:
        """Resize and crop images within ``bounds``."""
        low, high = bounds
        size = self.resized(*x.shape[-2:])
        if x.shape[-2:] != size:
            # Pillow filters by its own bicubic kernel, which PyTorch has only with antialias
            shrinks = max(x.shape[-2:]) > max(size)
            antialias = self.method == "bicubic" or shrinks
            options = {} if self.method == "nearest-exact" else {"antialias": antialias}
            x = F.interpolate(x, size, mode=self.method, **options)
            x = x.clamp(low, high) if self.method == "bicubic" else x
        if self.crop and x.shape[-2:] != self.crop:
            height, width = x.shape[-2:]
            h, w = self.crop
            top = self._margin(height - h)
            left = self._margin(width - w)
            right = left + w - width
            x = F.pad(x, (-left, right, -top, top + h - height), value=low)
        return x

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the size (H, W) of images before the crop."""
        if not isinstance(self.resize, int):
            return self.resize or (height, width)
        longer = int(self.resize * max(height, width) / min(height, width))
        if height <= width:
            return (self.resize, longer)
        return (longer, self.resize)

    def _margin(self, surplus: int) -> int:
        """Return the pixels that a crop leaves out on a side."""
        if self.rounds and surplus > 0:
            return round(surplus / 2)
        return int(surplus / 2)

    def shape(self, data: DataSpec) -> tuple[int, int, int]:
        """Return the shape (c, h, w) of the network's input.

        Raises:
            SpecError: if the images have neither one channel nor one per value of mean and std.
        """
        channels, height, width = data.shape
        numbers = {len(self.mean), len(self.std)} - {1}
        if len(numbers) > 1 or (channels > 1 and numbers - {channels}):
            raise SpecError(
                f"mean has {len(self.mean)} values, std {len(self.std)}, and the images of "
                f"{data.name} {channels} channels. Give one value for all channels, or one each."
            )
        height, width = self.crop or self.resized(height, width)
        return max([channels, *numbers]), height, width

    def as_seen(self, data: DataSpec, names: Sequence[str], number: int) -> DataSpec:
        """Return the description of images and classes that the network was trained on.

        Args:
            data: the description of the dataset.
            names: of the network's outputs; empty: unknown.
            number: of the outputs.
        """
        shape = self.shape(data)
        factor, shift = self.affine(data.bounds)
        low, high = (bound * factor + shift for bound in data.bounds)
        return DataSpec(
            name=data.name,
            shape=shape,
            num_classes=number,
            class_names=tuple(names),
            bounds=(float(low.min()), float(high.max())),
        )

    def obstacle(self, data: DataSpec) -> str:
        """Return why the network has no density of the dataset's images; "": it has one."""
        own, sides = data.shape[1:], self.resized(*data.shape[1:])
        channels, height, width = self.shape(data)
        if sides != own or (height, width) != own:
            return f"images are resized to {height}x{width} pixels"
        if channels != data.shape[0]:
            return f"grey images are shown as {channels} equal channels"
        return "" if self.order == (0, 1, 2) else "channels are reordered"

    def __str__(self) -> str:
        steps: list[str] = []
        if isinstance(self.resize, int):
            steps.append(f"shorter side to {self.resize} pixels ({self.method})")
        elif self.resize:
            steps.append(f"size {self.resize[0]}x{self.resize[1]} ({self.method})")
        if self.crop:
            steps.append(f"central {self.crop[0]}x{self.crop[1]}")
        if self.bounds != (0, 1):
            steps.append(f"values from {self.bounds[0]:g} to {self.bounds[1]:g}")
        mean, std = (", ".join(map("{:.3g}".format, values)) for values in (self.mean, self.std))
        steps.append(f"mean {mean}, std {std}")
        if self.order != (0, 1, 2):
            steps.append("channels BGR")
        return "; ".join(steps)


def preparation(bounds: Any, mean: Any, std: Any, size: int | None) -> Preparation:
    """Return the preparation of options, after their check.

    Args:
        bounds: the network's values of level 0 and level 255.
        mean: subtracted from these values: one number, or one per channel.
        std: divides the difference: one number, or one per channel.
        size: of square input, in pixels; None: that of the images.

    Raises:
        SpecError: if a number is missing, no number or out of range.
    """
    means = _numbers("mean", mean)
    stds = _numbers("std", std)
    low_high = _numbers("bounds", bounds)
    if len(low_high) != 2 or low_high[0] == low_high[1]:
        raise SpecError(
            f"bounds is {bounds!r}; it must be the values of a black and of a white pixel: 0..1."
        )
    if min(stds) <= 0:
        raise SpecError(f"std is {std!r}; its numbers must be greater than 0.")
    resize = (size, size) if size else None
    low, high = low_high
    return Preparation(bounds=(low, high), mean=means, std=stds, resize=resize, method="bicubic")


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        listed = tuple(map(float, values if isinstance(values, Iterable) else [values]))
    except (TypeError, ValueError):
        listed = ()
    if not listed or not all(map(math.isfinite, listed)):
        raise SpecError(f"{name} is {values!r}; it must be numbers, such as .485+.456+.406.")
    return listed
