"""Robustness: AutoAttack, checks of gradients, certified radii, starts by PCA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_robustness.pca import PCAStart


def pca_start(
    data: DataSpec,
    *,
    variance: Annotated[float, Range(above=0, below=1)] = 0.95,
    scale: Annotated[float, Range(above=0)] = 0.005,
) -> PCAStart:
    """The mean of a class, moved along its principal directions (WEAT).

    It moves by ``scale`` times the singular values.

    The directions are those of the largest variance, up to the share ``variance`` of it. A singular
    value is sqrt(N - 1) standard deviations of N images: .005 is .35 of one for the 5,000 of a
    class of CIFAR-10.
    """
    from jembench_robustness.pca import PCAStart

    return PCAStart(data, variance, scale)
