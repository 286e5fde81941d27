"""Glow (Kingma & Dhariwal, 2018, arXiv:1807.03039), a normalising flow, as a jembench model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range, SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_glow.model import ConditionalGlow, Glow

Count = Annotated[int, Range(least=1, most=1_000)]


def glow(
    data: DataSpec,
    *,
    conditional: bool = True,
    levels: Count = 3,
    steps: Count = 32,
    hidden: Annotated[int, Range(least=1, most=10_000)] = 512,
) -> Glow | ConditionalGlow:
    """A normalising flow with exact log p(x|y), or with log p(x) only.

    Bayes' rule gives p(y|x) from log p(x|y).

    It has ``levels`` levels, each of which halves height and width, ``steps`` steps of flow at each
    level, and ``hidden`` channels in the network of each coupling.
    """
    from jembench_glow.model import ConditionalGlow, Glow
    from jembench_glow.network import multiscale_flow

    if conditional and data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and log p(x|y) needs classes. Write "
            "glow:conditional=false."
        )
    _check_levels(data, levels)
    classes = data.num_classes if conditional else 1
    sizes = {"levels": levels, "steps": steps, "hidden": hidden}
    flow = multiscale_flow(data.shape, **sizes, components=classes)
    return ConditionalGlow(data, flow) if conditional else Glow(data, flow)


def _check_levels(data: DataSpec, levels: int) -> None:
    _, height, width = data.shape
    halvings = [(size & -size).bit_length() - 1 for size in (height, width)]
    possible = min(halvings)
    if levels > possible:
        remedy = f"Write glow:levels={possible}" + (" or fewer." if possible > 1 else ".")
        raise SpecError(
            f"levels of glow is {levels}, and each halves height and width, but {height}x{width} "
            f"images of {data.name} can be halved {possible} times. "
            f"{remedy if possible else 'Resize them to an even number of pixels.'}"
        )
