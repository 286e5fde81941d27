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
from jembench.parts import execution
from jembench_igebm.spectral import SpectralConv2d

SLOPE = 0.2
"""The slope of every leaky ReLU below 0."""

SMALLEST_FOR_PUBLISHED = 32  # pixels


class Layer(NamedTuple):
    """The options of a residual block, and its published name."""

    name: str
    factor: int  # number of maps, in units of the width
    pool: bool  # True to halve height and width


class Architecture(NamedTuple):
    """The options of a network."""

    width: int
    stem: int  # number of maps of the first convolution
    layers: tuple[Layer, ...]
    leaky_end: bool = False  # if conditional, sum the maps after a leaky ReLU instead of a ReLU


def _layers(text: str) -> tuple[Layer, ...]:
    """Read blocks ``"optim:1/ 1:1"``: name, factor, and a slash to pool."""
    layers = []
    for part in text.split():
        name, _, factor = part.partition(":")
        pool = factor.endswith("/")
        layers.append(Layer(f"res_{name}", int(factor.rstrip("/")), pool))
    return tuple(layers)


_LARGE = "optim:1/ 1:1 2:1 3:2/ 4:2 5:2 6:4/ 7:4 8:4"
_LARGER = "optim:1/ 1:1 2:1 2a:1 2b:1 3:2/ 4:2 5:2 5a:2 5b:2 6:4/ 7:4 8:4 8a:4 8b:4"
ARCHITECTURES = {
    # not published: for images below 32 pixels
    "small": Architecture(32, 32, _layers("optim:1/ 1:1 2:2/ 3:2")),
    "base": Architecture(128, 128, _layers("optim:1/ 1:1 2:2/ 3:2 4:2/ 5:2")),
    "large": Architecture(128, 128, _layers(_LARGE), leaky_end=True),
    "larger": Architecture(128, 128, _layers(_LARGER), leaky_end=True),
    "wider": Architecture(192, 128, _layers(_LARGE)),
}
"""The published networks for images of 32 x 32, and one for smaller images."""


def architecture(
    name: str, data: DataSpec, *, conditional: bool, width: int | None = None
) -> Architecture:
    """Return the architecture of a name, with another ``width`` if given.

    ``auto`` selects an architecture for ``data``.
    """
    if name == "auto" and min(data.shape[1:]) < SMALLEST_FOR_PUBLISHED:
        name = "small"
    elif name == "auto":
        name = "base" if conditional else "large"
    layers = ARCHITECTURES[name]
    if width is None:
        return layers
    stem = width if layers.stem == layers.width else layers.stem
    return layers._replace(width=width, stem=stem)


class ResBlock(nn.Module):
    """A residual block whose gain and bias depend on the class.

    It maps x to leaky(pool(shortcut(x) + gain conv(leaky(conv(x + bias)) + bias))).

    A bias is added before the convolution pads with zeros. Biases and gains have a row for each
    class, or one row in an unconditional block.
    """

    def __init__(self, channels_in: int, channels_out: int, *, rows: int, pool: bool) -> None:
        super().__init__()
        self.pool = pool
        self.bias_1 = nn.Parameter(torch.zeros(rows, channels_in))
        self.conv_1 = SpectralConv2d(channels_in, channels_out)
        self.bias_2 = nn.Parameter(torch.zeros(rows, channels_out))
        self.conv_2 = SpectralConv2d(channels_out, channels_out, at_most=True)
        self.gain_2 = nn.Parameter(torch.ones(rows, channels_out))
        if channels_in == channels_out:
            self.shortcut = nn.Identity()
        else:
            self.shortcut = SpectralConv2d(channels_in, channels_out)

    def forward(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None) -> Tensor:
        """Return the next maps.

        Their height and width are halved if the block pools and both are above 1.
        """
        inner = self.conv_1(x + of_class(self.bias_1, y))
        inner = F.leaky_relu(inner, SLOPE) + of_class(self.bias_2, y)
        inner = self.conv_2(inner) * of_class(self.gain_2, y)
        maps: Tensor = self.shortcut(x) + inner
        if self.pool and min(maps.shape[2:]) > 1:
            maps = F.avg_pool2d(maps, 2)
        return F.leaky_relu(maps, SLOPE)


def of_class(table: Float[Tensor, "K C"], y: Int[Tensor, " B"] | None) -> Float[Tensor, "B C 1 1"]:
    """Return the row of each image's class, or the only row."""
    rows = table if y is None else table[y]
    return rows[:, :, None, None]


class EnergyNet(nn.Module):
    """The network from images, and classes if conditional, to energies.

    Images lie within ``DataSpec.bounds``.

    Args:
        data: the images' shape, bounds and classes.
        layers: the architecture.
        conditional: True for biases and gains by class.
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
        rows = max(self.classes, 1)
        for name, factor, pool in layers.layers:
            width = factor * layers.width
            self.blocks[name] = ResBlock(channels, width, rows=rows, pool=pool)
            channels = width
        self.head = nn.Linear(channels, 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return E(x, y), or E(x) of an unconditional network."""
        return self._energy(self._stem(x), y)

    def every_class(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return E(x, y) for all y.

        Images pass K times through the blocks, but once through the stem, which has no classes.
        """
        maps = self._stem(x).repeat_interleave(self.classes, 0)
        classes = torch.arange(self.classes, device=x.device)
        energies = self._energy(maps, classes.repeat(len(x)))
        return energies.view(len(x), self.classes)

    def _stem(self, x: Tensor) -> Tensor:
        unit = to_unit(x, self.bounds)
        return F.leaky_relu(self.stem(unit), SLOPE)

    def _energy(self, maps: Tensor, y: Tensor | None) -> Tensor:
        for block in self.blocks.values():
            maps = block(maps, y)
        maps = F.leaky_relu(maps, self.end_slope)
        features = maps.sum((2, 3), dtype=self.head.weight.dtype)
        return execution.in_full(self.head, features).squeeze(1)


def to_unit(x: Float[Tensor, "B C H W"], bounds: tuple[float, float]) -> Float[Tensor, "B C H W"]:
    """Map ``bounds`` to [0, 1], the range of the published networks."""
    low, high = bounds
    return (x - low) / (high - low)
