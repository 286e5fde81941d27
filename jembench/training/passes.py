"""Network passes of a training: its cost on any machine.

A pass is one image that goes through the network once, forward, or forward and backward. A step of
a chain is one pass of its image, an attack in a loss one pass a step, and images of two terms of a
loss are two passes unless they are the same images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from jembench import seeds
from jembench.interfaces import Batch, DataSpec, Negatives, Phase
from jembench.models.execution import unchanged_buffers


def of_losses(
    model: Any,
    phases: Sequence[Phase],
    data: DataSpec,
    sizes: Mapping[str, int],
    device: torch.device,
    *,
    shared: bool,
) -> int:
    """Count the passes of one computation of all losses.

    Passes are counted at each phase's first layer with parameters.

    The images are blank. Buffers and random numbers are unchanged.

    Args:
        model: after its first iteration, in which a network may initialise itself by its batch.
        phases: the turns of an iteration.
        data: the description of the images.
        sizes: of the batches ``marginal`` and ``labelled``, and the numbers of ``outliers`` and of
            ``samples``.
        device: of the model.
        shared: both terms use the labelled images.

    Returns:
        the number; 0: unknown, since the layer was not called.
    """
    batch, negatives = blank_batch(data, sizes, device, shared=shared)
    seen: list[int] = []

    def count(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(len(next(iter((*positional, *named.values())))))

    layers = {_first_layer(model, phase) for phase in phases}
    with ExitStack() as hooks, unchanged_buffers(model), seeds.drawing(0, "passes", device):
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(count, with_kwargs=True))
        for phase in phases:
            phase.loss(batch, negatives)
    return sum(seen)


def blank_batch(
    data: DataSpec, sizes: Mapping[str, int], device: torch.device, *, shared: bool
) -> tuple[Batch, Negatives | None]:
    """Return blank images and samples of an iteration; arguments as for :func:`of_losses`."""
    images = {name: torch.zeros(size, *data.shape, device=device) for name, size in sizes.items()}
    labels = {name: x.new_zeros(len(x), dtype=torch.int64) for name, x in images.items()}
    x = images["labelled" if shared else "marginal"]
    batch = Batch(x, images["labelled"], labels["labelled"], outliers=images["outliers"])
    negatives = None
    if sizes["samples"]:
        negatives = Negatives(images["samples"], labels["samples"])
    return batch, negatives


def _first_layer(model: nn.Module, phase: Phase) -> nn.Module:
    """Return the first layer with parameters of a phase; the model itself is not called."""
    for layer in list(model.modules())[1:]:
        if set(layer.parameters(recurse=False)).intersection(phase.parameters):
            return layer
    return model
