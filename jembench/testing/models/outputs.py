"""Promises of a model's outputs: shapes, types, ranges, independent images.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Fittable, Trainable
from jembench.models.capabilities import capabilities
from jembench.models.energies import accepts
from jembench.testing.checks import DIGITS, DoesNotApply, only_if, promise, require
from jembench.testing.models.subject import IMAGES, ModelSubject, close, has, needs, require_equal

OTHER = DataSpec(name="other", shape=(3, 16, 16), num_classes=4, bounds=(0.0, 1.0))
"""Data of another size, with other channels, classes and bounds than the default of checks."""


@promise("models")
def has_a_capability(subject: ModelSubject) -> None:
    """The model can be trained and measured.

    Define a method logits(x), energy(x, y=None), log_prob(x, y=None) or sample(n, y=None, *,
    generator), and training_loss with the attribute chains, or fit; or mark the factory of a model
    that was trained elsewhere with @jembench.plugin.pretrained.
    """
    require(bool(capabilities(subject.model)), "It has none of the methods that are measured.")
    trained = isinstance(subject.model, (Trainable, Fittable)) or subject.resolved.is_pretrained
    begun = has(subject.model, "training_loss") or has(subject.model, "chains")
    only_if(
        trained or begun,
        "It cannot be trained here: import its weights, or mark its factory @pretrained.",
    )
    require(trained, "It cannot be trained: it lacks training_loss or chains.")


@promise("models")
def output_shapes(subject: ModelSubject) -> None:
    """logits are (B, K), energy and log_prob (B,), with labels too, and samples (N, C, H, W).

    Take sizes from data.shape and data.num_classes, or check the model for the images that it is
    made for.
    """
    for name, output in subject.outputs(subject.model).items():
        _require_shape(name, output, subject.data)


def _require_shape(name: str, output: Any, data: DataSpec) -> None:
    shapes = {"logits": (IMAGES, data.num_classes), "sample": (IMAGES, *data.shape)}
    shape = shapes.get(name.partition("(")[0], (IMAGES,))
    form = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    require(
        form == shape,
        f"{name} returns {form} for {IMAGES} images of {data.shape}. Return a tensor of {shape}.",
    )


@promise("models")
def samples_within_bounds(subject: ModelSubject) -> None:
    """sample(n) returns pixels within DataSpec.bounds."""
    _require_bounds(subject.outputs(needs(subject.model, "sample")), subject.data)


def _require_bounds(outputs: Any, data: DataSpec) -> None:
    low, high = data.bounds
    for name, images in outputs.items():
        least, most = float(images.min()), float(images.max())
        outside = name.startswith("sample") and (least < low or most > high)  # NaN passes
        require(
            not outside,
            f"{name} returns pixels from {least:.3g} to {most:.3g}, and the bounds are {low:g} to "
            f"{high:g}. Clamp samples to data.bounds.",
        )


@promise("models")
def shapes_from_data(subject: ModelSubject) -> None:
    """The model can be made for images of another size, with other channels, classes and bounds.

    Take sizes from data.shape and data.num_classes, or raise SpecError for unsupported data.
    """
    subject.outputs(subject.model)
    only_if(
        not subject.resolved.is_pretrained, "It was trained elsewhere, for images of one shape."
    )
    resized = ModelSubject(subject.resolved, (OTHER,))
    try:
        outputs = resized.outputs(resized.build())
    except SpecError as refusal:
        raise DoesNotApply(f"It refuses {OTHER.shape}: {refusal}") from refusal
    except Exception:
        only_if(
            subject.data == DIGITS, f"It takes only {subject.data.shape}, for which it is checked."
        )
        raise
    for name, output in outputs.items():
        _require_shape(name, output, OTHER)
    _require_bounds(outputs, OTHER)


@promise("models")
def labels_taken_or_refused(subject: ModelSubject) -> None:
    """energy, log_prob and sample take y, which may be None; a model without classes raises a
    SpecError for labels.

    Define y=None, and raise jembench.plugin.SpecError for labels if the model has no classes.
    energy and log_prob of a model without logits may leave out y.
    """
    model = subject.model
    methods = [method for method in ("energy", "log_prob", "sample") if has(model, method)]
    for method in ("energy", "log_prob"):
        may_leave_out = method in methods and not has(model, "logits")
        if may_leave_out and not accepts(getattr(model, method), 2):
            methods.remove(method)
    only_if(bool(methods), "It has no method that takes labels.")
    for method in methods:
        with torch.no_grad(), suppress(SpecError):
            if method != "sample":  # as samplers do for E(x)
                getattr(subject.model, method)(subject.x, None)
            if subject.data.num_classes:
                subject.call_by_class(subject.model, method)


@promise("models")
def outputs_are_finite(subject: ModelSubject) -> None:
    """Every output for images within the bounds, and every sample, is finite and float32.

    Look for logarithms of 0, divisions by 0 and exponentials of large numbers; use logsumexp.
    """
    for name, output in subject.outputs(subject.model).items():
        require(output.dtype == torch.float32, f"{name} is {output.dtype}.")
        bad = int((~output.isfinite()).sum())
        require(
            not bad,
            f"{bad} of {output.numel()} values of {name} are not finite, with initial weights.",
        )


@promise("models")
def each_image_alone(subject: ModelSubject) -> None:
    """In evaluation mode the output for an image depends neither on the other images of the batch
    nor on its order.

    Compute no statistics over the batch in evaluation mode: batch norm uses its running statistics
    there. Name the dimensions that are squeezed or reduced, and keep the first: squeeze(1) instead
    of squeeze().
    """
    parts = [torch.tensor([4, 2]), torch.tensor([0]), torch.tensor([1, 3])]
    order, model = torch.cat(parts), subject.model
    with torch.no_grad():
        for name, call in subject.calls(model).items():
            together = call(subject.x, subject.y)
            apart = torch.cat([call(subject.x[part], subject.y[part]) for part in parts])
            how = "of the same images in other batches"
            require_equal({name: apart}, {name: together[order]}, how, close)


@promise("models")
def follows_its_device(subject: ModelSubject) -> None:
    """A model on a GPU takes images there, and returns outputs and samples there.

    Register tensors as buffers, and make new ones on the device of the images or of the generator.
    """
    only_if(torch.cuda.is_available(), "There is no GPU here.")
    model = subject.model.to("cuda")
    x, y = subject.x.cuda(), subject.y.cuda()
    outputs = {name: call(x, y) for name, call in subject.calls(model).items()}
    if has(model, "sample"):
        outputs["sample(n)"] = model.sample(IMAGES, generator=torch.Generator("cuda"))
    for name, output in outputs.items():
        require(
            output.device.type == "cuda",
            f"{name} is on {output.device}, and the images are on a GPU.",
        )
