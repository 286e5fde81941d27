"""Checks of what a metric says: of itself, and of a model.

Legend: N images, R resamples.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from jembench.errors import Unavailable
from jembench.interfaces import Capability, Costly, Measurement, Quantity, Resampled, Value
from jembench.store.outcome import encode
from jembench.testing import stage
from jembench.testing.asking import promises, require
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.metric_checks.subject import Subject, compute, measured

CLOSE = 1e-6
"""Relative: as close as sums of the same numbers in another order are."""


# --- of itself --------------------------------------------------------------------------------------------------------


def all_parts(subject: Subject) -> None:
    """It has every part of jembench.interfaces.Metric: a name, what it requires, and a computation."""
    metric = subject.resolved.make()
    missing = [part for part in ("name", "requires", "compute") if not hasattr(metric, part)]
    require(not missing, f"The metric has no {', '.join(missing)}: see jembench.interfaces.Metric.")


def needs_are_capabilities(subject: Subject) -> None:
    """It has a name, and requires and reads what there is."""
    metric = subject.make()
    named = isinstance(metric.name, str) and bool(metric.name.strip())
    require(named, f"The metric's name is {metric.name!r}; it must say what is measured.")
    told = {"requires": (metric.requires, get_args(Capability))}
    if hasattr(metric, "reads"):
        told["reads"] = (metric.reads, get_args(Quantity))
    for part, (named_ones, known) in told.items():
        require(
            isinstance(named_ones, frozenset) and named_ones <= set(known),
            f"{part} is {named_ones!r}; it must be a frozenset of some of {', '.join(known)}.",
        )


def passes_are_counted(subject: Subject) -> None:
    """A metric that says what it costs says a whole number of network passes."""
    metric = subject.make()
    if not isinstance(metric, Costly):
        raise DoesNotApply("The metric does not say what it costs.")
    for images in (1, 1000):
        count = metric.passes(images)
        good = isinstance(count, int) and not isinstance(count, bool) and count >= 1
        require(good, f"passes({images}) is {count!r}; it must be a whole number of at least 1. Round it.")


# --- of a model -------------------------------------------------------------------------------------------------------


def computes(subject: Subject) -> None:
    """It measures something of a model that can do everything."""
    metric, run = subject.make(), subject.run
    if isinstance(run.error, Unavailable):
        raise DoesNotApply(str(run.error))
    if run.error is not None:
        raise CheckFailed(_raised(run.error)) from run.error
    found = run.measurement
    require(
        isinstance(found, Measurement) and len(found.values) > 0,
        f"{metric.name} gives {'no values' if isinstance(found, Measurement) else type(found).__name__}; it must give "
        "a Measurement with a value at least. What cannot be measured is to raise Unavailable, with the remedy.",
    )


def needs_are_all(subject: Subject) -> None:
    """A model that can do what the metric requires, and nothing else, is enough for it."""
    measured(subject.run)
    metric = subject.make()
    run = compute(metric, stage.able(metric.requires & set(get_args(Capability))))
    if isinstance(run.error, Unavailable):
        raise DoesNotApply(str(run.error))
    if run.error is not None:
        needs = " and ".join(sorted(metric.requires)) or "nothing"
        raise CheckFailed(
            f"It requires {needs}, and of a model that can do this alone it measures nothing. {_raised(run.error)} "
            "Name all that it needs in requires, or leave out what cannot be had."
        ) from run.error


def _raised(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})."


def protocol_is_said(subject: Subject) -> None:
    """The protocol is a text."""
    protocol = subject.measurement.protocol
    require(
        isinstance(protocol, str) and bool(protocol.strip()),
        f"The protocol is {protocol!r}; it must name the metric, the data and all that decides what the number means.",
    )


def values_are_numbers(subject: Subject) -> None:
    """Every value is a finite number with its unit, of so many observations."""
    for label, value in _values(subject):
        require(
            _is_finite(value.value),
            f"{label} is {value.value!r}, not a finite number. What cannot be told is to be left out or to raise "
            "Unavailable; a model that gives NaN has diverged (jembench.plugin.Diverged).",
        )
        require(
            _is_count(value.n),
            f"{label} is of n = {value.n!r}; it must say of how many images, samples or timings it is.",
        )
        require(
            isinstance(value.unit, str) and value.better in ("higher", "lower", ""),
            f"{label} has the unit {value.unit!r} and is better when {value.better!r}; they must be a text, and one of "
            '"higher", "lower" and "".',
        )


def intervals_hold_their_values(subject: Subject) -> None:
    """low <= value <= high, or both are None: an interval that is not known is not one of no width."""
    for label, value in _values(subject):
        if value.low is None and value.high is None:
            continue
        low, high = value.low, value.high
        require(
            _is_finite(low) and _is_finite(high),
            f"The interval of {label} is from {low} to {high}. Both ends are known, or both are None.",
        )
        assert low is not None
        assert high is not None
        require(low <= value.value <= high, f"{label} is {value.value}, outside of its interval {low} to {high}.")
        require(
            low < high,
            f"The interval of {label} is from {low} to {high}, as if the value were certain. One that is not known is "
            "None; of a share that is 0 or 1, Wilson's has a width (jembench.plugin.wilson).",
        )


def _is_finite(number: Any) -> bool:
    """Whether it is a number; numpy's and Python's own are."""
    return isinstance(number, Real) and math.isfinite(number)


def _is_count(number: Any) -> bool:
    return isinstance(number, Integral) and int(number) > 0


def _values(subject: Subject) -> Iterator[tuple[str, Value]]:
    for label, value in subject.measurement.values.items():
        require(isinstance(label, str) and bool(label), f"A value's label is {label!r}; it must be a text.")
        require(isinstance(value, Value), f"{label} is a {type(value).__name__}, not a jembench.interfaces.Value.")
        yield label, value


def details_are_json(subject: Subject) -> None:
    """The details come back from a file as they were written."""
    details = subject.measurement.details
    try:
        again = json.loads(json.dumps(encode(details), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckFailed(
            f"The details cannot be written as JSON: {error}. Make plain numbers, texts and lists of them: "
            "float(...), .tolist()."
        ) from error
    require(again == encode(details), "The details do not come back from JSON as they were written.")


def arrays_are_numbers(subject: Subject) -> None:
    """Arrays are plain numpy arrays of finite numbers."""
    for label, array in subject.measurement.arrays.items():
        require(
            isinstance(array, np.ndarray) and array.dtype.kind in "biuf",
            f"The array {label} is a {type(array).__name__} of {getattr(array, 'dtype', 'no type')}; it must be a "
            "numpy array of booleans, whole numbers or floats: .cpu().numpy() makes one.",
        )
        wild = int((~np.isfinite(array)).sum())
        require(
            wild == 0,
            f"The array {label} holds {wild} numbers that are NaN or infinite. What is not there needs a mask beside "
            "it, or is left out; where such numbers have a meaning, declare it.",
        )


def resamplings_give_the_values(subject: Subject) -> None:
    """From the arrays alone, resamplings give the very values, of the images as they are."""
    metric, measurement = subject.make(), subject.measurement
    if not isinstance(metric, Resampled):
        raise DoesNotApply("The metric has no resamplings.")
    for label, resampling in metric.resamplings(measurement.arrays).items():
        require(
            label in measurement.values,
            f"resamplings names {label!r}, and the values are {', '.join(measurement.values)}.",
        )
        as_they_are = np.stack([np.arange(max(resampling.sizes))] * 2)
        found = resampling.statistic(*(as_they_are[:, :size] for size in resampling.sizes))
        require(
            isinstance(found, np.ndarray) and found.shape == (2,),
            f"The statistic of {label} gives {np.shape(found)} for two resamples; for (R, N) it must give (R,).",
        )
        value = measurement.values[label].value
        require(
            bool(np.allclose(found, value, rtol=CLOSE, atol=CLOSE)),
            f"{label} is {value}, and from the arrays of the same images its statistic is {found[0]}. Compute the "
            "value by the same formula.",
        )
        low, high = resampling.within
        require(low <= value <= high, f"{label} is {value}, outside of the range that its resampling gives.")


PROMISES = promises(
    all_parts,
    needs_are_capabilities,
    passes_are_counted,
    computes,
    needs_are_all,
    protocol_is_said,
    values_are_numbers,
    intervals_hold_their_values,
    details_are_json,
    arrays_are_numbers,
    resamplings_give_the_values,
)
"""What a metric promises of what it says."""
