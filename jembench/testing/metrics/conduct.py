"""Promises of a metric's behaviour.

A metric is reproducible, distinguishes options by protocols, and has no side effects.
"""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from jembench.catalog import registry
from jembench.catalog.options import options_of
from jembench.catalog.spec import Scalar
from jembench.errors import JembenchError
from jembench.interfaces import Measurement
from jembench.interfaces.metrics import Metric
from jembench.testing import stage
from jembench.testing.checks import only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.metrics.subject import MetricSubject, compute


@promise("metrics")
def same_twice(subject: MetricSubject) -> None:
    """Two evaluations of one model give the same measurement, bit for bit.

    Draw random numbers only from evaluation.services.generator(purpose), and depend neither on the
    time nor on the order of a set.
    """
    first, second = subject.run.measurement, compute(subject.build(), stage.trained()).measurement
    parts = ("protocol", "values", "arrays", "details")
    different = [part for part in parts if not same(getattr(first, part), getattr(second, part))]
    require(not different, f"Measured again, {' and '.join(different)} are different.")


@promise("metrics")
def one_protocol_one_number(subject: MetricSubject) -> None:
    """Options that change a value also change the protocol, or the label of the value.

    Add the option to the protocol: otherwise the two values would be compared.
    """
    first, tried = subject.run.measurement, 0
    for option, metric in _with_other_options(subject):
        try:
            second = compute(metric, stage.trained()).measurement
        except JembenchError:
            continue
        tried += 1
        if not isinstance(second, Measurement) or second.protocol != first.protocol:
            continue
        changed = []
        for label in sorted(first.values.keys() & second.values.keys()):
            if not same(first.values[label].value, second.values[label].value):
                changed.append(label)
        require(
            not changed,
            f"With another {option}, {', '.join(changed)} has another value under the protocol "
            f"{first.protocol!r}.",
        )
    only_if(tried > 0, "The metric has no option that the check can change.")


def _with_other_options(subject: MetricSubject) -> Iterator[tuple[str, Metric]]:
    """Yield each option that can be changed at a moderate cost.

    The metric beside it has another value of the option.
    """
    resolved = subject.resolved
    for name, option in options_of(resolved.factory).items():
        value = _choose_other(resolved.arguments[name], option.annotation)
        if name in resolved.incidental or value is None:
            continue
        try:
            spec = resolved.spec.with_(**{name: value})
            metric = registry.resolve("metrics", spec).make()
        except JembenchError:
            continue
        if getattr(metric, "parts", 1) == 1:
            yield name, metric


def _choose_other(value: Scalar, annotation: Any) -> Scalar:
    """Return another value of an option; None if the check knows none."""
    if get_origin(annotation) is Literal:
        return next((choice for choice in get_args(annotation) if choice != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 2 * value
    return None


@promise("metrics")
def nothing_changed(subject: MetricSubject) -> None:
    """The metric does not change the model, the sampler, shared data or the global generators.

    jembench.parts.execution has mode and frozen, which restore a model; torch.autograd.grad with
    respect to x leaves no gradients. init and finish of a sampler are for training: use
    evaluation.samples, or jembench.parts.chain.run. Draw from
    evaluation.services.generator(purpose), and change only copies of images, logits, energies and
    samples.
    """
    changed = subject.run.changed
    require(not changed, f"It changes {' and '.join(changed)}.")
