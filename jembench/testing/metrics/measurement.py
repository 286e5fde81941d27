"""Promises of a metric's measurement: its requirements, protocol, values, details and arrays.

Legend: N images, R resamples.
"""

import json
import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, TypeGuard, get_args

import numpy as np

from jembench.interfaces import Measurement, Need, Quantity, Value
from jembench.interfaces.metrics import Resampled
from jembench.interfaces.models import Capability
from jembench.store.outcome import encode
from jembench.testing import stage
from jembench.testing.checks import only_if, promise, require
from jembench.testing.metrics.subject import MetricSubject, compute

CLOSE = 1e-6
"""The largest relative error of a sum in another order."""


@promise("metrics")
def needs_are_capabilities(subject: MetricSubject) -> None:
    """The metric has a name, and requires and reads only needs and quantities that exist."""
    metric = subject.build()
    named = isinstance(metric.name, str) and bool(metric.name.strip())
    require(named, f"The metric's name is {metric.name!r}; it must say what is measured.")
    for part, names in {"requires": get_args(Need), "reads": get_args(Quantity)}.items():
        stated: Any = getattr(metric, part, frozenset())
        right = isinstance(stated, frozenset) and stated <= set(names)
        listed = ", ".join(names)
        require(right, f"{part} is {stated!r}; it must be a frozenset of some of {listed}.")


@promise("metrics")
def computes(subject: MetricSubject) -> None:
    """The metric measures a model with all capabilities, under a protocol.

    Return a Measurement with at least one value, and a protocol that names the metric, the data and
    everything else that the value depends on. Raise Unavailable, with the remedy, if the metric
    cannot be measured.
    """
    measurement = subject.compute().measurement
    require(isinstance(measurement, Measurement), f"It returns a {type(measurement).__name__}.")
    require(len(measurement.values) > 0, "It returns no values.")
    protocol = measurement.protocol
    named = isinstance(protocol, str) and bool(protocol.strip())
    require(named, f"The protocol is {protocol!r}.")


@promise("metrics")
def needs_are_all(subject: MetricSubject) -> None:
    """The metric can be measured on a model that only has the capabilities that it requires.

    Name every need in requires, or leave out values whose needs are missing.
    """
    _ = subject.run
    metric = subject.build()
    compute(metric, stage.with_capabilities(metric.requires & set(get_args(Capability))))


@promise("metrics")
def values_are_numbers(subject: MetricSubject) -> None:
    """Every value is a finite number with its unit, and with the number of observations.

    n is the number of images, samples or timings of a value. Leave out values that cannot be
    computed, or raise Unavailable; a model whose output is NaN has diverged
    (jembench.plugin.Diverged).
    """
    for label, value in _values(subject):
        require(_is_finite(value.value), f"{label} is {value.value!r}, not a finite number.")
        n: Any = value.n  # numpy's whole numbers count too
        require(isinstance(n, Integral) and int(n) > 0, f"{label} has n = {n!r}.")
        require(
            isinstance(value.unit, str), f"{label} has the unit {value.unit!r}; it must be a text."
        )
        right = value.better in ("higher", "lower", "")
        require(
            right, f'{label} is better when {value.better!r}; it must be "higher", "lower" or "".'
        )


@promise("metrics")
def intervals_hold_their_values(subject: MetricSubject) -> None:
    """Intervals have low <= value <= high and a width, or both ends are None.

    Use None for an unknown interval. For a share of 0 or 1, Wilson's interval has a width
    (jembench.plugin.share).
    """
    for label, (value, low, high, *_) in _values(subject):
        if low is None and high is None:
            continue
        right = _is_finite(low) and _is_finite(high) and low <= value <= high and low < high
        require(right, f"{label} is {value}, with an interval from {low} to {high}.")


def _is_finite(number: Any) -> TypeGuard[float]:
    return isinstance(number, Real) and math.isfinite(number)


def _values(subject: MetricSubject) -> Iterator[tuple[str, Value]]:
    for label, value in subject.run.measurement.values.items():
        require(
            isinstance(label, str) and bool(label),
            f"A value's label is {label!r}; it must be a text.",
        )
        require(
            isinstance(value, Value),
            f"{label} is a {type(value).__name__}, not a jembench.interfaces.Value.",
        )
        yield label, value


@promise("metrics")
def details_are_json(subject: MetricSubject) -> None:
    """The details are the same after writing them to a file and reading it.

    Use plain numbers, texts and lists of them: float(...), .tolist().
    """
    details = encode(subject.run.measurement.details)
    again = json.loads(json.dumps(details, allow_nan=False))
    require(again == details, "The details are different after encoding and decoding as JSON.")


@promise("metrics")
def arrays_are_numbers(subject: MetricSubject) -> None:
    """Arrays are plain numpy arrays of finite numbers.

    .cpu().numpy() makes an array of booleans, whole numbers or floats. Give a mask for missing
    numbers.
    """
    for label, array in subject.run.measurement.arrays.items():
        right = isinstance(array, np.ndarray) and array.dtype.kind in "biuf"
        kind = f"{type(array).__name__} of {getattr(array, 'dtype', 'no type')}"
        require(right, f"The array {label} is a {kind}.")
        bad = int((~np.isfinite(array)).sum())
        require(bad == 0, f"The array {label} holds {bad} numbers that are NaN or infinite.")


@promise("metrics")
def resamplings_give_the_values(subject: MetricSubject) -> None:
    """The statistics of resamplings, computed from the arrays on all images, are the values.

    Compute the value by the same formula. A statistic returns (R,) for index matrices (R, N).
    """
    metric, measurement = subject.build(), subject.run.measurement
    only_if(
        isinstance(metric, Resampled) and bool(measurement.arrays), "The metric keeps no arrays."
    )
    for label, resampling in metric.resamplings(measurement.arrays).items():
        labels = ", ".join(measurement.values)
        require(
            label in measurement.values,
            f"resamplings names {label!r}, and the values are {labels}.",
        )
        unchanged = np.stack([np.arange(max(resampling.sizes))] * 2)
        again = resampling.statistic(*(unchanged[:, :size] for size in resampling.sizes))
        right = isinstance(again, np.ndarray) and again.shape == (2,)
        require(
            right, f"The statistic of {label} gives the shape {np.shape(again)} for two resamples."
        )
        value, (low, high) = measurement.values[label].value, resampling.within
        close = bool(np.allclose(again, value, rtol=CLOSE, atol=CLOSE))
        require(
            close,
            f"{label} is {value}, and from the arrays of the same images its statistic is "
            f"{again[0]}.",
        )
        require(
            low <= value <= high,
            f"{label} is {value}, outside of the range that its resampling gives.",
        )
