"""What a model can do."""

from __future__ import annotations

from typing import Any

from torch import nn

from jembench.errors import NotApplicable
from jembench.interfaces import Fittable, Trainable
from jembench.interfaces.models import Capability


def capabilities(model: Any) -> frozenset[Capability]:
    """Return what a model can do, by what it has. One that is trained by chains can be sampled by them.

    A layer that happens to bear the name of one of the methods is none.
    """
    density = _has(model, "log_prob")
    has: dict[Capability, bool] = {
        "logits": _has(model, "logits"),
        "energy": _has(model, "energy") or density,
        "log_prob": density,
        "samples": _has(model, "sample") or getattr(model, "chains", "none") != "none",
    }
    return frozenset(capability for capability, present in has.items() if present)


def _has(model: Any, method: str) -> bool:
    found = getattr(model, method, None)
    return callable(found) and not isinstance(found, nn.Module)


def is_fitted(model: Any) -> bool:
    """Return whether a model is fitted to all images at once, and not trained by a loss."""
    return isinstance(model, Fittable) and not isinstance(model, Trainable)


def is_differentiable(model: Any) -> bool:
    """Return whether a model's answers have gradients, as it says."""
    return bool(getattr(model, "differentiable", True))


def require_gradients(exist: bool) -> None:
    """Refuse what needs gradients.

    Raises:
        NotApplicable: if there are none.
    """
    if not exist:
        raise NotApplicable("It needs gradients, and the model's answers have none, as it says (differentiable).")
