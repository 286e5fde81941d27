"""Checks of a model's density: log Z, long chains, the error for known p(x).

The plugin has a kernel density of the training images as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_density.kernels import KernelDensity


def kde(data: DataSpec) -> KernelDensity:
    """A kernel density of the training images, with samples without a chain.

    The kernels are Gaussian and cut off at the bounds.

    The bandwidth is that of the highest leave-one-out likelihood. There is no training and no
    p(y|x).
    """
    from jembench_density.kernels import KernelDensity

    return KernelDensity(data)
