"""The OOD sets that ``jembench`` brings. What each one needs is imported when it is asked for.

Any dataset is an OOD set too, by its own name.
"""

from __future__ import annotations

from jembench.interfaces import OODSet


def interp() -> OODSet:
    """Means of two test images each: every image with another one."""
    from jembench.data.ood_sets.transformed import Interp

    return Interp()


def flipped() -> OODSet:
    """Test images, left and right exchanged."""
    from jembench.data.ood_sets.transformed import Flipped

    return Flipped()


def rotated() -> OODSet:
    """Test images, turned by 90 degrees counter-clockwise."""
    from jembench.data.ood_sets.transformed import Rotated

    return Rotated()


def inverted() -> OODSet:
    """Test images with dark and light exchanged."""
    from jembench.data.ood_sets.transformed import Inverted

    return Inverted()


def permuted() -> OODSet:
    """Test images, the pixels of all rearranged by one random permutation."""
    from jembench.data.ood_sets.transformed import Permuted

    return Permuted()


def uniform() -> OODSet:
    """Every pixel a level of its own, all 256 equally likely."""
    from jembench.data.ood_sets.synthetic import Uniform

    return Uniform()


def constant(*, value: float | None = None) -> OODSet:
    """Every image of a single level: one drawn for each, or ``value`` in the model's units, such as 0, for all."""
    from jembench.data.ood_sets.synthetic import Constant

    return Constant(value=value)


def patches(*, zoom: int = 4) -> OODSet:
    """Patches of scikit-learn's two photographs, ``zoom`` times as wide as the images and scaled down to them."""
    from jembench.data.ood_sets.photographs import Patches

    return Patches(zoom=zoom)
