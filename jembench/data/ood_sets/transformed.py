"""Test images that were changed into something else, one each, in the order of the test images.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jembench import seeds
from jembench.errors import NotApplicable
from jembench.interfaces import DataSpec, Split


class Interp:
    """(x_i + x_j) / 2, where j is drawn at random among the other images; a level of .5 is rounded up.

    Grathwohl et al. (2020), section 5.3: interpolations of two images of the test set.
    """

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        n = len(test.images)
        if n < 2:
            raise NotApplicable(f"interp takes two different test images, and {data.name} has {n}.")
        generator = seeds.generator(0, "outliers/interp")
        other = (torch.arange(n) + torch.randint(1, n, (n,), generator=generator)) % n  # 1 to n - 1 further on
        return ((test.images.short() + test.images[other].short() + 1) // 2).byte()


class Flipped:
    """The mirror images."""

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        return test.images.flip(3)


class Rotated:
    """The images on their side."""

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        _, height, width = data.shape
        if height != width:
            raise NotApplicable(f"rotated needs square images; those of {data.name} are {height}x{width} pixels.")
        return test.images.rot90(1, (2, 3)).contiguous()


class Inverted:
    """The negatives."""

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        return 255 - test.images


class Permuted:
    """The same permutation of pixels for all images; the channels of a pixel stay together."""

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        generator = seeds.generator(0, "outliers/permuted")
        pixels = test.images.flatten(2)
        order = torch.randperm(pixels.shape[2], generator=generator)
        return pixels[:, :, order].reshape(test.images.shape)
