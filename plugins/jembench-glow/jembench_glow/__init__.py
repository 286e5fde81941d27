"""Glow (Kingma & Dhariwal, 2018, arXiv:1807.03039), a normalising flow, as a jembench model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jembench.plugin import Size, SpecError, takes

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_glow.model import ConditionalGlow, Glow


def _least(options: Mapping[str, Any]) -> Size:
    """The three convolutions of each coupling; the weights of those from hidden to hidden channels."""
    couplings = options["levels"] * options["steps"]
    return Size(tensors=6 * couplings, bytes=4 * couplings * options["hidden"] ** 2)


@takes(_least)
def glow(
    data: DataSpec, *, conditional: bool = True, levels: int = 3, steps: int = 32, hidden: int = 512
) -> Glow | ConditionalGlow:
    """A normalising flow with exact log p(x|y), which gives p(y|x) by Bayes' rule, or with exact log p(x) alone.

    ``steps`` of flow in each of ``levels``, each of which halves height and width; ``hidden`` channels in the network
    of each coupling.
    """
    from jembench_glow.model import ConditionalGlow, Glow
    from jembench_glow.network import multiscale_flow

    for option, value in {"levels": levels, "steps": steps, "hidden": hidden}.items():
        if value < 1:
            raise SpecError(f"{option} of glow is {value}; it must be at least 1.")
    if conditional and data.num_classes < 1:
        raise SpecError(f"{data.name} is unlabelled, and log p(x|y) needs classes. Write glow:conditional=false.")
    _check_levels(data, levels)
    classes = data.num_classes if conditional else 1
    flow = multiscale_flow(data.shape, levels=levels, steps=steps, hidden=hidden, components=classes)
    return ConditionalGlow(data, flow) if conditional else Glow(data, flow)


def _check_levels(data: DataSpec, levels: int) -> None:
    _, height, width = data.shape
    possible = min((size & -size).bit_length() - 1 for size in (height, width))
    if levels > possible:
        remedy = f"Write glow:levels={possible}" + (" or fewer." if possible > 1 else ".")
        raise SpecError(
            f"levels of glow is {levels}, and each halves height and width, but {height}x{width} images of {data.name} "
            f"can be halved {possible} times. {remedy if possible else 'Resize them to an even number of pixels.'}"
        )
