"""The generator q(x), its entropy gradient, and the local posterior for it.

    z ~ N(0, I),  x = G(z) + sigma eps,  eps ~ N(0, I)

The gradient of the entropy H(q) towards x is c(x) = -grad_x log q(x) = E_{q(z|x)}[x - G(z)] /
sigma^2. The posterior q(z|x) is approximated by importance sampling from N(z, diag eta^2) around
the z that x was drawn from: Grathwohl et al. (2021), section 3. The networks and constants are
those of the code (wgrathwohl/VERA).

Legend: B batch, P particles, L latent dimensions, F maps, C channels, H height, W width.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import DataSpec

SMALLEST = 4
"""The least height and width of the maps that the first layer makes; each block doubles them."""

SIGMA, SMALLEST_SIGMA, LARGEST_SIGMA = 0.01, 0.01, 0.3
"""The standard deviation of the pixel noise at the start, and its bounds, on [-1, 1]."""

ETA = 0.1
"""The standard deviations of the approximate posterior at the start."""


class UpBlock(nn.Module):
    """A residual block of the generator that doubles height and width.

    The result of batch norm, ReLU, doubling, convolution, batch norm, ReLU and convolution is added
    to the doubled input.

    Args:
        width: F.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(width)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Float[Tensor, "B F H W"]) -> Float[Tensor, "B F 2*H 2*W"]:
        normalised = F.relu(self.norm1(x))
        hidden = self.conv1(_doubled(normalised))
        hidden = self.conv2(F.relu(self.norm2(hidden)))
        return _doubled(x) + hidden


def _doubled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")


class ImageNet(nn.Module):
    """The mean image G(z).

    A linear layer makes small maps, blocks double these, and a last convolution with tanh makes the
    image.

    Images of 32 x 32 take three blocks. Weights are drawn as Xavier uniform, those of convolutions
    with the gain of a ReLU.

    Args:
        data: the description of the images.
        latent: L.
        width: F.
    """

    def __init__(self, data: DataSpec, *, latent: int, width: int) -> None:
        super().__init__()
        channels, height, width_of_image = data.shape
        size, blocks = (height, width_of_image), 0
        while all(side % 2 == 0 and side // 2 >= SMALLEST for side in size):
            size = (size[0] // 2, size[1] // 2)
            blocks = blocks + 1
        self.bounds = data.bounds
        linear = nn.Linear(latent, width * math.prod(size))
        self.first = nn.Sequential(linear, nn.Unflatten(1, (width, *size)))
        self.blocks = nn.Sequential()
        for _ in range(blocks):
            self.blocks.append(UpBlock(width))
        self.norm = nn.BatchNorm2d(width)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                gain = 1.0 if layer is linear else math.sqrt(2)
                nn.init.xavier_uniform_(layer.weight, gain)
                nn.init.zeros_(layer.bias)

    def forward(self, z: Float[Tensor, "B L"]) -> Float[Tensor, "B C H W"]:
        """Return G(z), within the bounds."""
        maps = self.blocks(self.first(z))
        x = torch.tanh(self.last(F.relu(self.norm(maps))))
        low, high = self.bounds
        if self.bounds == (-1, 1):
            return x
        return low + (high - low) * (x + 1) / 2


class Generator(nn.Module):
    """The distribution q(x), and the width of the posterior around a latent.

    Args:
        net: G(z), (B, L) -> (B, C, H, W).
        bounds: of a pixel; sigma is relative to half their distance.
        latent: L.
        particles: P.
    """

    def __init__(
        self, net: nn.Module, bounds: tuple[float, float], *, latent: int, particles: int
    ) -> None:
        super().__init__()
        self.net = net
        self.latent = latent
        self.particles = particles
        low, high = bounds
        self.bounds = bounds
        self.half = (high - low) / 2
        log_sigma = math.log(SIGMA * self.half)
        self.log_sigma = nn.Parameter(torch.tensor(log_sigma))
        log_eta = torch.full((latent,), math.log(ETA))
        self.log_eta = nn.Parameter(log_eta)

    def forward(self, z: Float[Tensor, "B L"]) -> Float[Tensor, "B C H W"]:
        """Return G(z) in float32, since bfloat16 is no finer than sigma."""
        with torch.autocast(z.device.type, enabled=False):
            mean: Tensor = self.net(z)
        return mean

    def draw(self, n: int) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B L"]]:
        """Draw images and their latents by torch's global generator."""
        like = self.log_eta
        z = torch.randn(n, self.latent, device=like.device, dtype=like.dtype)
        mean = self(z)
        return mean + self.log_sigma.exp() * torch.randn_like(mean), z

    @torch.no_grad()
    def entropy_gradient(
        self, x: Float[Tensor, "B C H W"], z: Float[Tensor, "B L"]
    ) -> Float[Tensor, "B C H W"]:
        """Estimate -grad_x log q(x) by self-normalised importance sampling.

        The log weights are log q(x|z_p) + log N(z_p; 0, I) - log N(z_p; z, diag eta^2), up to
        constants.

        Args:
            x: drawn images.
            z: the latents of x.
        """
        shape = (self.particles, *z.shape)
        noise = torch.randn(shape, device=z.device, dtype=z.dtype)
        z_p = z + self.log_eta.exp() * noise
        means = self(z_p.flatten(0, 1))
        difference = x - means.unflatten(0, z_p.shape[:2])
        precision = torch.exp(-2 * self.log_sigma)
        log_prior = noise.square().sum(2) - z_p.square().sum(2)
        distance = difference.square().flatten(2).sum(2)
        log_ratio = log_prior - precision * distance
        weights = (log_ratio / 2).softmax(0)
        weighted = weights[:, :, None, None, None] * difference
        return precision * weighted.sum(0)

    def posterior_loss(self, x: Float[Tensor, "B C H W"], z: Float[Tensor, "B L"]) -> Tensor:
        """Return -E[log q(x|z') + log N(z'; 0, I)] - H(N(z, diag eta^2)).

        z' is drawn from N(z, diag eta^2).

        Terms that do not depend on eta are left out.
        """
        z_p = z + self.log_eta.exp() * torch.randn_like(z)
        distance = (x - self(z_p)).square().flatten(1).sum(1)
        precision = torch.exp(-2 * self.log_sigma)
        surprise = precision * distance + z_p.square().sum(1)
        return surprise.mean() / 2 - self.log_eta.sum()

    @torch.no_grad()
    def clamp_sigma(self) -> None:
        """Move sigma to within its bounds."""
        smallest = math.log(SMALLEST_SIGMA * self.half)
        largest = math.log(LARGEST_SIGMA * self.half)
        self.log_sigma.clamp_(smallest, largest)
