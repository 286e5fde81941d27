"""What a model gives: shapes, types, ranges, and one answer for each image whatever stands beside it.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.model_checks.subject import IMAGES, Subject, close, distance, has, needs


def problem(name: str, answer: Any, data: DataSpec, n: int = IMAGES) -> str:
    """What is wrong with the shape of an answer, and how to mend it; empty if nothing is."""
    expected = {"logits(x)": (n, data.num_classes), "sample(n)": (n, *data.shape), "sample(n, y)": (n, *data.shape)}
    shape = expected.get(name, (n,))
    if not isinstance(answer, Tensor):
        return f"{name} gives a {type(answer).__name__}. Return a tensor of shape {shape}."
    if tuple(answer.shape) != shape:
        return f"{name} gives the shape {tuple(answer.shape)} for {n} images. Return {shape}: {_WHAT[name]}."
    return ""


_WHAT = {
    "logits(x)": "a row an image, a column a class",
    "energy(x)": "a number an image",
    "energy(x, y)": "a number an image, for its label",
    "log_prob(x)": "a number an image",
    "log_prob(x, y)": "a number an image, for its label",
    "sample(n)": "images as the data has them",
    "sample(n, y)": "an image a label",
}


def _check_shapes(subject: Subject, method: str) -> None:
    model = needs(subject.model, method)
    answers = {**subject.answers(model), **subject.drawn(model)}
    for name in (name for name in answers if name.startswith(f"{method}(")):
        if trouble := problem(name, answers[name], subject.data):
            raise CheckFailed(trouble)


def logits_shape(subject: Subject) -> None:
    """logits(x) has a row for each image and a column for each class: (B, K)."""
    _check_shapes(subject, "logits")


def energy_shape(subject: Subject) -> None:
    """energy(x), and energy(x, y) where there is one, has a number for each image: (B,)."""
    _check_shapes(subject, "energy")


def log_prob_shape(subject: Subject) -> None:
    """log_prob(x), and log_prob(x, y) where there is one, has a number for each image: (B,)."""
    _check_shapes(subject, "log_prob")


def samples_shape(subject: Subject) -> None:
    """sample(n) gives n images of the data's shape: (N, C, H, W)."""
    _check_shapes(subject, "sample")


def samples_within_bounds(subject: Subject) -> None:
    """sample(n) gives pixels within DataSpec.bounds."""
    for name, images in subject.drawn(needs(subject.model, "sample")).items():
        if trouble := beyond(name, images, subject.data):
            raise CheckFailed(trouble)


def beyond(name: str, images: Tensor, data: DataSpec) -> str:
    """What is wrong with the pixels of samples, and how to mend it; empty if they are within the bounds."""
    low, high = data.bounds
    if not (float(images.min()) < low or float(images.max()) > high):  # NaN is told elsewhere
        return ""
    return (
        f"{name} gives pixels from {float(images.min()):.3g} to {float(images.max()):.3g}, and the bounds are {low:g} "
        f"to {high:g}. Clamp what is drawn to data.bounds, and see that no other scale is meant."
    )


def labels_taken_or_refused(subject: Subject) -> None:
    """energy, log_prob and sample take y, which may be None; a model without classes refuses labels by a SpecError."""
    methods = [method for method in ("energy", "log_prob", "sample") if has(subject.model, method)]
    if not methods:
        raise DoesNotApply("It has nothing that could be asked by class.")
    for method in methods:
        try:
            with torch.no_grad():
                if method != "sample":  # how samplers ask for E(x)
                    getattr(subject.model, method)(subject.x, None)
                if subject.data.num_classes:
                    subject.ask_by_class(subject.model, method)
        except SpecError:
            continue
        except Exception as error:
            raise CheckFailed(
                f"{method} with labels, or with y=None, fails: {type(error).__name__}: {error}. Let it take y=None, "
                "and raise jembench.plugin.SpecError for labels where it knows no classes."
            ) from error


def answers_are_float32(subject: Subject) -> None:
    """Every answer, and every sample, is float32."""
    for name, answer in {**subject.answers(subject.model), **subject.drawn(subject.model)}.items():
        if answer.dtype != torch.float32:
            raise CheckFailed(f"{name} is {answer.dtype}. Return float32: what is stored and compared is that.")


def answers_are_finite(subject: Subject) -> None:
    """Every answer to images within the bounds, and every sample, is a finite number."""
    for name, answer in {**subject.answers(subject.model), **subject.drawn(subject.model)}.items():
        bad = int((~answer.isfinite()).sum())
        if bad:
            raise CheckFailed(
                f"{bad} of {answer.numel()} values of {name} are not finite, with weights as they begin. Look for "
                "logarithms of 0, divisions by 0 and exponentials of large numbers; use logsumexp."
            )


def one_image(subject: Subject) -> None:
    """A batch of one image is answered as any other."""
    for name, ask in subject.questions(subject.model).items():
        try:
            with torch.no_grad():
                answer = ask(subject.x[:1], subject.y[:1])
        except Exception as error:
            raise CheckFailed(
                f"{name} fails for a single image: {type(error).__name__}: {error}. Name the dimensions that are "
                "squeezed or reduced."
            ) from error
        if len(answer.shape) == 0 or len(answer) != 1:
            raise CheckFailed(
                f"{name} of a single image has the shape {tuple(answer.shape)}. Keep the first dimension: squeeze(1) "
                "in place of squeeze()."
            )


def each_image_alone(subject: Subject) -> None:
    """In evaluation mode the answer to an image does not depend on what else is in the batch, nor on its order."""
    together = subject.answers(subject.model)
    halves = [subject.answers(subject.model, subject.x[part], subject.y[part]) for part in _PARTS]
    for name, answer in together.items():
        apart = torch.cat([half[name] for half in halves])
        if not close(apart, answer[_ORDER]):
            raise CheckFailed(
                f"{name} of the same images, in other batches, differs by {distance(apart, answer[_ORDER])}. Compute "
                "nothing over the batch in evaluation mode: batch norm takes its running statistics there."
            )


_PARTS = (torch.tensor([4, 2]), torch.tensor([0, 1, 3]))
_ORDER = torch.cat(_PARTS)


def any_memory_layout(subject: Subject) -> None:
    """The answer does not depend on how images lie in memory: channels last, or cropped from larger ones."""
    x = subject.x
    layouts = {
        "channels-last": x.contiguous(memory_format=torch.channels_last),
        "cropped": torch.cat([x, x], dim=3)[..., : x.shape[3]],
    }
    expected = subject.answers(subject.model)
    for layout, images in layouts.items():
        for name, ask in subject.questions(subject.model).items():
            try:
                with torch.no_grad():
                    answer = ask(images, subject.y)
            except Exception as error:
                raise CheckFailed(
                    f"{name} fails on {layout} images: {type(error).__name__}: {error}. Use flatten or reshape in "
                    "place of view."
                ) from error
            if not close(answer, expected[name]):
                raise CheckFailed(
                    f"{name} of {layout} images differs by {distance(answer, expected[name])}. Address dimensions by "
                    "their index, never by strides."
                )


def follows_its_device(subject: Subject) -> None:
    """Moved to a GPU, the model answers there, for images there, and draws samples by a generator there."""
    if not torch.cuda.is_available():
        raise DoesNotApply("There is no GPU here.")
    model = subject.model.to("cuda")
    found = {name: ask(subject.x.cuda(), subject.y.cuda()) for name, ask in subject.questions(model).items()}
    if has(model, "sample"):
        found["sample(n)"] = model.sample(IMAGES, generator=torch.Generator("cuda"))
    for name, answer in found.items():
        if answer.device.type != "cuda":
            raise CheckFailed(
                f"{name} is on {answer.device}, and the images are on a GPU. Register tensors as buffers, and make new "
                "ones on the device of the images or of the generator."
            )
