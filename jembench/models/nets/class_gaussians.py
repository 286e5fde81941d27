"""The prior of a flow's latents: a diagonal Gaussian for each class.

Legend: B batch, N samples, C channels, H height, W width, K components (classes, or 1).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn


class ClassGaussians(nn.Module):
    """N(mean_k, scale_k^2) with a mean and a scale of its own at each channel and place; standard normal at first.

    Args:
        shape: (C, H, W) of the latents.
        components: K.
    """

    def __init__(self, shape: tuple[int, int, int], components: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(components, *shape))
        self.log_scale = nn.Parameter(torch.zeros(components, *shape))

    def log_prob(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """log p(z|k) of every component."""
        standard = (z[:, None] - self.mean) * torch.exp(-self.log_scale)
        densities = -0.5 * standard.square() - self.log_scale - 0.5 * math.log(2 * math.pi)
        return densities.flatten(2).sum(dim=2)

    def sample(self, k: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """A draw from each of the components k."""
        mean, scale = self.mean[k], self.log_scale[k].exp()
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + scale * noise
