"""Checks of a model's density: log Z, long chains, errors for known p(x).

The plugin also has a kernel density of the training images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_density.kernels import KernelDensity


def kde(data: DataSpec) -> KernelDensity:
    """A kernel density of the training images, which samples without chains.

    The kernels are Gaussian and cut off at the bounds.

    The bandwidth maximises the leave-one-out likelihood. There is no training and no p(y|x).
    """
    from jembench_density.kernels import KernelDensity

    return KernelDensity(data)
