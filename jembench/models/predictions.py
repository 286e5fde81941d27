"""Predictions of a network: the logits, energies and gradient norms of images, all from one pass.

Legend: N images, B images a pass, C channels, H height, W width, K classes.
"""

import math
import os
from collections.abc import Callable, Sequence, Set
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from jembench import progress, seeds
from jembench.data.images import changed
from jembench.data.pixels import Bounds, content_hash, noise_to_model, to_float
from jembench.errors import PluginError
from jembench.interfaces import DataSpec, GradEnergy, Quantity
from jembench.limits import Limit
from jembench.models.capabilities import capabilities, require_gradients
from jembench.models.energies import (
    LogitModel,
    energy_function,
    gradient,
    logits_function,
    marginal_energy,
)
from jembench.models.execution import frozen, mode

Done = TypeVar("Done")

Readings = dict[Quantity, Tensor]
"""On the CPU, float32 (float64 of a float64 model): logits (N, K), energy (N,), grad-norm (N,)."""

CPU_BATCH = 100
"""Images per pass on CPUs: faster than 500, whose maps do not fit the caches. No value depends on
it.
"""

CPU_PIXELS = CPU_BATCH * 64**2
"""Pixels per pass on CPUs: 8 images of 224x224. There 100 images took 1.5 times the CPU time and 8
times the memory with a ResNet-18, since PyTorch gets larger buffers from the system for each pass.
"""

GPU_PIXEL = 32 * 2**10
"""Bytes of a GPU's memory per pixel of a pass: 2,400 images of 32x32 in 80 GB. For the backward
pass WRN-28-10 keeps 14.5 KiB per pixel, beside the maps that are being computed.
"""

SETTING = "JEMBENCH_BATCH"
"""Environment variable: images per forward pass in evaluation; by default 100 on a CPU, fewer if
they are larger than 64x64 pixels, and more on a GPU.
"""


def read(
    model: Any,
    images: UInt8[Tensor, "N C H W"] | Float[Tensor, "N C H W"],
    data: DataSpec,
    device: torch.device,
    wanted: Set[Quantity],
    seed: int = 0,
) -> Readings:
    """Return every wanted quantity of every image, in evaluation mode.

    Each image passes through the network once.

    Logits and energy come from one forward pass where the energy follows from the logits (a
    :class:`~jembench.models.energies.LogitModel`), and one backward pass, towards the images only,
    gives the gradient. The norm is of dE/dx in the model's own units of x, as in Grathwohl et al.
    (2020), section 5.3. Images are pixel levels, or already in the model's units.

    A network's random numbers, such as those of dropout, depend on the seed and on the number of
    images per pass.

    Raises:
        NotApplicable: if gradients are wanted and the model has none.
        PluginError: if the energy of a model without one is wanted, or an output has another shape,
            or is no tensor of real floating-point numbers.
        torch.OutOfMemoryError: if a batch is too large for the device; JEMBENCH_BATCH sets the
            size.
    """
    if wanted - {"logits"} and "energy" not in capabilities(model):
        raise PluginError("The model gives no energy. Name energy in the metric's requires.")
    if "grad-norm" in wanted:
        require_gradients(model)

    readings: Readings = {}

    def read_part(part: slice) -> None:
        x = images[part].to(device)
        if not x.is_floating_point():
            x = to_float(x, data.bounds)
        with seeds.drawing(seed, f"evaluation/pass {part.start}", device):
            of_part = one_pass(model, x, wanted, classes=data.num_classes)
        for quantity, values in of_part.items():
            if quantity not in readings:
                # one tensor for all parts: small tensors that lie between the large buffers of
                # passes would keep the allocator from using the buffers' memory again
                readings[quantity] = values.new_empty((len(images), *values.shape[1:]))
            readings[quantity][part] = values

    with mode(model, train=False), frozen(cast(nn.Module, model)):
        in_parts(read_part, len(images), device, data.shape)
    return {quantity: values.cpu() for quantity, values in readings.items()}


def noisy(images: UInt8[Tensor, "N C H W"], std: float, bounds: Bounds) -> Float[Tensor, "N C H W"]:
    """Return images in the model's units with Gaussian noise, not clamped.

    The reference code of JEM does the same.

    ``std`` is the noise's standard deviation on [-1, 1], whatever the bounds are. Each image has
    its own generator, derived from the content of the set and the image's position in it: every
    model gets the same noise, whatever the batch size.
    """
    content = content_hash(images)

    def add(part: Tensor, places: Tensor) -> Tensor:
        drawn = []
        for place in places.tolist():
            generator = seeds.generator(0, f"evaluation/noise {content} {place}")
            drawn.append(torch.randn(images.shape[1:], generator=generator))
        return to_float(part, bounds) + noise_to_model(std, bounds) * torch.stack(drawn)

    return changed(images, add, dtype=torch.float32)


def batch(device: torch.device, shape: Sequence[int], copies: int = 1) -> int:
    """Return the number of images of a shape (C, H, W) per pass.

    Each image takes ``copies`` rows of the batch.

    The environment variable JEMBENCH_BATCH sets the number of rows, for networks that take more of
    a GPU's memory than WRN-28-10.

    Raises:
        SpecError: if the variable is no whole number from 1 up.
    """
    pixels = math.prod(shape[1:])
    whole = min(CPU_BATCH, CPU_PIXELS // pixels)
    if SETTING in os.environ:
        whole = Limit(SETTING, CPU_BATCH, "images").value
    elif device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        whole = memory // (GPU_PIXEL * pixels)
    return max(1, whole // copies)


def in_parts(
    work: Callable[[slice], Done],
    count: int,
    device: torch.device,
    shape: Sequence[int],
    copies: int = 1,
) -> list[Done]:
    """Return the results of ``work`` on the parts of ``count`` images.

    Without images, ``work`` is called for one empty part.

    ``shape`` and ``copies`` as for :func:`batch`.
    """
    size = batch(device, shape, copies)
    results = []
    with progress.phase("", count, "images") as shown:  # the phase ends too if work fails
        for start in range(0, max(1, count), size):
            end = min(start + size, count)
            results.append(work(slice(start, end)))
            shown.done = end
    return results


def batched(grad_energy: GradEnergy, data: DataSpec) -> GradEnergy:
    """Return the function that evaluates energies and gradients in batches.

    No random number depends on the size of batches.
    """

    def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        def of_part(part: slice) -> tuple[Tensor, Tensor]:
            return grad_energy(x[part], None if y is None else y[part])

        parts = in_parts(of_part, len(x), x.device, data.shape)
        energies, grads = zip(*parts, strict=True)
        return torch.cat(energies), torch.cat(grads)

    return evaluate


def one_pass(
    model: Any,
    x: Float[Tensor, "B C H W"],
    wanted: Set[Quantity],
    *,
    classes: int = 0,
    graph: bool = False,
) -> Readings:
    """Return quantities of images in the model's units, with their graph if ``graph`` is true.

    ``classes`` is the number of logits that the model must give; 0: any.

    Raises:
        PluginError: if an output has another shape, or is no tensor of real floating-point numbers.
    """
    # an autocast context of the caller would also affect the backward pass
    with (
        torch.set_grad_enabled(graph or "grad-norm" in wanted),
        torch.autocast(x.device.type, enabled=False),
    ):
        if not graph:
            x = x.detach().requires_grad_("grad-norm" in wanted)
        readings: Readings = {}
        by_logits = energy_follows_from_logits(model)
        if "logits" in wanted or (wanted and by_logits):
            readings["logits"] = logits_function(model, classes)(x)
        if wanted & {"energy", "grad-norm"}:
            if by_logits:
                readings["energy"] = marginal_energy(readings["logits"])
            else:
                readings["energy"] = energy_function(model)(x)
        if "grad-norm" in wanted:
            slope = gradient(readings["energy"], x, graph=graph)
            readings["grad-norm"] = slope.flatten(1).norm(dim=1)
    asked = {name: value for name, value in readings.items() if name in wanted}
    if graph:
        return asked
    return {name: value.detach() for name, value in asked.items()}


def energy_follows_from_logits(model: Any) -> bool:
    """Return whether E(x) is -logsumexp of the logits by construction."""
    is_logit_model = isinstance(model, LogitModel) and type(model).energy is LogitModel.energy
    return is_logit_model or getattr(model, "energy_follows_from_logits", False)
