"""Network outputs that are random or depend on a pass's other images."""

from collections.abc import Set
from typing import Any, cast

import torch
from torch import Tensor, nn

from jembench import seeds
from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec, Quantity
from jembench.models.execution import frozen, mode, unchanged_buffers
from jembench.models.predictions import Readings, one_pass

IMAGES = 4
"""The number of images that pass through the network."""

ROUNDING = 1e-2
"""The largest change by rounding, relative to the range of the outputs.

Kernels sum in another order for other numbers of images. In float32, on a CPU with AVX-512, this
changed the outputs of ten networks of this project by at most 8e-6 of their range. TF32 and
bfloat16 round to 11 and 8 bits. Statistics of a batch and dropout usually change the outputs by
more.
"""

MAGNITUDE = 1e-3
"""The weight of the largest output in that range: energies near 1e4 have a resolution of 1e-3."""


def unsteady(
    model: Any, images: Tensor, data: DataSpec, device: torch.device, wanted: Set[Quantity]
) -> str:
    """Return a remark on outputs that are random or depend on other images; "" for steady ones.

    A few images pass through the network, and then copies of only the last image, with other random
    numbers. Outputs that differ are computed once more to find out why. Neither the network's
    buffers nor later random numbers change.

    Args:
        model: in evaluation mode during the passes.
        images: uint8 (N, C, H, W), of which the first are used.
        data: the description of the images.
        device: of the model.
        wanted: the outputs; gradients are not computed.
    """
    x = to_float(images[:IMAGES].to(device), data.bounds)
    copied = torch.full((IMAGES - 1,), len(x) - 1, device=device)  # a batch with other statistics

    def outputs(part: Tensor, seed: int) -> Readings:
        with seeds.drawing(seed, "steadiness", device):
            return one_pass(model, part, wanted - {"grad-norm"}, classes=data.num_classes)

    with mode(model, train=False), frozen(cast(nn.Module, model)), unchanged_buffers(model):
        try:
            first = outputs(x, 0)
            if not _differ(first, outputs(x[copied], 1), copied):
                return ""
            again = outputs(x, 1)
        except Exception:  # the metrics that read the outputs report it
            return ""
    if _differ(first, again, torch.arange(len(x), device=device)):
        return (
            "the outputs of the model differ from pass to pass: it draws random numbers, or "
            "changes in evaluation. Its random numbers are derived from the seed of the fit, for "
            "one number of images per pass (JEMBENCH_BATCH)"
        )
    return (
        "the outputs of the model for an image depend on the other images of a pass, so that its "
        "values depend on the number of images per pass (JEMBENCH_BATCH) and on their order"
    )


def _differ(first: Readings, second: Readings, places: Tensor) -> bool:
    """Return whether second outputs differ from the first at these places, beyond rounding."""
    for name, values in first.items():
        expected, finite = values[places], values[values.isfinite()].double()
        if not len(finite):
            continue
        scale = finite.max() - finite.min() + MAGNITUDE * finite.abs().max()
        change = (expected - second[name])[expected.isfinite()].double().abs().nan_to_num(torch.inf)
        if bool((change > ROUNDING * scale).any()):
            return True
    return False
