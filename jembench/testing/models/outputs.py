"""Promises of a model's outputs: shapes, types, ranges, and independence of the other images in the batch.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Fittable, Trainable
from jembench.models.capabilities import capabilities
from jembench.testing.checks import DoesNotApply, only_if, promise, require
from jembench.testing.models.subject import IMAGES, ModelSubject, close, has, needs, require_equal

OTHER = DataSpec(name="other", shape=(3, 16, 16), num_classes=4, bounds=(0.0, 1.0))
"""Other size, colours, classes and bounds than the data that models are checked on."""


@promise("models")
def has_a_capability(subject: ModelSubject) -> None:
    """The model can be trained and measured.

    Give it a method logits(x), energy(x, y=None), log_prob(x, y=None) or sample(n, y=None, *, generator);
    and training_loss with the attribute chains, or fit, or mark the factory of a model that was trained elsewhere:
    @jembench.plugin.pretrained.
    """
    require(bool(capabilities(subject.model)), "Nothing can be measured of it.")
    trained = isinstance(subject.model, (Trainable, Fittable)) or subject.resolved.is_pretrained
    require(trained, "It cannot be trained: it lacks training_loss or chains.")


@promise("models")
def output_shapes(subject: ModelSubject) -> None:
    """logits are (B, K), energy and log_prob (B,), with labels too, and samples (N, C, H, W)."""
    for name, answer in subject.outputs(subject.model).items():
        _require_shape(name, answer, subject.data)


def _require_shape(name: str, answer: Any, data: DataSpec) -> None:
    shapes = {"logits": (IMAGES, data.num_classes), "sample": (IMAGES, *data.shape)}
    shape = shapes.get(name.partition("(")[0], (IMAGES,))
    found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    require(found == shape, f"{name} gives {found} for {IMAGES} images of {data.shape}. Return a tensor of {shape}.")


@promise("models")
def samples_within_bounds(subject: ModelSubject) -> None:
    """sample(n) gives pixels within DataSpec.bounds."""
    _require_bounds(subject.outputs(needs(subject.model, "sample")), subject.data)


def _require_bounds(outputs: Any, data: DataSpec) -> None:
    low, high = data.bounds
    for name, images in outputs.items():
        least, most = float(images.min()), float(images.max())
        outside = name.startswith("sample") and (least < low or most > high)  # NaN is not
        found = f"{name} gives pixels from {least:.3g} to {most:.3g}, and the bounds are {low:g} to {high:g}."
        require(not outside, f"{found} Clamp samples to data.bounds.")


@promise("models")
def shapes_from_data(subject: ModelSubject) -> None:
    """Made for images of another size, with other colours, classes and bounds, the model fits those.

    Take sizes from data.shape and data.num_classes, or raise SpecError for what it is not made for.
    """
    subject.outputs(subject.model)
    only_if(not subject.resolved.is_pretrained, "It was trained elsewhere, for images of one shape.")
    other = ModelSubject(subject.resolved, (OTHER,))
    try:
        model = other.build()
    except SpecError as refusal:
        raise DoesNotApply(f"It refuses {OTHER.shape}: {refusal}") from refusal
    outputs = other.outputs(model)
    for name, answer in outputs.items():
        _require_shape(name, answer, OTHER)
    _require_bounds(outputs, OTHER)


@promise("models")
def labels_taken_or_refused(subject: ModelSubject) -> None:
    """energy, log_prob and sample take y, which may be None; a model without classes refuses labels by a SpecError.

    Let it take y=None, and raise jembench.plugin.SpecError for labels where it knows no classes.
    """
    methods = [method for method in ("energy", "log_prob", "sample") if has(subject.model, method)]
    only_if(bool(methods), "It has nothing that could be asked by class.")
    for method in methods:
        with torch.no_grad(), suppress(SpecError):
            if method != "sample":  # how samplers ask for E(x)
                getattr(subject.model, method)(subject.x, None)
            if subject.data.num_classes:
                subject.call_by_class(subject.model, method)


@promise("models")
def answers_are_finite(subject: ModelSubject) -> None:
    """Every answer to images within the bounds, and every sample, is a finite number of type float32.

    Look for logarithms of 0, divisions by 0 and exponentials of large numbers; use logsumexp.
    """
    for name, answer in subject.outputs(subject.model).items():
        require(answer.dtype == torch.float32, f"{name} is {answer.dtype}.")
        bad = int((~answer.isfinite()).sum())
        require(not bad, f"{bad} of {answer.numel()} values of {name} are not finite, with initial weights.")


@promise("models")
def each_image_alone(subject: ModelSubject) -> None:
    """In evaluation mode the answer to an image does not depend on what else is in the batch, nor on its order.

    Compute nothing over the batch in evaluation mode: batch norm takes its running statistics there. Name the
    dimensions that are squeezed or reduced, and keep the first: squeeze(1) in place of squeeze().
    """
    parts = [torch.tensor([4, 2]), torch.tensor([0]), torch.tensor([1, 3])]
    order, model = torch.cat(parts), subject.model
    with torch.no_grad():
        for name, ask in subject.calls(model).items():
            together = ask(subject.x, subject.y)
            apart = torch.cat([ask(subject.x[part], subject.y[part]) for part in parts])
            require_equal({name: apart}, {name: together[order]}, "of the same images in other batches", close)


@promise("models")
def follows_its_device(subject: ModelSubject) -> None:
    """Moved to a GPU, the model answers there, for images there, and draws samples by a generator there.

    Register tensors as buffers, and make new ones on the device of the images or of the generator.
    """
    only_if(torch.cuda.is_available(), "There is no GPU here.")
    model = subject.model.to("cuda")
    found = {name: ask(subject.x.cuda(), subject.y.cuda()) for name, ask in subject.calls(model).items()}
    if has(model, "sample"):
        found["sample(n)"] = model.sample(IMAGES, generator=torch.Generator("cuda"))
    for name, answer in found.items():
        require(answer.device.type == "cuda", f"{name} is on {answer.device}, and the images are on a GPU.")
