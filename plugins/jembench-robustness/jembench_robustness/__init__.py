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

    Moves are normal numbers times ``scale`` times the singular values, along the directions of
    largest variance, up to the share ``variance`` of the total. For N images, a singular value is
    sqrt(N - 1) standard deviations: with 5,000 images in a class of CIFAR-10, ``scale=0.005`` is
    .35 standard deviations.
    """
    from jembench_robustness.pca import PCAStart

    return PCAStart(data, variance, scale)
