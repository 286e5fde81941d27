"""A multiscale flow of actnorms, invertible 1x1 convolutions and affine couplings.

The layers are those of normflows, whose ``inverse`` maps images to latents and whose ``forward``
maps latents to images.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from normflows import MultiscaleFlow  # type: ignore[import-untyped]
from normflows.flows import (  # type: ignore[import-untyped]
    AffineConstFlow,
    AffineCouplingBlock,
    Invertible1x1Conv,
    Merge,
    Squeeze,
)
from normflows.nets import ConvNet2d  # type: ignore[import-untyped]
from torch import Tensor, distributed, nn

from jembench.parts import densities

MAX_LOG_SCALE = 2.0
"""The largest log scale of a coupling: no dimension is scaled by more than exp(2) = 7.4."""

_CONSTANT = 1e-6
"""The constant added to a standard deviation, so that a constant channel has a finite scale."""


class ActNorm(AffineConstFlow):  # type: ignore[misc]
    """A scale and a shift of each channel.

    A batch initialises scale and shift only while ``fitting`` is True. In normflows the first batch
    of any kind does so, in evaluation mode too.
    """

    fitting = False

    def __init__(self, channels: int) -> None:
        super().__init__((channels, 1, 1))

    def inverse(self, z: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B C H W"], Tensor]:
        """Return (z - t) exp(-s), and its log determinant."""
        if self.fitting:
            self._fit(z.detach())
        normalised: tuple[Tensor, Tensor] = super().inverse(z)
        return normalised

    @torch.no_grad()
    def _fit(self, z: Float[Tensor, "B C H W"]) -> None:
        dim = (0, 2, 3)
        std, mean = torch.std_mean(z, dim=dim, keepdim=True, correction=0)
        statistics = torch.stack([torch.log(std + _CONSTANT), mean])
        if distributed.is_available() and distributed.is_initialized():
            distributed.broadcast(statistics, src=0)  # so that all processes train the same model
        self.s.copy_(statistics[0])
        self.t.copy_(statistics[1])


class BoundedScales(nn.Module):
    """A network for the shifts and log scales of a coupling.

    Log scales lie within +-MAX_LOG_SCALE.

    Glow's sigmoid scales can be near 0, so that dividing by these scales, from latents to images,
    overflows: one of 1,000 samples of a well-trained model was not finite.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D H W"]:
        """Return shifts at even channels and log scales at odd ones."""
        pairs = self.network(x).unflatten(1, (-1, 2))
        shifts, scales = pairs.unbind(2)
        bounded = MAX_LOG_SCALE * torch.tanh(scales / MAX_LOG_SCALE)
        return torch.stack([shifts, bounded], dim=2).flatten(1, 2)


@contextmanager
def fitting_actnorms(flow: nn.Module) -> Iterator[None]:
    """Let passes through the flow initialise its actnorms within the context."""
    layers = [module for module in flow.modules() if isinstance(module, ActNorm)]
    for layer in layers:
        layer.fitting = True
    try:
        yield
    finally:
        for layer in layers:
            layer.fitting = False


def multiscale_flow(
    shape: tuple[int, int, int], *, levels: int, steps: int, hidden: int, components: int
) -> MultiscaleFlow:
    """Make the flow over images of a shape.

    The prior has ``components`` components at each level.

    Each level turns height and width into channels, and all but the last give half of their
    channels to the prior.

    Args:
        shape: (C, H, W); 2^levels divides H and W.
        levels: the number of scales.
        steps: the number of steps of flow per level.
        hidden: the number of channels within each coupling's network.
        components: the number of classes, or 1.
    """
    channels, height, width = shape
    flows: list[list[nn.Module]] = []
    priors: list[densities.ClassGaussians] = []
    for level in range(1, levels + 1):
        channels = 4 * channels
        height = height // 2
        width = width // 2
        pieces: list[nn.Module] = []
        for _ in range(steps):
            pieces += _step(channels, hidden)
        flows.append([*pieces, Squeeze()])
        channels = channels if level == levels else channels // 2
        priors.append(densities.ClassGaussians((channels, height, width), components))
    merges = [Merge() for _ in range(levels - 1)]
    return MultiscaleFlow(priors[::-1], flows[::-1], merges)


def _step(channels: int, hidden: int) -> list[nn.Module]:
    """Return the layers of a step of flow, from latents to images.

    The coupling is initialised as the identity.
    """
    widths = (channels // 2, hidden, hidden, channels)
    network = ConvNet2d(widths, (3, 1, 3), init_zeros=True)
    coupling = AffineCouplingBlock(BoundedScales(network), scale_map="exp")
    with warnings.catch_warnings():
        # normflows 1.7.3 uses a deprecated name for the factorisation of its random rotation
        warnings.filterwarnings("ignore", message="torch.lu is deprecated")
        rotation = Invertible1x1Conv(channels, use_lu=True)
    return [coupling, rotation, ActNorm(channels)]
