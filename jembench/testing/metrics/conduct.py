"""How a metric behaves: the same each time, and without side effects.

Legend: N images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch

from jembench.catalog import registry
from jembench.catalog.options import keyword_parameters
from jembench.catalog.spec import Scalar, format_value
from jembench.errors import JembenchError
from jembench.experiment.sweep import with_options
from jembench.interfaces import Costly, Measurement, Metric, Resampled
from jembench.testing import stage
from jembench.testing.checks import only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.exact import IMAGES
from jembench.testing.metrics.subject import MetricSubject, compute, measured

ROUNDING = 1e-4
"""How much the other images in a batch may change the outputs of a network, relative and absolute."""

AFFORDABLE = 5_000
"""The largest number of network passes for a measurement with other options."""


@promise("metrics")
def same_twice(subject: MetricSubject) -> None:
    """Two evaluations of one model give the same measurement, bit for bit.

    Draw random numbers from evaluation.services.generator(purpose) alone, and let nothing depend on the time or on the
    order of a set.
    """
    first, second = subject.measurement, measured(compute(subject.make(), stage.trained()))
    parts = ("protocol", "values", "arrays", "details")
    different = [part for part in parts if not same(getattr(first, part), getattr(second, part))]
    require(not different, f"Measured again, {' and '.join(different)} are different.")


@promise("metrics")
def order_of_images(subject: MetricSubject) -> None:
    """In whatever order the test images come, the values are the same, and per-image arrays follow them.

    Otherwise two models could not be compared image by image.
    """
    metric, first = subject.make(), subject.measurement
    independent = metric.requires == {"logits"} and isinstance(metric, Resampled) and not isinstance(metric, Costly)
    only_if(independent, "The metric may draw random numbers for its images, or choose among them.")
    order = torch.randperm(IMAGES["test"], generator=torch.Generator().manual_seed(3))
    second = measured(compute(metric, stage.reordered(order)))
    for label, value in first.values.items():
        again = second.values[label].value
        close = bool(np.isclose(value.value, again, rtol=ROUNDING, atol=ROUNDING, equal_nan=True))
        require(close, f"{label} is {value.value}, and {again} of the same images in another order.")
    for label, array in first.arrays.items():
        if array.shape[:1] == (len(order),):
            follows = np.allclose(array[order.numpy()], second.arrays[label], rtol=ROUNDING, atol=ROUNDING)
            require(follows, f"The array {label} has a row for each test image, and does not follow their order.")


@promise("metrics")
def one_protocol_one_number(subject: MetricSubject) -> None:
    """Options that give other numbers give another protocol, or the values another label.

    Write the option into the protocol: otherwise the two numbers would be compared.
    """
    first = subject.measurement
    only_if(bool(first.protocol), "It has no protocol: see the check protocol-is-said.")
    tried = 0
    for option, metric in _with_other_options(subject):
        second = compute(metric, stage.trained()).measurement
        if not isinstance(second, Measurement):
            continue
        tried += 1
        shared = first.values.keys() & second.values.keys()
        changed = sorted(label for label in shared if not same(first.values[label].value, second.values[label].value))
        found = f"With another {option}, {', '.join(changed)} is another number under the protocol {first.protocol!r}."
        require(not changed or second.protocol != first.protocol, found)
    only_if(tried > 0, "The metric has no option that could be set otherwise here.")


def _with_other_options(subject: MetricSubject) -> Iterator[tuple[str, Metric]]:
    """Each option that can be changed at a moderate cost, and the metric with another value of it."""
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


@promise("metrics")
def global_randomness(subject: MetricSubject) -> None:
    """The global generators of random numbers are left alone.

    Draw from evaluation.services.generator(purpose).
    """
    _require_unchanged(subject, "the global generator")


@promise("metrics")
def leaves_the_model(subject: MetricSubject) -> None:
    """The model's mode, parameters, buffers and gradients are left as they are.

    jembench.plugin has mode and frozen, which put them back; torch.autograd.grad towards x leaves no gradients.
    """
    _require_unchanged(subject, "the model's")


@promise("metrics")
def leaves_the_sampler(subject: MetricSubject) -> None:
    """The sampler's state is left as it is.

    init and finish are for training: use start, kept and jembench.plugin.chain.run, or evaluation.samples.
    """
    _require_unchanged(subject, "the sampler's")


@promise("metrics")
def leaves_what_is_shared(subject: MetricSubject) -> None:
    """The images, logits, energies and samples that all metrics see are left as they are.

    Work on a copy.
    """
    _require_unchanged(subject, "the shared")


def _require_unchanged(subject: MetricSubject, what: str) -> None:
    """Fail the check if the metric changes anything whose name begins like this."""
    measured(subject.run)
    changed = [name for name in subject.run.changed if name.startswith(what)]
    require(not changed, f"It changes {' and '.join(changed)}.")
