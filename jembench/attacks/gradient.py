"""The logits that attacks see, and gradients towards images; compiled where a model is attacked for long.

Only this module of the attacks knows the model's own bounds, so that no eps is off by a factor of two.

Legend: B images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Classifier, DataSpec, Density
from jembench.models import devices, predictions
from jembench.models.execution import at_least_float32, compiled, frozen, mode, own

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


@contextmanager
def settled(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode, no gradients of parameters, no autocast: the same is computed forward and backward."""
    with mode(model, train=False), frozen(model), torch.autocast(device.type, enabled=False):
        yield


def logits_of(model: nn.Module, data: DataSpec, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
    """f(x) of images in [0, 1], in float32 or float64."""
    low, high = data.bounds
    return at_least_float32(cast(Classifier, model).logits(x * (high - low) + low))


Loss = Callable[..., tuple[Tensor, Tensor]]
"""Of images and what belongs to each: the sum of the losses, and a row for each image to be handed out."""


def cross_entropy(model: nn.Module, data: DataSpec) -> Loss:
    """Of images in [0, 1] and classes; the rows are the logits."""

    def loss(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits_of(model, data, x)
        return F.cross_entropy(logits, y, reduction="sum"), logits

    return loss


def energy(model: Any) -> Loss:
    """Of images in the model's units; the rows are E(x), or -log p(x) of a model with a normalised density."""
    is_density = isinstance(model, Density)

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        energies = at_least_float32(-model.log_prob(x) if is_density else model.energy(x))
        return energies.sum(), energies

    return loss


class Gradient:
    """The gradient of a loss towards images, (B, C, H, W), and the rows of the loss, without gradients.

    It is compiled where training is (:func:`~jembench.models.devices.execution`), and never on a CPU.

    Args:
        model: whose parameters are frozen meanwhile.
        data: its shape.
        loss: of the model.
        varies: whether it draws random numbers or differentiates within, which is not compiled.
    """

    def __init__(self, model: nn.Module, data: DataSpec, loss: Loss, *, varies: bool = False) -> None:
        self._data, self._varies = data, varies or not getattr(model, "compiles", True)
        self._past = _PAST.setdefault(model, _Past())
        self._loss, self._compiled = loss, compiled(loss, self._past.given_up)

    def __call__(self, x: Float[Tensor, "B C H W"], *others: Tensor) -> tuple[Float[Tensor, "B C H W"], Tensor]:
        self._past.taken += 1
        if not self._is_compiled(x.device):
            return _differentiated(self._loss, x, *others)
        pieces = [
            own(_differentiated(self._compiled, *(each[rows] for each in (x, *others))))
            for rows in _pieces(len(x), x.device)
        ]
        gradient, rows = (torch.cat(each)[: len(x)] for each in zip(*pieces, strict=True))
        return gradient, rows

    def _is_compiled(self, device: torch.device) -> bool:
        if self._varies or self._past.given_up or self._past.taken <= LONG:
            return False
        fits = predictions.batch(device, self._data.shape) >= FULL
        return fits and devices.execution(self._data, device).compiled


def _differentiated(loss: Loss, x: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value, rows = loss(x, *others)
        (gradient,) = torch.autograd.grad(value, x)
    return gradient, rows.detach()


def _pieces(count: int, device: torch.device) -> Iterator[Int[Tensor, " M"]]:
    """The images of each pass: full ones, and smaller ones that repeat the last image."""
    start = 0
    while start < count:
        size = FULL if count - start > FULL - REST else REST
        yield torch.arange(start, start + size, device=device).clamp_max(count - 1)
        start += size
