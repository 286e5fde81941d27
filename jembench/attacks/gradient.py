"""The logits that attacks see, and the gradient that they follow; compiled where a model is attacked for long.

Only this module of the attacks knows the model's own bounds, so that no eps is off by a factor of two.

Legend: B images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Classifier, DataSpec
from jembench.models import devices, predictions
from jembench.models.execution import at_least_float32, compiled, own

LONG = 5000
"""Gradients of a model before they are compiled: on a GPU they take about as long as its compiler, a minute or two."""

FULL, REST = 128, 32
"""Images of a compiled pass: it is compiled once for full ones, and once for what is left, which is filled up."""


class _Past:
    """What is known of the gradients of one model."""

    def __init__(self) -> None:
        self.taken = 0
        self.given_up: list[str] = []  # why they cannot be compiled


_PAST: WeakKeyDictionary[nn.Module, _Past] = WeakKeyDictionary()


def logits_of(model: nn.Module, data: DataSpec, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
    """f(x) of images in [0, 1], in float32 or float64."""
    low, high = data.bounds
    return at_least_float32(cast(Classifier, model).logits(x * (high - low) + low))


class Gradient:
    """(x, y) -> the gradient of the cross-entropy towards x, (B, C, H, W), and the logits, (B, K), without gradients.

    It is compiled where training is (:func:`~jembench.models.devices.execution`), and never on a CPU.

    Args:
        model: whose parameters are frozen meanwhile.
        data: its bounds and shape.
        varies: whether it draws random numbers or differentiates within, which is not compiled.
    """

    def __init__(self, model: nn.Module, data: DataSpec, *, varies: bool) -> None:
        def loss(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            found = logits_of(model, data, x)
            return F.cross_entropy(found, y, reduction="sum"), found

        self._data, self._varies = data, varies or not getattr(model, "compiles", True)
        self._past = _PAST.setdefault(model, _Past())
        self._loss, self._compiled = loss, compiled(loss, self._past.given_up)

    def __call__(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B K"]]:
        self._past.taken += 1
        if not self._is_compiled(x.device):
            return _differentiated(self._loss, x, y)
        pieces = []
        for rows in _pieces(len(x), x.device):
            pieces.append(own(_differentiated(self._compiled, x[rows], y[rows])))
        gradient, logits = (torch.cat(each)[: len(x)] for each in zip(*pieces, strict=True))
        return gradient, logits

    def _is_compiled(self, device: torch.device) -> bool:
        if self._varies or self._past.given_up or self._past.taken <= LONG:
            return False
        fits = predictions.batch(device, self._data.shape) >= FULL
        return fits and devices.execution(self._data, device).compiled


def _differentiated(
    loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value, logits = loss(x, y)
        (gradient,) = torch.autograd.grad(value, x)
    return gradient, logits.detach()


def _pieces(count: int, device: torch.device) -> Iterator[Int[Tensor, " M"]]:
    """The images of each pass: full ones, and smaller ones that repeat the last image."""
    start = 0
    while start < count:
        size = FULL if count - start > FULL - REST else REST
        yield torch.arange(start, start + size, device=device).clamp_max(count - 1)
        start += size
