"""Images that look like nothing: noise and single levels. A score that cannot tell them is broken.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jembench import seeds
from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Split


class Uniform:
    """Each pixel of each channel is one of the levels 0..255, all equally likely: U(-1, 1) in the model's units."""

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        generator = seeds.generator(0, "outliers/uniform")
        return torch.randint(256, (len(test.images), *data.shape), generator=generator, dtype=torch.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """Each image has one level in all its pixels and channels.

    Grathwohl et al. (2020) write of a constant 0, their successors of -1; ``value=0`` becomes level 128 of 0..255, the
    nearest there is.
    """

    value: float | None  # in the model's units; None: a level for each image, all 256 equally likely

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        n = len(test.images)
        if self.value is None:
            generator = seeds.generator(0, "outliers/constant")
            levels = torch.randint(256, (n,), generator=generator, dtype=torch.uint8)
        else:
            levels = torch.full((n,), self._level(data), dtype=torch.uint8)
        return levels[:, None, None, None].expand(n, *data.shape).contiguous()

    def _level(self, data: DataSpec) -> int:
        low, high = data.bounds
        assert self.value is not None
        if not low <= self.value <= high:
            raise SpecError(f"value of constant is {self.value}; pixels of {data.name} lie between {low} and {high}.")
        return int(255 * (self.value - low) / (high - low) + 0.5)
