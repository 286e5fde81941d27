"""Densities that are fitted to all training images at once: a Gaussian, a mixture and a kernel density for each class.

The first two keep their means and covariances and are computed by PyTorch, so that they have gradients. The third keeps
the images and is computed by scikit-learn, which has none.

Legend: B batch, N images, K classes, D pixels, M components.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity
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
        for k, images in enumerate(_by_class(x, y, self.data)):
            covariance = images.T.cov(correction=0).reshape(self.data.dimensions, -1)
            self.mean[k] = images.mean(0)
            self.root[k] = torch.linalg.cholesky(covariance + self.ridge * torch.eye(self.data.dimensions))

    def logits(self, x: Tensor) -> Tensor:
        """log p(x|y)."""
        return MultivariateNormal(self.mean, scale_tril=self.root).log_prob(x.flatten(1)[:, None])

    def draw(self, y: Tensor, generator: Generator) -> Tensor:
        """mean + root z."""
        z = torch.randn(len(y), self.data.dimensions, 1, generator=generator)
        return _images(self.mean[y] + (self.root[y] @ z).squeeze(2), self.data)


class Mixture(densities.ByBayes, nn.Module):
    """scikit-learn's mixture of Gaussians with diagonal covariances for each class; what it finds is in buffers."""

    def __init__(self, data: DataSpec, components: int, ridge: float) -> None:
        super().__init__()
        self.data, self.ridge = data, ridge
        shape = (data.num_classes, components, data.dimensions)
        self.register_buffer("weight", torch.full(shape[:2], 1 / components))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))

    def fit(self, x: Tensor, y: Tensor, *, generator: Generator) -> None:
        """The EM algorithm, from a start that the generator chooses."""
        seed = int(torch.randint(2**31, (), generator=generator))
        for k, images in enumerate(_by_class(x, y, self.data)):
            size = self.weight.shape[1]
            found = GaussianMixture(size, covariance_type="diag", reg_covar=self.ridge, random_state=seed).fit(images)
            for buffer, learnt in zip(self.buffers(), (found.weights_, found.means_, found.covariances_), strict=True):
                buffer[k] = torch.from_numpy(learnt)

    def logits(self, x: Tensor) -> Tensor:
        """log sum_m weight_m N(x; mean_m, variance_m)."""
        parts = torch.distributions.Normal(self.mean, self.variance.sqrt()).log_prob(x.flatten(1)[:, None, None])
        return (parts.sum(3) + self.weight.log()).logsumexp(2)

    def draw(self, y: Tensor, generator: Generator) -> Tensor:
        """A component by its weight, and a draw from it."""
        m = torch.multinomial(self.weight[y], 1, generator=generator).squeeze(1)
        z = torch.randn(len(y), self.data.dimensions, generator=generator)
        return _images(self.mean[y, m] + self.variance[y, m].sqrt() * z, self.data)


class Kernels(densities.ByBayes, nn.Module):
    """scikit-learn's kernel density of each class's images. The images are all that there is to keep."""

    differentiable = False

    def __init__(self, data: DataSpec, bandwidth: float) -> None:
        super().__init__()
        self.data, self.bandwidth = data, bandwidth
        self.register_buffer("images", torch.zeros(data.num_classes, *data.shape))
        self.register_buffer("labels", torch.arange(data.num_classes))

    def fit(self, x: Tensor, y: Tensor, *, generator: Generator) -> None:
        """Keep them."""
        self.images, self.labels = x, y

    def logits(self, x: Tensor) -> Tensor:
        """log p(x|y)."""
        kernels = KernelDensity(bandwidth=self.bandwidth, leaf_size=len(self.images))  # one leaf: see the test
        found = [
            kernels.fit(images).score_samples(x.detach().flatten(1))
            for images in _by_class(self.images, self.labels, self.data)
        ]
        return torch.from_numpy(np.stack(found, axis=1)).to(x.dtype)

    def draw(self, y: Tensor, generator: Generator) -> Tensor:
        """A training image of the class, and Gaussian noise."""
        chances = (self.labels == y[:, None]).float()
        chosen = self.images[torch.multinomial(chances, 1, generator=generator).squeeze(1)]
        return _images(chosen + self.bandwidth * torch.randn(chosen.shape, generator=generator), self.data)


def _by_class(x: Tensor, y: Tensor, data: DataSpec) -> list[Tensor]:
    return [x[y == k].flatten(1) for k in range(data.num_classes)]


def _images(pixels: Tensor, data: DataSpec) -> Tensor:
    return pixels.view(-1, *data.shape).clamp(*data.bounds)
