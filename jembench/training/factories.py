"""The optimisers that core registers. Imports no torch until one is made.

A factory is called with the parameters and, by their names, those of the recipe's constants ``lr``, ``betas``,
``momentum``, ``weight_decay`` and ``fused`` that its signature has: so ``torch.optim:AdamW`` is an optimiser as it is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


def adam(params: Iterable[Tensor], lr: float, betas: tuple[float, float], weight_decay: float) -> Optimizer:
    """Adam (Kingma & Ba, 2015), with ``optimizer.betas`` and ``optimizer.weight_decay``."""
    from torch.optim import Adam

    return _light(Adam)(params, lr, betas=betas, weight_decay=weight_decay, fused=True)


def sgd(params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float, nesterov: bool = False) -> Optimizer:
    """Stochastic gradient descent, with ``optimizer.momentum`` and ``optimizer.weight_decay``."""
    from torch.optim import SGD

    light = _light(SGD)
    constants = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
    return light(params, lr, **constants, fused=True)


@functools.cache
def _light(optimizer: type[Optimizer]) -> Callable[..., Optimizer]:
    """Return an optimiser's class without the decorators that import PyTorch's compiler.

    The import takes longer than that of PyTorch. The decorators matter within compiled code alone,
    which no step is part of; that of ``step`` also turns gradients off.
    """
    import torch

    decorated = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in decorated}
    methods["step"] = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), methods)
