"""The models and importers that core registers. Imports no torch until one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench.models.importing import StateDict
    from jembench.models.kernels import KernelDensity


def kde(data: DataSpec) -> KernelDensity:
    """A kernel density of the training images: Gaussian kernels cut off at the bounds, samples without a chain.

    The bandwidth is that of the highest leave-one-out likelihood. There is no training and no p(y|x).
    """
    from jembench.models.kernels import KernelDensity

    return KernelDensity(data)


def weights(*, prefix: str = "", entry: str = "") -> StateDict:
    """Plain state dictionaries (.pt, .safetensors) of a model here, or of its network; `prefix` comes off names.

    ``entry`` says which one, where a file holds several: ``entry=ema``, ``entry=checkpoint.model``.
    """
    from jembench.models.importing import StateDict

    return StateDict(prefix, entry)
