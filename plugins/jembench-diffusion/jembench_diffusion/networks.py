"""Networks that predict noise from x_t, t and a class.

Legend: B batch, C channels, H height, W width, E size of the embedding of t and y.
"""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import DataSpec
from jembench.plugin import SpecError, resolve

_GROUPS = 8
_NAMED = re.compile(r"(mlp|unet)-([1-9]\d{0,3})")


def build(text: str, data: DataSpec, timesteps: int) -> nn.Module:
    """Return the network that ``text`` names.

    ``text`` is mlp-WIDTH, unet-WIDTH, or the import path of a function of the DataSpec.

    Raises:
        SpecError: if there is no such network, or a U-Net cannot have the width or take the images.
    """
    if match := _NAMED.fullmatch(text):
        kind = match[1]
        width = int(match[2])
        if kind == "mlp":
            return Perceptron(data, width, timesteps)
        is_divisible = all(size % 4 == 0 for size in data.shape[1:])
        if width % _GROUPS or not is_divisible:
            raise SpecError(
                f"{text} for images of {data.name} cannot be built: the width must be a multiple "
                f"of {_GROUPS}, and the images' height and width of 4. Write mlp-256, which "
                "takes any images."
            )
        return UNet(data, width, timesteps)
    if ":" not in text:
        raise SpecError(
            f"There is no net named {text[:40]!r}. Write mlp-WIDTH (mlp-256), unet-WIDTH "
            "(unet-64), or the import path of a function that is called with the DataSpec and "
            "returns a module eps(x_t, t, y)."
        )
    net: nn.Module = resolve("models", text).make(data)
    return net


class Condition(nn.Module):
    """The embedding of t and y, (B,) and (B,) -> (B, E).

    1,000 t / T is embedded by sines, and the embedding of the class is added.
    """

    def __init__(self, data: DataSpec, size: int, timesteps: int) -> None:
        super().__init__()
        self.size = size
        self.scale = 1000 / timesteps
        first = nn.Linear(size, size)
        self.time = nn.Sequential(first, nn.SiLU(), nn.Linear(size, size))
        self.classes = nn.Embedding(data.num_classes, size)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        half = self.size // 2
        places = torch.arange(half, device=t.device)
        rates = torch.exp(-math.log(10_000) / half * places)
        angles = self.scale * t[:, None] * rates
        waves = torch.cat([angles.sin(), angles.cos()], dim=1)
        waves = F.pad(waves, (0, self.size - 2 * half))
        return F.silu(self.time(waves) + self.classes(y))


class Perceptron(nn.Module):
    """Three residual layers on all pixels, scaled and shifted by the condition."""

    def __init__(self, data: DataSpec, width: int, timesteps: int) -> None:
        super().__init__()
        self.condition = Condition(data, width, timesteps)
        self.first = nn.Linear(data.dimensions, width)
        self.last = nn.Linear(width, data.dimensions)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.modulations = nn.ModuleList()
        for _ in range(3):
            self.modulations.append(nn.Linear(width, 2 * width))
        self.layers = nn.ModuleList()
        for _ in range(3):
            inner = nn.Linear(width, width)
            layer = nn.Sequential(inner, nn.SiLU(), _zero(nn.Linear(width, width)))
            self.layers.append(layer)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        condition = self.condition(t, y)
        hidden = self.first(x.flatten(1))
        triples = zip(self.norms, self.modulations, self.layers, strict=True)
        for norm, modulation, layer in triples:
            scale, shift = modulation(condition).chunk(2, dim=1)
            hidden = hidden + layer(norm(hidden) * (1 + scale) + shift)
        noise: Tensor = self.last(F.silu(hidden)).view_as(x)
        return noise


class Block(nn.Module):
    """Two 3x3 convolutions, each after group norm and SiLU.

    The condition scales and shifts the output of the second group norm.
    """

    def __init__(self, inside: int, outside: int, condition: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(_GROUPS, inside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm2 = nn.GroupNorm(_GROUPS, outside)
        self.conv2 = _zero(nn.Conv2d(outside, outside, 3, padding=1))
        self.modulation = nn.Linear(condition, 2 * outside)
        self.shortcut: nn.Module = nn.Identity()
        if inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        modulation = self.modulation(condition)[:, :, None, None]
        scale, shift = modulation.chunk(2, dim=1)
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = self.norm2(hidden) * (1 + scale) + shift
        out: Tensor = self.shortcut(x) + self.conv2(F.silu(hidden))
        return out


class UNet(nn.Module):
    """A U-Net without attention, of two or three blocks per scale."""

    def __init__(self, data: DataSpec, width: int, timesteps: int) -> None:
        super().__init__()
        channels = (width, 2 * width, 2 * width)
        size = 4 * width
        self.condition = Condition(data, size, timesteps)
        self.first = nn.Conv2d(data.shape[0], width, 3, padding=1)
        pairs = list(zip((width, *channels), channels, strict=False))
        self.down = nn.ModuleList(Block(inside, outside, size) for inside, outside in pairs)
        self.middle = Block(channels[-1], channels[-1], size)
        self.up = nn.ModuleList()
        for inside, outside in reversed(pairs):
            self.up.append(Block(2 * outside, inside, size))
        norm = nn.GroupNorm(_GROUPS, width)
        last = nn.Conv2d(width, data.shape[0], 3, padding=1)
        self.last = nn.Sequential(norm, nn.SiLU(), last)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        condition = self.condition(t, y)
        hidden = self.first(x)
        kept = []
        for level, block in enumerate(self.down):
            if level:
                hidden = F.avg_pool2d(hidden, 2)
            hidden = block(hidden, condition)
            kept.append(hidden)
        hidden = self.middle(hidden, condition)
        for level, block in enumerate(self.up):
            if level:
                hidden = F.interpolate(hidden, scale_factor=2.0)
            both = torch.cat([hidden, kept.pop()], dim=1)
            hidden = block(both, condition)
        noise: Tensor = self.last(hidden)
        return noise


def _zero(layer: nn.Module) -> nn.Module:
    """Set a layer to zero: its block begins as the identity."""
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    return layer
