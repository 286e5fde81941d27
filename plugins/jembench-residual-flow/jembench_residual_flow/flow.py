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
"""The constant added to a standard deviation, so that a constant channel has a finite scale."""

_TOLERANCE = 1e-3
"""The tolerance of the power iterations that bound the norms, as published."""

_CLOSE, _MOST = 1e-6, 1000
"""The relative accuracy of the inversion of an image, and the largest number of iterations."""


class Moved(NamedTuple):
    """The output of a layer or of the flow."""

    z: Tensor  # (B, C, H, W)
    log_det: Tensor  # (B,): the logarithm of the Jacobian determinant


class ActNorm(nn.Module):
    """A scale and a shift of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Float[Tensor, "B C H W"], method: LogDet) -> Moved:
        """Return (x - shift) exp(log_scale) and its log determinant."""
        z = (x - self.shift) * self.log_scale.exp()
        log_det = self.log_scale.sum() * x[0, 0].numel()
        return Moved(z, log_det.expand(len(x)))

    def invert(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Map latents to images."""
        return z * torch.exp(-self.log_scale) + self.shift

    def fit(self, x: Float[Tensor, "B C H W"]) -> None:
        """Initialise scale and shift, so that these images are normalised."""
        dim = (0, 2, 3)
        std, mean = torch.std_mean(x, dim=dim, correction=0)
        statistics = torch.stack([mean, -torch.log(std + _CONSTANT)])
        if distributed.is_available() and distributed.is_initialized():
            distributed.broadcast(statistics, src=0)  # so that all processes train the same model
        self.shift.copy_(statistics[0, :, None, None])
        self.log_scale.copy_(statistics[1, :, None, None])


class Squeeze(nn.Module):
    """A layer that turns height and width into channels."""

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """Turn 2 x 2 pixels into four channels."""
        unshuffled = F.pixel_unshuffle(x, 2)
        return Moved(unshuffled, x.new_zeros(len(x)))

    def invert(self, z: Float[Tensor, "B c h w"]) -> Float[Tensor, "B C H W"]:
        """Map latents to images."""
        return F.pixel_shuffle(z, 2)


class Block(nn.Module):
    """The layer x + g(x), invertible since g has a Lipschitz constant below 1.

    Args:
        shape: (C, H, W).
        hidden: the number of channels within g.
        lipschitz: the bound of each convolution of g.
    """

    def __init__(self, shape: tuple[int, int, int], *, hidden: int, lipschitz: float) -> None:
        super().__init__()
        # a single pixel has no neighbours
        channels = shape[0]
        outer = 3 if max(shape[1:]) > 1 else 1
        channels_of_net = [channels, hidden, hidden, channels]
        options = {"lipschitz_const": lipschitz, "lipschitz_tolerance": _TOLERANCE}
        self.net = LipschitzCNN(
            channels_of_net, [outer, 1, outer], max_lipschitz_iter=None, **options
        )
        with torch.no_grad():
            self.net(torch.zeros(1, *shape))  # the first pass initialises the singular vectors
        for layer in self._convolutions():
            # not saved: normflows writes the norm in every pass, and never reads it
            layer.register_buffer("scale", layer.scale, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Block:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for layer in self._convolutions():
            weight = layer.weight.data  # contiguous, since normflows flattens outputs by .view
            layer.weight.data = weight.clone(memory_format=torch.contiguous_format)
        return self

    def _convolutions(self) -> list[InducedNormConv2d]:
        kind = InducedNormConv2d
        return [layer for layer in self.net.modules() if isinstance(layer, kind)]

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """Return x + g(x) and its log determinant by ``log_det``."""
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if differentiable and x.requires_grad else x.detach().requires_grad_()
            change = log_det(self.net, x, differentiable=differentiable)
            moved = Moved(x + change.g, change.log_det)
        if differentiable:
            return moved
        return Moved(moved.z.detach(), moved.log_det.detach())

    @torch.no_grad()
    def invert(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Find the fixed point of x = z - g(x).

        Raises:
            Diverged: if no fixed point is found.
        """
        x = z.clone()
        left = torch.ones(len(z), dtype=torch.bool, device=z.device)
        for _ in range(_MOST):
            moved = z[left] - self.net(x[left])
            size = 1 + moved.flatten(1).abs().amax(dim=1)
            near = _distance(moved, x[left]) <= _CLOSE * size
            x[left] = moved
            left[left.clone()] = ~near
            if not bool(left.any()):
                return x
        raise Diverged(
            f"{int(left.sum())} of {len(z)} latents could not be inverted: a block is no "
            "contraction. Train the residual flow again with a smaller bound, for example "
            "residual-flow:lipschitz=0.9."
        )

    @torch.no_grad()
    def update_norms(self) -> None:
        """Update the norms of the convolutions after an iteration of training."""
        for layer in self._convolutions():
            layer.compute_weight(update=True)


class Flow(nn.Module):
    """The map from images to latents.

    At each scale an actnorm precedes each block, with all channels.

    Args:
        shape: (C, H, W) of images; 2^(levels - 1) divides H and W.
        levels: the number of scales.
        blocks: the number of blocks per scale.
        hidden: the number of channels within the network of a block.
        lipschitz: the bound of each convolution in a block, below 1.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        levels: int,
        blocks: int,
        hidden: int,
        lipschitz: float,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for level in range(levels):
            if level:
                layers.append(Squeeze())
                channels, height, width = shape
                shape = (4 * channels, height // 2, width // 2)
            for _ in range(blocks):
                block = Block(shape, hidden=hidden, lipschitz=lipschitz)
                layers += [ActNorm(shape[0]), block]
        layers.append(ActNorm(shape[0]))
        self.layers = nn.ModuleList(layers)
        self.latent_shape = shape

    def forward(self, x: Float[Tensor, "B C H W"], log_det: LogDet) -> Moved:
        """Map images to latents."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, change = layer(x, log_det)
            total = total + change
        return Moved(x, total)

    def invert(self, z: Float[Tensor, "B c h w"]) -> Float[Tensor, "B C H W"]:
        """Map latents to images.

        Raises:
            Diverged: if a block cannot be inverted.
        """
        for layer in reversed(self.layers):
            z = cast(ActNorm | Squeeze | Block, layer).invert(z)
        return z

    @torch.no_grad()
    def fit(self, x: Float[Tensor, "B C H W"]) -> None:
        """Initialise the actnorms in order, so that these images are normalised."""
        for layer in self.layers:
            if isinstance(layer, ActNorm):
                layer.fit(x)
            x = x + layer.net(x) if isinstance(layer, Block) else layer(x, exact).z

    def update_norms(self) -> None:
        """Update the norms of all convolutions."""
        for layer in self.layers:
            if isinstance(layer, Block):
                layer.update_norms()


def _distance(a: Float[Tensor, "B C H W"], b: Float[Tensor, "B C H W"]) -> Float[Tensor, " B"]:
    difference = (a - b).flatten(1)
    return difference.abs().amax(dim=1)
