"""Logits of images in [0, 1], and gradients of a loss with respect to images.

This is the only module of the attacks that converts images to the model's bounds.

Legend: N images, C channels, H height, W width, K classes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jembench.interfaces import DataSpec
from jembench.models.energies import gradient, logits_function
from jembench.models.execution import frozen, mode

Images = Float[Tensor, "N C H W"]
"""Images, in [0, 1] unless stated otherwise."""

Classes = Int[Tensor, " N"]
"""A class of each image."""

Flags = Bool[Tensor, " N"]
"""True or False for each image."""

Numbers = Float[Tensor, " N"]
"""A number of each image."""

Logits = Float[Tensor, "N K"]


def rows_where(flags: Flags) -> Int[Tensor, " B"]:
    """Return the indices of the flags that are set."""
    return flags.nonzero().flatten()


@contextmanager
def settled(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Set evaluation mode, freeze the parameters and disable autocast.

    Passes with and without a gradient then give the same logits.
    """
    with mode(model, train=False), frozen(model), torch.autocast(device.type, enabled=False):
        yield


def logits_of(model: nn.Module, data: DataSpec, x: Images) -> Logits:
    """Return f(x) of images in [0, 1], in float32 or float64."""
    low, high = data.bounds
    logits = logits_function(model, data.num_classes)
    return logits(x * (high - low) + low)


Loss = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function of images: the sum of their losses, and rows such as logits (N, K)."""


def gradient_of(loss: Loss, x: Images) -> tuple[Images, Tensor]:
    """Return the gradient of a loss with respect to images, and the loss's rows.

    Args:
        loss: of images.
        x: the images.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value, rows = loss(x)
        slope = gradient(value, x)
    return slope, rows.detach()
