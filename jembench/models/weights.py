"""The weights that a chain sees: they change between chains and not within one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jembench.interfaces import DataSpec
from jembench.models.execution import Precision, autocast, frozen, mode


class ChainWeights:
    """A model's weights while a chain runs: frozen, and in bfloat16 those that autocast would copy to it at each step.

    Autocast keeps its copies of weights that require a gradient, and these until the region ends; of frozen weights it
    keeps none. The numbers are the same: autocast leaves alone what is in bfloat16 already.

    Args:
        model: its weights lie as they will from now on.
        data: what its images are.
        precision: of the chains.
    """

    def __init__(self, model: nn.Module, data: DataSpec, precision: Precision) -> None:
        self.model = model
        self.data = data
        self.precision = precision

    @contextmanager
    def still(self) -> Iterator[None]:
        """The model has the weights of the moment in this form."""
        own = [cast(nn.Parameter, module._parameters[name]) for module, name, _ in self._copies]
        if own:
            with torch.no_grad():
                torch._foreach_copy_([copy for *_, copy in self._copies], tuple(own))  # one operation on a GPU
        try:
            for module, name, copy in self._copies:
                module._parameters[name] = copy
            with frozen(self.model):
                yield
        finally:
            for (module, name, _), weight in zip(self._copies, own, strict=True):
                module._parameters[name] = weight

    @cached_property
    def _copies(self) -> list[tuple[nn.Module, str, nn.Parameter]]:
        """Where the weights stand that the network copies to bfloat16 and uses in no other way, and room for copies.

        They are found in a pass of two images. The last layer of our networks computes in float32, and so do norms.
        """
        look = getattr(self.model, "logits", None) or getattr(self.model, "energy", None)
        if self.precision == "float32" or look is None:
            return []
        places = [
            (module, name, weight)
            for module in self.model.modules()
            for name, weight in module._parameters.items()
            if weight is not None
        ]
        device = places[0][-1].device
        with torch.no_grad(), mode(self.model, train=False), autocast(self.precision, device), _Uses() as uses:
            look(torch.zeros(2, *self.data.shape, device=device))
        return [
            (module, name, nn.Parameter(weight.detach().bfloat16(), requires_grad=False))
            for module, name, weight in places
            if id(weight) in uses.cast - uses.other
        ]


class _Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Which tensors are copied to bfloat16, and which are used in any other way, by ``id``."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch asks; to skip the compiler it would import it, which takes seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cast: set[int] = set()
        self.other: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_cast = function.overloadpacket is torch.ops.aten._to_copy and kwargs.get("dtype") is torch.bfloat16
        used = self.cast if is_cast else self.other
        used.update(id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        return function(*args, **kwargs)
