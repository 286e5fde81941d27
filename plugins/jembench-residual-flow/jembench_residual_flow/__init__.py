"""Residual flows: normalising flows of invertible residual blocks.

Chen et al. (2019), arXiv:1906.02735.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range, SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_residual_flow.model import ConditionalResidualFlow, ResidualFlow

Count = Annotated[int, Range(least=1, most=1_000)]


def residual_flow(
    data: DataSpec,
    *,
    conditional: bool = True,
    levels: Count = 3,
    blocks: Count = 16,
    hidden: Annotated[int, Range(least=1, most=10_000)] = 512,
    lipschitz: Annotated[float, Range(above=0, below=1)] = 0.98,
    terms: Annotated[int, Range(least=0)] = 20,
    probes: Count = 1,
) -> ResidualFlow | ConditionalResidualFlow:
    """A normalising flow of residual blocks, with log p(x|y) or only log p(x).

    Bayes' rule gives p(y|x) from log p(x|y).

    It has ``blocks`` blocks at each of ``levels`` levels, between which height and width are
    halved, and ``hidden`` channels in the network of each block, whose convolutions have norms of
    at most ``lipschitz``. Evaluation computes ``terms`` terms of each determinant's power series,
    averaged over ``probes`` probes, or with ``terms=0`` the determinant itself, for small images.
    """
    from jembench_residual_flow.flow import Flow
    from jembench_residual_flow.model import ConditionalResidualFlow, ResidualFlow

    if conditional and data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and log p(x|y) needs classes. Write "
            "residual-flow:conditional=false."
        )
    _check_levels(data, levels)
    sizes = {"levels": levels, "blocks": blocks, "hidden": hidden}
    flow = Flow(data.shape, **sizes, lipschitz=lipschitz)
    made = ConditionalResidualFlow if conditional else ResidualFlow
    return made(data, flow, terms, probes)


def _check_levels(data: DataSpec, levels: int) -> None:
    _, height, width = data.shape
    halvings = [(size & -size).bit_length() - 1 for size in (height, width)]
    possible = 1 + min(halvings)
    if levels > possible:
        remedy = f"Write residual-flow:levels={possible}" + (" or fewer." if possible > 1 else ".")
        raise SpecError(
            f"levels of residual-flow is {levels}, and height and width are halved between them, "
            f"but {height}x{width} images of {data.name} can be halved {possible - 1} times. "
            f"{remedy}"
        )
