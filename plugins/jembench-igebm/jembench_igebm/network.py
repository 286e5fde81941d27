"""The residual networks of IGEBM: spectrally normalised, average-pooled, summed to one energy.

Legend: B batch, K classes, C channels, H height, W width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import DataSpec
from jembench.parts import Bounds, in_full
from jembench_igebm.spectral import SpectralConv2d

SLOPE = 0.2
"""Of every leaky ReLU."""

SMALLEST_FOR_PUBLISHED = 32  # pixels


class Layer(NamedTuple):
    """One residual block: its name in the published checkpoints, and what it does to the maps."""

    name: str
    factor: int  # times the width: its maps
    pool: bool  # halves height and width


class Architecture(NamedTuple):
    """A network, from the image to the sum over the last maps."""

    width: int
    stem: int  # maps of the first convolution
    layers: tuple[Layer, ...]
    leaky_end: bool = False  # what is summed: after a leaky ReLU, if conditional, instead of a ReLU


def _layers(text: str) -> tuple[Layer, ...]:
    """From ``"optim:1/ 1:1"``: each block's name, factor, and a stroke where it pools."""
    parts = [part.partition(":") for part in text.split()]
    return tuple(Layer(f"res_{name}", int(rest.rstrip("/")), rest.endswith("/")) for name, _, rest in parts)


_LARGE = "optim:1/ 1:1 2:1 3:2/ 4:2 5:2 6:4/ 7:4 8:4"
_LARGER = "optim:1/ 1:1 2:1 2a:1 2b:1 3:2/ 4:2 5:2 5a:2 5b:2 6:4/ 7:4 8:4 8a:4 8b:4"
ARCHITECTURES = {
    "small": Architecture(32, 32, _layers("optim:1/ 1:1 2:2/ 3:2")),  # not published: for images below 32 pixels
    "base": Architecture(128, 128, _layers("optim:1/ 1:1 2:2/ 3:2 4:2/ 5:2")),
    "large": Architecture(128, 128, _layers(_LARGE), leaky_end=True),
    "larger": Architecture(128, 128, _layers(_LARGER), leaky_end=True),
    "wider": Architecture(192, 128, _layers(_LARGE)),
}
"""The published networks for images of 32 x 32, and one for smaller ones."""


def architecture(name: str, data: DataSpec, *, conditional: bool, width: int | None = None) -> Architecture:
    """The network of that name, with the ``width`` given or its own; ``auto`` is the one for the images of ``data``."""
    if name == "auto":
        small = min(data.shape[1:]) < SMALLEST_FOR_PUBLISHED
        name = "small" if small else "base" if conditional else "large"
    found = ARCHITECTURES[name]
    if width is None:
        return found
    return found._replace(width=width, stem=width if found.stem == found.width else found.stem)


class ResBlock(nn.Module):
    """x -> leaky(pool(shortcut(x) + gain conv(leaky(conv(x + bias)) + bias))), bias and gain a row for each class.

    A bias is added before the convolution pads with zeros; an unconditional block has one row of each.
    """

    def __init__(self, channels_in: int, channels_out: int, *, rows: int, pool: bool) -> None:
        super().__init__()
        self.pool = pool
        self.bias_1 = nn.Parameter(torch.zeros(rows, channels_in))
        self.conv_1 = SpectralConv2d(channels_in, channels_out)
        self.bias_2 = nn.Parameter(torch.zeros(rows, channels_out))
        self.conv_2 = SpectralConv2d(channels_out, channels_out, at_most=True)
        self.gain_2 = nn.Parameter(torch.ones(rows, channels_out))
        self.shortcut = nn.Identity() if channels_in == channels_out else SpectralConv2d(channels_in, channels_out)

    def forward(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None) -> Tensor:
        """The next maps, of half the height and width if the block pools and they are more than one pixel."""
        inner = F.leaky_relu(self.conv_1(x + of_class(self.bias_1, y)), SLOPE)
        inner = self.conv_2(inner + of_class(self.bias_2, y)) * of_class(self.gain_2, y)
        maps: Tensor = self.shortcut(x) + inner
        if self.pool and min(maps.shape[2:]) > 1:
            maps = F.avg_pool2d(maps, 2)
        return F.leaky_relu(maps, SLOPE)


def of_class(table: Float[Tensor, "K C"], y: Int[Tensor, " B"] | None) -> Float[Tensor, "B C 1 1"]:
    """The row of each image's class; the only row, for all images, if there are no classes."""
    return (table if y is None else table[y])[:, :, None, None]


class EnergyNet(nn.Module):
    """Images within ``DataSpec.bounds``, and their classes if conditional -> one energy each.

    Args:
        data: the images' shape, bounds and classes.
        layers: the architecture.
        conditional: whether biases and gains belong to classes.
    """

    def __init__(self, data: DataSpec, layers: Architecture, *, conditional: bool) -> None:
        super().__init__()
        self.architecture = layers
        self.bounds = data.bounds
        self.classes = data.num_classes if conditional else 0
        self.end_slope = SLOPE if layers.leaky_end and conditional else 0.0
        self.stem = SpectralConv2d(data.shape[0], layers.stem)
        self.blocks = nn.ModuleDict()
        channels = layers.stem
        for name, factor, pool in layers.layers:
            width = factor * layers.width
            self.blocks[name] = ResBlock(channels, width, rows=max(self.classes, 1), pool=pool)
            channels = width
        self.head = nn.Linear(channels, 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None) -> Float[Tensor, " B"]:
        """E(x, y), or E(x) of an unconditional network; in the precision of the weights."""
        return self._energy(self._stem(x), y)

    def every_class(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """E(x, y) for all y: K times the images through the blocks at once. The stem sees no class."""
        maps = self._stem(x).repeat_interleave(self.classes, 0)
        y = torch.arange(self.classes, device=x.device).repeat(len(x))
        return self._energy(maps, y).view(len(x), self.classes)

    def _stem(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.stem(to_unit(x, self.bounds)), SLOPE)

    def _energy(self, maps: Tensor, y: Tensor | None) -> Tensor:
        for block in self.blocks.values():
            maps = block(maps, y)
        features = F.leaky_relu(maps, self.end_slope).sum((2, 3), dtype=self.head.weight.dtype)
        return in_full(self.head, features).squeeze(1)


def to_unit(x: Float[Tensor, "B C H W"], bounds: Bounds) -> Float[Tensor, "B C H W"]:
    """From ``bounds`` to [0, 1], where the published networks see images."""
    low, high = bounds
    return (x - low) / (high - low)
