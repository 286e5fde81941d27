"""Patches of real photographs that need no download: the two that scikit-learn brings.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from jembench import seeds
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import DataSpec, Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Patches:
    """Crops at random places of ``china.jpg`` and ``flower.jpg``, half of each, scaled down with a box filter."""

    zoom: int

    def __post_init__(self) -> None:
        if self.zoom < 1:
            raise SpecError(f"zoom of patches is {self.zoom}; it must be at least 1.")

    def draw(self, test: Split, data: DataSpec) -> Tensor:
        from sklearn.datasets import load_sample_images

        channels, height, width = data.shape
        photographs = load_sample_images().images
        if any(
            self.zoom * side > room for p in photographs for side, room in zip((height, width), p.shape, strict=False)
        ):
            raise NotApplicable(
                f"patches of {self.zoom} x {height}x{width} pixels do not fit scikit-learn's photographs, which are "
                "427x640. Choose a smaller zoom: patches:zoom=1."
            )
        modes = {1: "L", 3: "RGB"}
        if channels not in modes:
            raise NotApplicable(f"patches are grey or RGB, and images of {data.name} have {channels} channels.")
        generator = seeds.generator(0, "outliers/patches")
        pictures = [Image.fromarray(photograph).convert(modes[channels]) for photograph in photographs]
        cut = [
            self._patch(pictures[number % len(pictures)], height, width, torch.rand(2, generator=generator))
            for number in range(len(test.images))
        ]
        return torch.from_numpy(np.stack(cut)).reshape(-1, height, width, channels).permute(0, 3, 1, 2).contiguous()

    def _patch(self, picture: Image.Image, height: int, width: int, place: Tensor) -> np.ndarray:
        high, wide = self.zoom * height, self.zoom * width
        left, top = (
            int(p * (room + 1)) for p, room in zip(place, (picture.width - wide, picture.height - high), strict=True)
        )
        return np.asarray(picture.resize((width, height), Image.Resampling.BOX, (left, top, left + wide, top + high)))
