"""Residual flows (Chen et al., 2019, arXiv:1906.02735), normalising flows of invertible residual blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jembench.plugin import Size, SpecError, takes

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_residual_flow.model import ConditionalResidualFlow, ResidualFlow


def _least(options: Mapping[str, Any]) -> Size:
    """The three convolutions of each block; the weights of those from hidden to hidden channels."""
    blocks = options["levels"] * options["blocks"]
    return Size(tensors=6 * blocks, bytes=4 * blocks * options["hidden"] ** 2)


@takes(_least)
def residual_flow(
    data: DataSpec,
    *,
    conditional: bool = True,
    levels: int = 3,
    blocks: int = 16,
    hidden: int = 512,
    lipschitz: float = 0.98,
    terms: int = 20,
    probes: int = 1,
) -> ResidualFlow | ConditionalResidualFlow:
    """A normalising flow of residual blocks, with log p(x|y) and so p(y|x) by Bayes' rule, or with log p(x) alone.

    ``blocks`` at each of ``levels``, between which height and width are halved; ``hidden`` channels in the network of
    each block, whose convolutions are bounded by ``lipschitz``. Evaluation takes ``terms`` of each determinant's power
    series, in the mean over ``probes``; ``terms=0``: the determinant itself, for small images.
    """
    from jembench_residual_flow.flow import Flow
    from jembench_residual_flow.model import ConditionalResidualFlow, ResidualFlow

    for option, value in {"levels": levels, "blocks": blocks, "hidden": hidden, "probes": probes}.items():
        if value < 1:
            raise SpecError(f"{option} of residual-flow is {value}; it must be at least 1.")
    if terms < 0:
        raise SpecError(f"terms of residual-flow is {terms}; it must be at least 1, or 0 for the exact determinant.")
    if not 0 < lipschitz < 1:
        raise SpecError(f"lipschitz of residual-flow is {lipschitz}; a block is invertible if it is between 0 and 1.")
    if conditional and data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and log p(x|y) needs classes. Write residual-flow:conditional=false."
        )
    _check_levels(data, levels)
    flow = Flow(data.shape, levels=levels, blocks=blocks, hidden=hidden, lipschitz=lipschitz)
    made = ConditionalResidualFlow if conditional else ResidualFlow
    return made(data, flow, terms, probes)


def _check_levels(data: DataSpec, levels: int) -> None:
    _, height, width = data.shape
    possible = 1 + min((size & -size).bit_length() - 1 for size in (height, width))
    if levels > possible:
        remedy = f"Write residual-flow:levels={possible}" + (" or fewer." if possible > 1 else ".")
        raise SpecError(
            f"levels of residual-flow is {levels}, and height and width are halved between them, but {height}x{width} "
            f"images of {data.name} can be halved {possible - 1} times. {remedy}"
        )
