"""The memory that a model or a sampler needs, computed before allocation."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from jembench import seeds
from jembench.errors import SpecError
from jembench.limits import GIB
from jembench.models.settings import isolated


def check_memory(make: Callable[[], Any], what: str, device: torch.device) -> None:
    """Check that a component fits into a device's memory.

    A model needs room for its gradients and two moments of each parameter.

    The component is made on PyTorch's meta device, where tensors have shapes and no values. A
    component whose factory fails there, because it computes with values, is not checked.

    Args:
        make: calls the factory.
        what: the name of the component, for the error.
        device: the device that it will be used on.

    Raises:
        SpecError: if it does not fit.
    """
    try:
        # the call on the real device reports the settings that the factory leaves changed
        with (
            isolated(what, lambda text: None),
            torch.device("meta"),
            seeds.drawing(0, "initialisation"),
        ):
            made = make()
            held = [value for value in made.state_dict().values() if isinstance(value, Tensor)]
            if isinstance(made, nn.Module):
                trained = [parameter for parameter in made.parameters() if parameter.requires_grad]
                held += 3 * trained
            needed = sum(value.nbytes for value in held)
    # an error of the factory is raised again when it is called on the device itself
    except Exception:
        return
    where, available = room(device)
    if needed > available:
        gradients = ""
        if isinstance(made, nn.Module):
            gradients = " with gradients and the state of an optimiser"
        raise SpecError(
            f"{what} takes {needed / GIB:,.0f} GiB{gradients}, and {where} has "
            f"{available / GIB:,.0f}. Make it smaller."
        )


def room(device: torch.device) -> tuple[str, int]:
    """Return where a device's memory is, and its bytes."""
    if device.type == "cuda":
        return "the GPU", torch.cuda.get_device_properties(device).total_memory
    return "this machine", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
