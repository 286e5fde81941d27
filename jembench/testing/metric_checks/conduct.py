"""Checks of how a metric behaves: the same each time, and without a trace.

Legend: N images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch

from jembench.catalog import registry
from jembench.catalog.spec import Scalar, format_value, keyword_parameters
from jembench.errors import JembenchError
from jembench.experiment.sweep import with_options
from jembench.interfaces import Costly, Measurement, Metric, Resampled
from jembench.testing import stage
from jembench.testing.asking import promises, require, same
from jembench.testing.checks import DoesNotApply
from jembench.testing.exact import IMAGES
from jembench.testing.metric_checks.subject import GLOBAL, MODEL, SAMPLER, SHARED, Subject, compute, measured

ROUNDING = 1e-4
"""What an image's neighbours in a batch may change of what the network says of it, relative and absolute."""

AFFORDABLE = 5_000
"""Network passes that a measurement with other options may take."""


# --- the same each time -----------------------------------------------------------------------------------------------


def same_twice(subject: Subject) -> None:
    """Two evaluations of one model give the same measurement, bit for bit."""
    first, second = subject.measurement, measured(compute(subject.make(), stage.trained()))
    parts = ("protocol", "values", "arrays", "details")
    different = [part for part in parts if not same(getattr(first, part), getattr(second, part))]
    require(
        not different,
        f"Measured again, {' and '.join(different)} are others. Draw random numbers from evaluation.generator(purpose) "
        "alone, and let nothing depend on the time or on the order of a set.",
    )


def order_of_images(subject: Subject) -> None:
    """In whatever order the test images come, the values are the same, and per-image arrays follow them."""
    metric, first = subject.make(), subject.measurement
    if not isinstance(metric, Resampled) or isinstance(metric, Costly) or metric.requires != {"logits"}:
        raise DoesNotApply("The metric may draw random numbers for its images, or choose among them.")
    order = torch.randperm(IMAGES["test"], generator=torch.Generator().manual_seed(3))
    second = measured(compute(metric, stage.reordered(order)))
    for label, value in first.values.items():
        again = second.values[label].value
        require(
            bool(np.isclose(value.value, again, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)),
            f"{label} is {value.value}, and {again} of the same images in another order.",
        )
    for label, array in first.arrays.items():
        if array.shape[:1] == (len(order),):
            follows = np.allclose(array[order.numpy()], second.arrays[label], rtol=ROUNDING, atol=ROUNDING)
            require(
                follows,
                f"The array {label} has a row for each test image, and does not follow their order. Two models could "
                "not be compared image by image.",
            )


def one_protocol_one_number(subject: Subject) -> None:
    """Options that give other numbers give another protocol, or the values another label."""
    first = subject.measurement
    if not first.protocol:
        raise DoesNotApply("It has no protocol: see the check protocol-is-said.")
    tried = 0
    for option, metric in _with_other_options(subject):
        second = compute(metric, stage.trained()).measurement
        if not isinstance(second, Measurement):
            continue
        tried += 1
        shared = first.values.keys() & second.values.keys()
        changed = sorted(label for label in shared if not same(first.values[label].value, second.values[label].value))
        require(
            not changed or second.protocol != first.protocol,
            f"With another {option}, {', '.join(changed)} is another number under the same protocol, "
            f"{first.protocol!r}: the two would stand side by side. Write the option into the protocol.",
        )
    if not tried:
        raise DoesNotApply("The metric has no option that could be set otherwise here.")


def _with_other_options(subject: Subject) -> Iterator[tuple[str, Metric]]:
    """The metric with one option set otherwise, and which; unless it cannot be, or would take long."""
    resolved = subject.resolved
    incidental: frozenset[str] = getattr(resolved.factory, "incidental_options", frozenset())
    for option, parameter in keyword_parameters(resolved.factory).items():
        other = _other(resolved.bound.arguments[option], parameter.annotation)
        if option in incidental or other is None:
            continue
        try:
            metric = registry.resolve("metrics", with_options(str(resolved), {option: format_value(other)})).make()
        except JembenchError:
            continue
        if not isinstance(metric, Costly) or metric.passes(IMAGES["test"]) <= AFFORDABLE:
            yield option, metric


def _other(value: Scalar, annotation: Any) -> Scalar:
    """Another value of an option; None if none is known."""
    if get_origin(annotation) is Literal:
        return next((choice for choice in get_args(annotation) if choice != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 2 * value if isinstance(value, float) else None


# --- without a trace --------------------------------------------------------------------------------------------------


def global_randomness(subject: Subject) -> None:
    """The global generators of random numbers are left alone."""
    changed = _changed(subject, GLOBAL)
    require(
        not changed,
        f"It draws from or seeds the global generator of {changed}. Draw from evaluation.generator(purpose).",
    )


def leaves_the_model(subject: Subject) -> None:
    """The model's mode, parameters, buffers and gradients are left as they are."""
    changed = _changed(subject, MODEL)
    require(
        not changed,
        f"Afterwards the model's {changed} are not what they were. jembench.plugin has mode and "
        "frozen, which put them back; torch.autograd.grad towards x leaves no gradients.",
    )


def leaves_the_sampler(subject: Subject) -> None:
    """The sampler's state is left as it is."""
    require(
        not _changed(subject, SAMPLER),
        "Afterwards the sampler is another one. init and finish are for training: use start, kept and "
        "jembench.plugin.chain.run, or evaluation.samples.",
    )


def leaves_what_is_shared(subject: Subject) -> None:
    """The images, logits, energies and samples that all metrics see are left as they are."""
    changed = _changed(subject, SHARED)
    require(not changed, f"It changes the {changed} in place, which all other metrics see as well. Work on a copy.")


def _changed(subject: Subject, names: tuple[str, ...]) -> str:
    measured(subject.run)
    return " and ".join(name for name in subject.run.disturbed if name in names)


PROMISES = promises(
    same_twice,
    order_of_images,
    one_protocol_one_number,
    global_randomness,
    leaves_the_model,
    leaves_the_sampler,
    leaves_what_is_shared,
)
"""What a metric promises of how it behaves."""
