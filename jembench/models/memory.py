"""The memory that a model or a sampler takes, known before any of it is allocated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from jembench import seeds
from jembench.errors import SpecError
from jembench.models.settings import isolated

GIB = 2**30


def check_memory(make: Callable[[], Any], what: str, device: torch.device) -> None:
    """Check that a component fits into a device's memory: a trained model with its gradients and two moments of each.

    The component is made on PyTorch's meta device, where tensors have shapes and no values. One whose factory cannot be
    called there, because it computes with values, is not checked.

    Args:
        make: calls the factory.
        what: the component, for the error.
        device: where it will be used.

    Raises:
        SpecError: if it does not fit.
    """
    try:
        # settings that it leaves changed are noted when it is made on the device itself
        with isolated(what, lambda text: None), torch.device("meta"), seeds.initialising(0):
            made = make()
            needed = _bytes(made)
    except Exception:  # made again, on the device itself, it raises its errors or needs values
        return
    if needed > (available := memory_of(device)):
        gradients = " with gradients and the state of an optimiser" if isinstance(made, nn.Module) else ""
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise SpecError(
            f"{what} takes {needed / GIB:,.0f} GiB{gradients}, and {where} has {available / GIB:,.0f}. Make it smaller."
        )


def memory_of(device: torch.device) -> int:
    """Return the bytes of memory of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes(made: Any) -> int:
    kept = sum(value.nbytes for value in made.state_dict().values() if isinstance(value, Tensor))
    parameters = made.parameters() if isinstance(made, nn.Module) else ()
    return kept + 3 * sum(parameter.nbytes for parameter in parameters if parameter.requires_grad)
