"""Toys: synthetic images whose density is known exactly.

They are mixtures of equally likely modes, which are the classes.

Three toys have one pixel of two channels, a point of the plane with 256 x 256 places; ``images``
has 8x8 pixels. The modes are products of independent factors: both numbers of a point together, or
each pixel of an image by itself. A factor is normalised by the sum over all of its places, the
midpoint rule of its integral.

Legend: B batch, N images, C channels, H height, W width, D numbers of an image, K modes, F factors
of d numbers each, M = 256^d places of a factor. Imports no torch until images are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

from jembench.catalog.options import never_mirrored
from jembench.data.datasets import LazyDataset
from jembench.interfaces import DataSpec, Split, SplitName

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

Kind = Literal["checkerboard", "gaussians", "images", "rings"]
SIZES: dict[SplitName, int] = {"train": 5000, "test": 2000}

_MODES: dict[Kind, int] = {"checkerboard": 8, "gaussians": 8, "images": 8, "rings": 3}
_WIDTHS: dict[Kind, float] = {"checkerboard": 0.03, "gaussians": 0.1, "images": 0.2, "rings": 0.07}
"""The standard deviations of Gaussians, images and rings, and the softness of the edges of the
checkerboard.
"""


@never_mirrored
def toy(*, kind: Kind) -> LazyDataset:
    """Synthetic images of known density.

    `toy:rings`, `toy:checkerboard`, `toy:gaussians` (2-D), `toy:images` (8x8).

    5,000 training and 2,000 test images are drawn exactly from a mixture of equally likely modes,
    the classes: 8 Gaussians on a circle, 8 squares of a 4x4 checkerboard with soft edges, 3
    concentric rings, or 8 patterns of 8x8 pixels with Gaussian noise. ``density-error`` compares a
    model with the density.
    """
    shape = (1, 8, 8) if kind == "images" else (2, 1, 1)
    truth = ToyDensity(kind, DataSpec(name=f"toy-{kind}", shape=shape, num_classes=_MODES[kind]))
    sizes = {f"{name}_size": size for name, size in SIZES.items()}
    return LazyDataset(truth.data, lambda name: truth.draw(SIZES[name], name), truth=truth, **sizes)


@dataclass(frozen=True)
class ToyDensity:
    """The density of a toy, zero outside of the cells of all levels.

    It is a :class:`~jembench.interfaces.data.Truth`.
    """

    kind: Kind
    data: DataSpec

    @property
    def shares(self) -> tuple[float, ...]:
        """The probability of each mode, (K,)."""
        return (1 / self.data.num_classes,) * self.data.num_classes

    def log_joint(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x, k) of every mode k in nats, float64."""
        from jembench.data.dequantisation import level_width

        numbers = x.double().reshape(len(x), -1, self._size)
        factors = _factors(self.kind)(numbers) - self._log_normaliser
        cell = self.data.dimensions * math.log(level_width(self.data.bounds))
        return factors.sum(dim=1) - cell - math.log(self.data.num_classes)

    def draw(self, n: int, purpose: str) -> Split:
        """Draw n images and modes by inverting each factor's distribution."""
        import torch

        from jembench import seeds

        generator = seeds.generator(0, f"{self.data.name}/{purpose}")
        modes = torch.randint(self.data.num_classes, (n,), generator=generator)
        chances = torch.exp(self._log_places - self._log_normaliser)
        chances = chances.permute(2, 1, 0).cumsum(dim=2)  # (K, F, M)
        uniform = torch.rand(n, chances.shape[1], generator=generator, dtype=torch.float64)
        places = torch.empty_like(uniform, dtype=torch.int64)
        for k, of_mode in enumerate(chances):
            members = modes == k
            heights = uniform[members].T.contiguous()
            places[members] = torch.searchsorted(of_mode, heights, right=True).T
        places.clamp_(max=chances.shape[2] - 1)  # the last sum is 1 up to rounding
        powers = reversed(range(self._size))
        levels = torch.stack([places // 256**power % 256 for power in powers], dim=2)
        return Split(levels.view(n, *self.data.shape).byte(), modes)

    @property
    def _size(self) -> int:
        """The number d of a factor."""
        return 1 if self.kind == "images" else 2

    @cached_property
    def _log_places(self) -> Float[Tensor, "M F K"]:
        """The unnormalised log probability of each place."""
        import torch

        from jembench.data.pixels import to_float

        levels = to_float(torch.arange(256, dtype=torch.uint8), self.data.bounds).double()
        places = torch.cartesian_prod(*[levels] * self._size).view(-1, 1, self._size)
        return _factors(self.kind)(places)

    @cached_property
    def _log_normaliser(self) -> Float[Tensor, "F K"]:
        return self._log_places.logsumexp(dim=0)


@cache
def _factors(kind: Kind) -> Callable[[Tensor], Tensor]:
    """Return a function of factors that gives their unnormalised log densities.

    It maps (B, F, d), or (B, 1, d), to (B, F, K).
    """
    import torch

    width, modes = _WIDTHS[kind], torch.arange(_MODES[kind], dtype=torch.float64)
    if kind == "rings":
        return lambda v: -((v.norm(dim=2, keepdim=True) - 0.3 * (1 + modes)) ** 2) / (2 * width**2)
    if kind == "gaussians":
        angles = 2 * math.pi / len(modes) * modes
        centres = 0.65 * torch.stack([angles.cos(), angles.sin()], dim=1)
        return lambda v: -(v[:, :, None] - centres).square().sum(dim=3) / (2 * width**2)
    if kind == "checkerboard":
        rows, columns = modes // 2, 2 * (modes % 2) + modes // 2 % 2
        centres = 0.5 * torch.stack([rows, columns], dim=1) - 0.75
        soft = torch.nn.functional.logsigmoid
        return lambda v: soft((0.25 - (v[:, :, None] - centres).abs()) / width).sum(dim=3)
    # cosines of the DCT
    waves = torch.cos(math.pi / 8 * torch.outer(torch.arange(3), torch.arange(8) + 0.5).double())
    patterns = 0.5 * torch.einsum("ai,bj->ijab", waves, waves).reshape(64, 9)[:, 1:]
    return lambda v: -((v - patterns) ** 2) / (2 * width**2)
