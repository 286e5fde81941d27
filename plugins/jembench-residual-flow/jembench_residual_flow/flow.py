"""The flow: actnorms and invertible residual blocks on several scales.

Legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from normflows.nets import InducedNormConv2d, LipschitzCNN  # type: ignore[import-untyped]
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from jembench.plugin import Diverged
from jembench_residual_flow.log_det import LogDet, exact

_CONSTANT = 1e-6
"""Added to a standard deviation, so that a channel without any keeps a finite scale."""

_TOLERANCE = 1e-3
"""Of the power iterations that bound the norms, as published."""

_CLOSE, _MOST = 1e-6, 1000
"""When the inversion of an image has come to its end, in the units of its latents, and after how many iterations."""


class Moved(NamedTuple):
    """Images after a layer, or after all of them."""

    z: Tensor  # (B, C, H, W)
    log_det: Tensor  # (B,): the logarithm of the Jacobian determinant


class ActNorm(nn.Module):
    """A scale and a shift of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """(x - shift) exp(log_scale)."""
        return Moved((x - self.shift) * self.log_scale.exp(), (self.log_scale.sum() * x[0, 0].numel()).expand(len(x)))

    def invert(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """From latents to images."""
        return z * torch.exp(-self.log_scale) + self.shift

    def fit(self, x: Float[Tensor, "B C H W"]) -> None:
        """Normalise these images."""
        std, mean = torch.std_mean(x, dim=(0, 2, 3), correction=0)
        statistics = torch.stack([mean, -torch.log(std + _CONSTANT)])
        if distributed.is_available() and distributed.is_initialized():
            distributed.broadcast(statistics, src=0)  # or each process would train a model of its own
        self.shift.copy_(statistics[0, :, None, None])
        self.log_scale.copy_(statistics[1, :, None, None])


class Squeeze(nn.Module):
    """Height and width for channels."""

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """2 x 2 pixels become four channels."""
        return Moved(F.pixel_unshuffle(x, 2), x.new_zeros(len(x)))

    def invert(self, z: Float[Tensor, "B c h w"]) -> Float[Tensor, "B C H W"]:
        """From latents to images."""
        return F.pixel_shuffle(z, 2)


class Block(nn.Module):
    """x + g(x), where no change of x changes g(x) by as much: so it is invertible.

    Args:
        shape: (C, H, W).
        hidden: channels within g.
        lipschitz: the bound of each of g's convolutions.
    """

    def __init__(self, shape: tuple[int, int, int], *, hidden: int, lipschitz: float) -> None:
        super().__init__()
        channels = shape[0]
        self.net = LipschitzCNN(
            [channels, hidden, hidden, channels],
            [3, 1, 3],
            lipschitz_const=lipschitz,
            max_lipschitz_iter=None,
            lipschitz_tolerance=_TOLERANCE,
        )
        with torch.no_grad():
            self.net(torch.zeros(1, *shape))  # the first pass gives the singular vectors their shapes
        for layer in self._convolutions():
            # normflows notes the norm in every pass, of evaluation too; nothing reads it
            layer.register_buffer("scale", layer.scale, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Block:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for layer in self._convolutions():
            weight = layer.weight.data  # normflows flattens what they give with .view
            layer.weight.data = weight.clone(memory_format=torch.contiguous_format)
        return self

    def _convolutions(self) -> list[InducedNormConv2d]:
        return [layer for layer in self.net.modules() if isinstance(layer, InducedNormConv2d)]

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """x + g(x), and its determinant as it is asked for."""
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if differentiable and x.requires_grad else x.detach().requires_grad_()
            change = log_det(self.net, x, differentiable=differentiable)
            moved = Moved(x + change.g, change.log_det)
        return moved if differentiable else Moved(moved.z.detach(), moved.log_det.detach())

    @torch.no_grad()
    def invert(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The fixed point of x = z - g(x). Each image goes its own way: how far depends on no other.

        Raises:
            Diverged: if there is none.
        """
        x, left = z.clone(), torch.ones(len(z), dtype=torch.bool, device=z.device)
        for _ in range(_MOST):
            moved = z[left] - self.net(x[left])
            near = _distance(moved, x[left]) <= _CLOSE * (1 + moved.flatten(1).abs().amax(dim=1))
            x[left] = moved
            left[left.clone()] = ~near
            if not bool(left.any()):
                return x
        raise Diverged(
            f"{int(left.sum())} of {len(z)} latents could not be inverted: a block is no contraction. Train the "
            "residual flow again with a smaller bound, for example residual-flow:lipschitz=0.9."
        )

    @torch.no_grad()
    def tighten(self) -> None:
        """Follow the norms of the convolutions to where the last iteration of training has moved them."""
        for layer in self._convolutions():
            layer.compute_weight(update=True)


class Flow(nn.Module):
    """From images to latents: at each scale, an actnorm before each block; none of the channels is left out on the way.

    Args:
        shape: (C, H, W) of images; 2^(levels - 1) divides H and W.
        levels: scales.
        blocks: at each.
        hidden: channels within the network of a block.
        lipschitz: the bound of each of its convolutions, below 1.
    """

    def __init__(self, shape: tuple[int, int, int], *, levels: int, blocks: int, hidden: int, lipschitz: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for level in range(levels):
            if level:
                layers.append(Squeeze())
                shape = (4 * shape[0], shape[1] // 2, shape[2] // 2)
            for _ in range(blocks):
                layers += [ActNorm(shape[0]), Block(shape, hidden=hidden, lipschitz=lipschitz)]
        self.layers = nn.ModuleList([*layers, ActNorm(shape[0])])
        self.latent_shape = shape

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """From images to latents."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, change = layer(x, log_det)
            total = total + change
        return Moved(x, total)

    def invert(self, z: Float[Tensor, "B c h w"]) -> Float[Tensor, "B C H W"]:
        """From latents to images.

        Raises:
            Diverged: if a block cannot be inverted.
        """
        for layer in reversed(self.layers):
            z = cast(ActNorm | Squeeze | Block, layer).invert(z)
        return z

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "B C H W"]) -> None:
        """Set the actnorms, one after the other, to normalise these images."""
        for layer in self.layers:
            if isinstance(layer, ActNorm):
                layer.fit(x)
            x = x + layer.net(x) if isinstance(layer, Block) else layer(x, exact).z

    def tighten(self) -> None:
        """Follow the norms of all convolutions."""
        for layer in self.layers:
            if isinstance(layer, Block):
                layer.tighten()


def _distance(a: Float[Tensor, "B C H W"], b: Float[Tensor, "B C H W"]) -> Float[Tensor, " B"]:
    return (a - b).flatten(1).abs().amax(dim=1)
