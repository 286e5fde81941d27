"""Checks of the density of a model, and a kernel density: log Z, long chains, the error where p(x)
is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_density.kernels import KernelDensity


def kde(data: DataSpec) -> KernelDensity:
    """A kernel density of the training images: Gaussian kernels cut off at the bounds, samples
    without a chain.

    The bandwidth is that of the highest leave-one-out likelihood. There is no training and no
    p(y|x).
    """
    from jembench_density.kernels import KernelDensity

    return KernelDensity(data)
