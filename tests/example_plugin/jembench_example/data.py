"""A dataset that is computed: stripes of period 4 in three directions, with noise.

Legend: N images, H height, W width.
"""

from __future__ import annotations

import torch

from jembench.interfaces import DataSpec, Split, SplitName

_SIZES = {"train": 300, "test": 90}
_SEEDS = {"train": 0, "test": 1}
_PERIOD = 4


class Stripes:
    """Balanced: image i is of class i mod 3."""

    def __init__(self, noise: float) -> None:
        self.spec = DataSpec(
            name="stripes",
            shape=(1, 8, 8),
            num_classes=3,
            class_names=("horizontal", "vertical", "diagonal"),
        )
        self._noise = noise  # standard deviation, of pixels in 0..1

    def split(self, name: SplitName) -> Split:
        """The same images at every call."""
        generator = torch.Generator().manual_seed(_SEEDS[name])
        _, height, width = self.spec.shape
        rows, columns = torch.arange(height)[:, None], torch.arange(width)[None, :]
        # (3, H, W)
        directions = torch.stack([rows + 0 * columns, columns + 0 * rows, rows + columns])
        labels = torch.arange(_SIZES[name]) % self.spec.num_classes
        clean = (directions[labels] % _PERIOD < _PERIOD // 2).float()  # (N, H, W)
        noisy = clean + self._noise * torch.randn(clean.shape, generator=generator)
        return Split((noisy.clamp(0, 1) * 255).round().to(torch.uint8)[:, None], labels)
