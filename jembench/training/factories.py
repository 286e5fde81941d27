"""The optimisers that core registers. Imports no torch until one is made.

A factory is called with the parameters and, by their names, those of the recipe's constants ``lr``, ``betas``,
``momentum``, ``weight_decay`` and ``fused`` that its signature has: so ``torch.optim:AdamW`` is an optimiser as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

Made = TypeVar("Made", bound="Optimizer")


def adam(params: Iterable[Tensor], lr: float, betas: tuple[float, float], weight_decay: float) -> Optimizer:
    """Adam (Kingma & Ba, 2015), with ``optimizer.betas`` and ``optimizer.weight_decay``."""
    from torch.optim import Adam

    return _without_compiler(Adam)(params, lr, betas=betas, weight_decay=weight_decay, fused=True)


def sgd(params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> Optimizer:
    """Stochastic gradient descent, with ``optimizer.momentum`` and ``optimizer.weight_decay``."""
    from torch.optim import SGD

    return _without_compiler(SGD)(params, lr, momentum=momentum, weight_decay=weight_decay, fused=True)


def _without_compiler(optimizer: type[Made]) -> type[Made]:
    """The same optimiser, whose methods do not import PyTorch's compiler: that takes 1.5 s, and none is compiled.

    PyTorch wraps them in functions that import it in order to keep it out.
    """
    import torch

    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")
    plain = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    return type(optimizer.__name__, (optimizer,), plain | {"step": torch.no_grad()(plain["step"])})
