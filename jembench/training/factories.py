"""The optimisers that core registers. Torch is imported when they are made.

A factory is called with the parameters and, by name, with the recipe's constants that its signature
has, of ``lr``, ``betas``, ``momentum``, ``weight_decay`` and ``fused``: so ``torch.optim:AdamW``
needs no wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


def adam(
    params: Iterable[Tensor], lr: float, betas: tuple[float, float], weight_decay: float
) -> Optimizer:
    """Adam (Kingma & Ba, 2015), with ``optimizer.betas`` and ``optimizer.weight_decay``."""
    from torch.optim import Adam

    from jembench.models.execution import light

    return light(Adam)(params, lr, betas=betas, weight_decay=weight_decay, fused=True)


def sgd(
    params: Iterable[Tensor],
    lr: float,
    momentum: float,
    weight_decay: float,
    nesterov: bool = False,
) -> Optimizer:
    """Stochastic gradient descent, with ``optimizer.momentum`` and ``optimizer.weight_decay``."""
    from torch.optim import SGD

    from jembench.models.execution import light

    constants = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
    return light(SGD)(params, lr, **constants, fused=True)
