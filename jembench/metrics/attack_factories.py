"""The attacks that core registers, as metrics. Imports nothing heavy until one is made.

``budget`` names what an attack may spend: ``paper`` (300 images, 20 restarts, 40 steps, 5 chains) or ``quick``, for a
look on a CPU. ``images``, ``restarts``, ``steps``, ``eot`` and ``queries`` replace a number of it. ``refine`` is the
steps of the model's own chain from each image before it is classified, and ``eot`` the chains whose mean counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jembench.metrics.budgets import BUDGETS

if TYPE_CHECKING:
    from jembench.interfaces import Metric


def pgd(
    *,
    norm: Literal["linf", "l2"] = "linf",
    eps: str = "",
    refine: int = 0,
    grad: Literal["through", "bpda"] = "through",
    budget: Literal["paper", "quick"] = "paper",
    images: int | None = None,
    restarts: int | None = None,
    steps: int | None = None,
    eot: int | None = None,
    resamples: int = 1000,
) -> Metric:
    """Projected gradient descent: the median distance, in levels of 255, to the nearest image of another class.

    Beside it the accuracy within some eps; with ``eps`` (8/255, of a pixel's range) the accuracy within it alone.
    """
    from jembench.metrics.defence import Defence
    from jembench.metrics.robustness import PGDRobustness

    spent = BUDGETS[budget].but(images=images, restarts=restarts, steps=steps, eot=eot)
    return PGDRobustness(
        norm=norm,
        eps=eps,
        defence=Defence(refine=refine, eot=spent.eot, grad=grad),
        images=spent.images,
        restarts=spent.restarts,
        steps=spent.steps,
        tolerance=spent.tolerance,
        resamples=resamples,
    )
