"""The capabilities of a model: logits, energies, densities and samples."""

from collections.abc import Set
from typing import Any

from torch import nn

from jembench.errors import NotApplicable
from jembench.interfaces import Fittable, Quantity, Trainable
from jembench.interfaces.models import Capability


def capabilities(model: Any) -> frozenset[Capability]:
    """Return a model's capabilities by its methods.

    A model that is trained by chains can be sampled by chains, unless its attribute ``generates``
    is False. A layer with the name of one of the methods does not count as the method.
    """
    methods = set()
    for name in ("logits", "energy", "log_prob", "sample"):
        value = getattr(model, name, None)
        if callable(value) and not isinstance(value, nn.Module):
            methods.add(name)
    has_chains = getattr(model, "chains", "none") != "none" and getattr(model, "generates", True)
    has: dict[Capability, bool] = {
        "logits": "logits" in methods,
        "energy": not methods.isdisjoint({"energy", "log_prob"}),
        "log_prob": "log_prob" in methods,
        "samples": "sample" in methods or has_chains,
    }
    return frozenset(capability for capability, present in has.items() if present)


def readable(model: Any, wanted: Set[Quantity]) -> frozenset[Quantity]:
    """Return the wanted quantities that a model has."""
    needs: dict[Quantity, Capability] = {
        "logits": "logits",
        "energy": "energy",
        "grad-norm": "energy",
    }
    has = capabilities(model)
    if not is_differentiable(model):
        wanted -= {"grad-norm"}
    return frozenset(quantity for quantity in wanted if needs[quantity] in has)


def is_fitted(model: Any) -> bool:
    """Return whether a model is fitted to all images at once, without a loss."""
    return isinstance(model, Fittable) and not isinstance(model, Trainable)


def is_differentiable(model: Any) -> bool:
    """Return whether a model's outputs have gradients towards the images.

    Its attribute ``differentiable`` says so.
    """
    return bool(getattr(model, "differentiable", True))


def has_energy_gradient(model: Any) -> bool:
    """Return whether a model has dE/dx, which chains follow, of its energy or of its logits."""
    return bool(capabilities(model) & {"energy", "logits"}) and is_differentiable(model)


def require_gradients(model: Any) -> None:
    """Check that a model's outputs have gradients towards the images.

    Raises:
        NotApplicable: if they have none.
    """
    if not is_differentiable(model):
        raise NotApplicable(
            "It needs gradients, and the model declares that its outputs have none "
            "(differentiable = False)."
        )
