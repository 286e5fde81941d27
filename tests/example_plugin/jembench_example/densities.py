"""A density that is fitted to all training images at once: a Gaussian of each class.

Legend: N images, K classes, D pixels.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.distributions import MultivariateNormal

from jembench.interfaces import DataSpec
from jembench.parts import densities


class Gaussians(densities.ByBayes, nn.Module):
    """N(mean, covariance + ridge I) of each class."""

    mean: Tensor
    root: Tensor

    def __init__(self, data: DataSpec, ridge: float) -> None:
        super().__init__()
        self.data, self.ridge = data, ridge
        self.register_buffer("mean", torch.zeros(data.num_classes, data.dimensions))
        self.register_buffer("root", torch.eye(data.dimensions).repeat(data.num_classes, 1, 1))

    def fit(self, x: Tensor, y: Tensor, *, generator: Generator) -> None:
        """The mean and the Cholesky root of the covariance, with divisor N."""
        for k in range(self.data.num_classes):
            images = x[y == k].flatten(1)
            covariance = images.T.cov(correction=0).reshape(self.data.dimensions, -1)
            self.mean[k] = images.mean(0)
            self.root[k] = torch.linalg.cholesky(
                covariance + self.ridge * torch.eye(self.data.dimensions)
            )

    def logits(self, x: Tensor) -> Tensor:
        """log p(x|y)."""
        return MultivariateNormal(self.mean, scale_tril=self.root).log_prob(x.flatten(1)[:, None])

    def draw(self, y: Tensor, generator: Generator) -> Tensor:
        """mean + root z."""
        z = torch.randn(len(y), self.data.dimensions, 1, generator=generator)
        pixels = self.mean[y] + (self.root[y] @ z).squeeze(2)
        return pixels.view(-1, *self.data.shape).clamp(*self.data.bounds)
