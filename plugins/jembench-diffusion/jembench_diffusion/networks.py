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
        SpecError: if there is none, or a U-Net cannot have the width or the images.
    """
    if match := _NAMED.fullmatch(text):
        kind = match[1]
        width = int(match[2])
        if kind == "mlp":
            return Perceptron(data, width, timesteps)
        if width % _GROUPS or any(size % 4 for size in data.shape[1:]):
            raise SpecError(
                f"{text} for images of {data.name} cannot be built: the width must be a multiple "
                f"of {_GROUPS}, and height and width of the images of 4. Write mlp-256, which "
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
        self.time = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size))
        self.classes = nn.Embedding(data.num_classes, size)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        half = self.size // 2
        rates = torch.exp(-math.log(10_000) / half * torch.arange(half, device=t.device))
        angles = self.scale * t[:, None] * rates
        waves = F.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, self.size - 2 * half))
        return F.silu(self.time(waves) + self.classes(y))


class Perceptron(nn.Module):
    """Three residual layers on all pixels, each scaled and shifted by the condition."""

    def __init__(self, data: DataSpec, width: int, timesteps: int) -> None:
        super().__init__()
        self.condition = Condition(data, width, timesteps)
        self.first, self.last = nn.Linear(data.dimensions, width), nn.Linear(width, data.dimensions)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.modulations = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(3))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), _zero(nn.Linear(width, width)))
            for _ in range(3)
        )

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

    The condition scales and shifts the second one.
    """

    def __init__(self, inside: int, outside: int, condition: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = (
            nn.GroupNorm(_GROUPS, inside),
            nn.Conv2d(inside, outside, 3, padding=1),
        )
        self.norm2, self.conv2 = (
            nn.GroupNorm(_GROUPS, outside),
            _zero(nn.Conv2d(outside, outside, 3, padding=1)),
        )
        self.modulation = nn.Linear(condition, 2 * outside)
        self.shortcut = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.modulation(condition)[:, :, None, None].chunk(2, dim=1)
        hidden = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        out: Tensor = self.shortcut(x) + self.conv2(F.silu(hidden))
        return out


class UNet(nn.Module):
    """A U-Net without attention: two blocks at three scales of w, 2w and 2w channels."""

    def __init__(self, data: DataSpec, width: int, timesteps: int) -> None:
        super().__init__()
        channels = (width, 2 * width, 2 * width)
        size = 4 * width
        self.condition = Condition(data, size, timesteps)
        self.first = nn.Conv2d(data.shape[0], width, 3, padding=1)
        pairs = list(zip((width, *channels), channels, strict=False))
        self.down = nn.ModuleList(Block(inside, outside, size) for inside, outside in pairs)
        self.middle = Block(channels[-1], channels[-1], size)
        self.up = nn.ModuleList(
            Block(2 * outside, inside, size) for inside, outside in reversed(pairs)
        )
        self.last = nn.Sequential(
            nn.GroupNorm(_GROUPS, width), nn.SiLU(), nn.Conv2d(width, data.shape[0], 3, padding=1)
        )

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        condition = self.condition(t, y)
        hidden = self.first(x)
        kept = []
        for level, block in enumerate(self.down):
            hidden = block(hidden if level == 0 else F.avg_pool2d(hidden, 2), condition)
            kept.append(hidden)
        hidden = self.middle(hidden, condition)
        for level, block in enumerate(self.up):
            if level:
                hidden = F.interpolate(hidden, scale_factor=2.0)
            hidden = block(torch.cat([hidden, kept.pop()], dim=1), condition)
        noise: Tensor = self.last(hidden)
        return noise


def _zero(layer: nn.Module) -> nn.Module:
    """Set a layer to zero, so that its residual block begins as the identity."""
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    return layer
