"""Convolutions with kernels that are normalised by their largest singular value.

Legend: B batch, C in-channels, O out-channels, k kernel size, H height, W width.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-6
"""The smallest norm by which a vector is divided, since kernels are initialised near 0."""


class SpectralConv2d(nn.Module):
    """A convolution without bias whose kernel is divided by its norm.

    The kernel is w / sigma or w / max(sigma, 1), zero-padded to keep the size.

    sigma estimates the largest singular value of the kernel as a matrix (O, C k k) by one step of
    power iteration from ``u`` (Miyato et al., 2018). The norm of the convolution as a map of images
    can be up to k times as large. In training mode ``u`` is updated, so that the next step
    continues from it.

    Args:
        channels_in: C.
        channels_out: O.
        at_most: True for the kernel w / sigma * min(sigma, 1) = w / max(sigma, 1), initialised near
            0; False for w / sigma, initialised by standard normal weights.
        size: k, odd.
    """

    u: Tensor

    def __init__(
        self, channels_in: int, channels_out: int, *, at_most: bool = False, size: int = 3
    ) -> None:
        super().__init__()
        self.at_most = at_most
        self.padding = size // 2
        shape = (channels_out, channels_in, size, size)
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.normal_(self.weight, std=1e-10 if at_most else 1.0)
        start = torch.randn(channels_out)
        self.register_buffer("u", F.normalize(start, dim=0))

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B O H W"]:
        """Convolve with the normalised kernel."""
        return F.conv2d(x, self.kernel(), padding=self.padding)

    def kernel(self) -> Float[Tensor, "O C k k"]:
        """Return the normalised kernel in the precision of the weights.

        The caller's autocast does not change it.
        """
        with torch.autocast(self.weight.device.type, enabled=False):
            sigma = self._sigma()
            if self.at_most:
                sigma = sigma.clamp(min=1.0)
            return self.weight / sigma

    def _sigma(self) -> Float[Tensor, ""]:
        matrix = self.weight.flatten(1)
        with torch.no_grad():
            v = F.normalize(matrix.T @ self.u, dim=0, eps=EPSILON)
            u = F.normalize(matrix @ v, dim=0, eps=EPSILON)
            if self.training:
                self.u.copy_(u)
        return u @ (matrix @ v)
