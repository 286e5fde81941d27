"""Kernel density estimation, a density without training to compare models with.

    p(x) = 1/N sum_i prod_d N(x_d; x_id, h^2) / (Phi((high - x_id) / h) - Phi((low - x_id) / h))

for low <= x_d <= high: Gaussian kernels at the training images x_i, each cut off at the bounds and
normalised within them, so that no mass is outside of the box of images.

Legend: B batch, N training images, L of them left out, n samples, C channels, H height, W width, D
    = C H W.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.special import ndtr, ndtri

from jembench.interfaces import DataSpec
from jembench.parts import dequantisation
from jembench.plugin import SpecError

LEFT_OUT = 1000
"""The largest number of random training images that are left out, one at a time, to choose the
bandwidth.
"""

NEGLIGIBLE = 80.0
"""The distance below the highest log kernel, in nats, from which on a kernel has no weight in the
sum.
"""


class KernelDensity(nn.Module):
    """The density above, with the bandwidth h that maximises the leave-one-out likelihood.

    h lies between half a level and the whole box.

    Args:
        data: the images' shape and bounds.
    """

    centres: Tensor
    bandwidth: Tensor

    def __init__(self, data: DataSpec) -> None:
        super().__init__()
        self.data = data
        self.register_buffer("centres", torch.zeros(1, data.dimensions))
        self.register_buffer("bandwidth", torch.tensor(1.0))

    def fit(self, x: Float[Tensor, "N C H W"], y: Tensor | None, *, generator: Generator) -> None:
        """Keep the images and choose the bandwidth; labels are ignored.

        Raises:
            SpecError: if there is only one image.
        """
        from scipy.optimize import minimize_scalar

        if len(x) < 2:
            raise SpecError(
                "A kernel density needs two training images at least: one is left out. Use more "
                "images."
            )
        self.centres = x.flatten(1)
        left = torch.randperm(len(x), generator=generator)[:LEFT_OUT]
        squared = _squared_distances(self.centres[left], self.centres)
        squared[torch.arange(len(left)), left] = torch.inf  # an image's own kernel does not count

        def loss(log_bandwidth: float) -> float:
            bandwidth = math.exp(log_bandwidth)
            self.bandwidth = torch.tensor(bandwidth, device=x.device)
            log_likelihoods = self._log_kernels(squared).logsumexp(dim=1)
            return -float(log_likelihoods.mean())

        low, high = self.data.bounds
        narrowest = dequantisation.level_width((low, high)) / 2
        bounds = (math.log(narrowest), math.log(high - low))
        loss(minimize_scalar(loss, bounds=bounds).x)

    def log_prob(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, " B"]:
        """Return log p(x) within the bounds in nats; beyond, the same formula."""
        squared = _squared_distances(x.flatten(1), self.centres)
        log_sum = self._log_kernels(squared).logsumexp(dim=1)
        return log_sum - math.log(len(self.centres))

    def sample(
        self, n: int, y: Tensor | None = None, *, generator: Generator
    ) -> Float[Tensor, "n C H W"]:
        """Draw n images exactly, by truncated Gaussian noise on training images.

        Raises:
            SpecError: for labels.
        """
        if y is not None:
            raise SpecError(
                "kde has no classes, so that it draws no images of a class. Leave the labels out."
            )
        device = generator.device
        size = (n,)
        drawn = torch.randint(len(self.centres), size, generator=generator, device=device)
        centres = self.centres[drawn]
        below, above = self._tails(centres)
        uniform = torch.rand(centres.shape, generator=generator, device=device)
        within = below + uniform * (above - below)
        x: Tensor = centres + self.bandwidth * ndtri(within)
        low, high = self.data.bounds
        return x.clamp(low, high).view(n, *self.data.shape)

    def _log_kernels(self, squared: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        below, above = self._tails(self.centres)
        masses: Tensor = math.sqrt(2 * math.pi) * self.bandwidth * (above - below)
        log_masses = masses.log().sum(dim=1)
        log_kernels: Tensor = -squared / (2 * self.bandwidth**2) - log_masses
        # negligible kernels are raised: their exp would be subnormal, which takes ten times as long
        highest = log_kernels.amax(dim=1, keepdim=True)
        return torch.maximum(log_kernels, highest - NEGLIGIBLE)

    def _tails(self, centres: Float[Tensor, "N D"]) -> tuple[Tensor, Tensor]:
        """Return the distribution functions of kernels at both bounds."""
        low, high = self.data.bounds
        below = ndtr((low - centres) / self.bandwidth)
        return below, ndtr((high - centres) / self.bandwidth)


def _squared_distances(a: Float[Tensor, "B D"], b: Float[Tensor, "N D"]) -> Float[Tensor, "B N"]:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
