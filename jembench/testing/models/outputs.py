"""What a model gives: shapes, types, ranges, and one answer for each image whatever else is in the batch.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.testing.checks import explained, only_if, promise, require
from jembench.testing.models.subject import IMAGES, ModelSubject, close, has, needs, require_equal


def wrong_shape(name: str, answer: Any, data: DataSpec) -> str:
    """What is wrong with the shape of an output, and the remedy; empty if it is right."""
    method = name.partition("(")[0]
    shape, meaning = {
        "logits": ((IMAGES, data.num_classes), "a row an image, a column a class"),
        "sample": ((IMAGES, *data.shape), "images as the data has them"),
    }.get(method, ((IMAGES,), "a number an image"))
    if not isinstance(answer, Tensor):
        return f"{name} gives a {type(answer).__name__}. Return a tensor of shape {shape}."
    if tuple(answer.shape) != shape:
        return f"{name} gives the shape {tuple(answer.shape)} for {IMAGES} images. Return {shape}: {meaning}."
    return ""


def out_of_bounds(name: str, images: Tensor, data: DataSpec) -> str:
    """What is wrong with the pixels of samples, and the remedy; empty if they are within the bounds."""
    low, high = data.bounds
    if not name.startswith("sample") or not (float(images.min()) < low or float(images.max()) > high):  # NaN is not
        return ""
    return (
        f"{name} gives pixels from {float(images.min()):.3g} to {float(images.max()):.3g}, and the bounds are {low:g} "
        f"to {high:g}. Clamp what is drawn to data.bounds, and see that no other scale is meant."
    )


def _check_shapes(subject: ModelSubject, method: str) -> None:
    for name, answer in subject.outputs(needs(subject.model, method)).items():
        fault = wrong_shape(name, answer, subject.data) if name.startswith(f"{method}(") else ""
        require(not fault, fault)


@promise("models")
def logits_shape(subject: ModelSubject) -> None:
    """logits(x) has a row for each image and a column for each class: (B, K)."""
    _check_shapes(subject, "logits")


@promise("models")
def energy_shape(subject: ModelSubject) -> None:
    """energy(x), and energy(x, y) where there is one, has a number for each image: (B,)."""
    _check_shapes(subject, "energy")


@promise("models")
def log_prob_shape(subject: ModelSubject) -> None:
    """log_prob(x), and log_prob(x, y) where there is one, has a number for each image: (B,)."""
    _check_shapes(subject, "log_prob")


@promise("models")
def samples_shape(subject: ModelSubject) -> None:
    """sample(n) gives n images of the data's shape: (N, C, H, W)."""
    _check_shapes(subject, "sample")


@promise("models")
def samples_within_bounds(subject: ModelSubject) -> None:
    """sample(n) gives pixels within DataSpec.bounds."""
    for name, images in subject.drawn(needs(subject.model, "sample")).items():
        fault = out_of_bounds(name, images, subject.data)
        require(not fault, fault)


@promise("models")
def labels_taken_or_refused(subject: ModelSubject) -> None:
    """energy, log_prob and sample take y, which may be None; a model without classes refuses labels by a SpecError.

    Let it take y=None, and raise jembench.plugin.SpecError for labels where it knows no classes.
    """
    methods = [method for method in ("energy", "log_prob", "sample") if has(subject.model, method)]
    only_if(bool(methods), "It has nothing that could be asked by class.")
    for method in methods:
        with explained(f"{method} with labels, or with y=None, fails"), torch.no_grad():
            try:
                if method != "sample":  # how samplers ask for E(x)
                    getattr(subject.model, method)(subject.x, None)
                if subject.data.num_classes:
                    subject.ask_by_class(subject.model, method)
            except SpecError:
                continue


@promise("models")
def answers_are_float32(subject: ModelSubject) -> None:
    """Every answer, and every sample, is float32.

    Return float32, in which results are stored and compared.
    """
    for name, answer in subject.outputs(subject.model).items():
        require(answer.dtype == torch.float32, f"{name} is {answer.dtype}.")


@promise("models")
def answers_are_finite(subject: ModelSubject) -> None:
    """Every answer to images within the bounds, and every sample, is a finite number.

    Look for logarithms of 0, divisions by 0 and exponentials of large numbers; use logsumexp.
    """
    for name, answer in subject.outputs(subject.model).items():
        bad = int((~answer.isfinite()).sum())
        require(not bad, f"{bad} of {answer.numel()} values of {name} are not finite, with initial weights.")


@promise("models")
def one_image(subject: ModelSubject) -> None:
    """A batch of one image is answered as any other.

    Name the dimensions that are squeezed or reduced, and keep the first: squeeze(1) in place of squeeze().
    """
    for name, ask in subject.questions(subject.model).items():
        with explained(f"{name} fails for a single image"), torch.no_grad():
            answer = ask(subject.x[:1], subject.y[:1])
        found = f"{name} of a single image has the shape {tuple(answer.shape)}."
        require(len(answer.shape) > 0 and len(answer) == 1, found)


@promise("models")
def each_image_alone(subject: ModelSubject) -> None:
    """In evaluation mode the answer to an image does not depend on what else is in the batch, nor on its order.

    Compute nothing over the batch in evaluation mode: batch norm takes its running statistics there.
    """
    together = subject.answers(subject.model)
    parts = (torch.tensor([4, 2]), torch.tensor([0, 1, 3]))
    halves = [subject.answers(subject.model, subject.x[part], subject.y[part]) for part in parts]
    apart = {name: torch.cat([half[name] for half in halves]) for name in together}
    expected = {name: answer[torch.cat(parts)] for name, answer in together.items()}
    require_equal(apart, expected, "of the same images in other batches", close)


@promise("models")
def any_memory_layout(subject: ModelSubject) -> None:
    """The answer does not depend on how images lie in memory: channels last, or cropped from larger ones.

    Use flatten or reshape in place of view. Address dimensions by their index, never by strides.
    """
    x = subject.x
    layouts = {
        "channels-last": x.contiguous(memory_format=torch.channels_last),
        "cropped": torch.cat([x, x], dim=3)[..., : x.shape[3]],
    }
    expected = subject.answers(subject.model)
    for layout, images in layouts.items():
        for name, ask in subject.questions(subject.model).items():
            with explained(f"{name} fails on {layout} images"), torch.no_grad():
                answer = ask(images, subject.y)
            require_equal({name: answer}, expected, f"of {layout} images", close)


@promise("models")
def follows_its_device(subject: ModelSubject) -> None:
    """Moved to a GPU, the model answers there, for images there, and draws samples by a generator there.

    Register tensors as buffers, and make new ones on the device of the images or of the generator.
    """
    only_if(torch.cuda.is_available(), "There is no GPU here.")
    model = subject.model.to("cuda")
    found = {name: ask(subject.x.cuda(), subject.y.cuda()) for name, ask in subject.questions(model).items()}
    if has(model, "sample"):
        found["sample(n)"] = model.sample(IMAGES, generator=torch.Generator("cuda"))
    for name, answer in found.items():
        require(answer.device.type == "cuda", f"{name} is on {answer.device}, and the images are on a GPU.")
