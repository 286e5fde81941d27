import math

import numpy as np
import pytest
import torch

from jembench.errors import NotApplicable, StoreError, Unavailable
from jembench.interfaces import Measurement, Value
from jembench.running.measure import measure


class Returns:
    """A metric that gives the measurement, or raises it."""

    name = "returns"
    requires = frozenset()

    def __init__(self, result):
        self.result = result

    def compute(self, evaluation):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def value(number, low=None, high=None, n=1):
    return Measurement(protocol="p", values={"it": Value(number, low, high, n)})


def test_a_measurement_becomes_an_outcome():
    measurement = Measurement(
        protocol="p", values={"it": Value(1.0, 0.5, 2.0, 9, "%", "lower")}, arrays={"a": np.ones(3)}, details={"k": [1]}
    )
    outcome, arrays = measure(Returns(measurement), None)
    assert (outcome.status, outcome.protocol, outcome.details) == ("ok", "p", {"k": [1]})
    assert outcome.values == measurement.values
    assert (outcome.reason, outcome.traceback) == ("", "")
    assert outcome.seconds >= 0
    assert np.array_equal(arrays["a"], np.ones(3))


def test_numbers_of_any_library_become_plain_ones():
    mixed = value(np.float32(0.5), torch.tensor(0.25), np.float64(1), np.int64(7))
    outcome, _ = measure(Returns(mixed), None)
    (found,) = outcome.values.values()
    assert found == Value(0.5, 0.25, 1.0, 7)
    assert [type(part) for part in found[:4]] == [float, float, float, int]


@pytest.mark.parametrize(
    "wild", [value(math.nan), value(math.inf), value(1.0, -math.inf, 2.0), value(1.0, 0.0, np.float32("nan"))]
)
def test_a_number_that_is_not_finite_is_a_failure(wild):
    outcome, _ = measure(Returns(wild), None)
    assert (outcome.status, outcome.reason) == ("failed", "it is not a finite number")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ZeroDivisionError("its own bug"), "ZeroDivisionError: its own bug"),
        (Measurement(protocol="", values={}), "ValueError: the metric measured nothing"),
        (Measurement(protocol="", values={"it": 1.0}), "AttributeError: 'float' object has no attribute"),
        (None, "AttributeError: 'NoneType' object has no attribute"),
        (
            Measurement(protocol="", values=value(1.0).values, details={"it": object()}),
            "TypeError: Object of type object is not JSON serializable",
        ),
        (
            Measurement(protocol="", values=value(1.0).values, arrays={"it": np.array([object()])}),
            "TypeError: the array it holds objects, not numbers",
        ),
    ],
)
def test_what_goes_wrong_in_a_metric_is_a_failure_with_its_traceback(result, reason):
    outcome, arrays = measure(Returns(result), None)
    assert outcome.status == "failed"
    assert outcome.reason.startswith(reason)
    assert outcome.traceback.startswith("Traceback")
    assert outcome.reason in outcome.traceback
    assert (outcome.values, arrays) == ({}, {})


def test_what_is_missing_is_not_applicable_and_says_how_to_get_it():
    outcome, _ = measure(Returns(Unavailable("The weights are missing: fetch them.")), None)
    assert (outcome.status, outcome.reason, outcome.details) == ("na", "The weights are missing: fetch them.", {})


def test_what_can_never_be_is_settled():
    outcome, _ = measure(Returns(NotApplicable("There are too few images.")), None)
    assert (outcome.status, outcome.reason, outcome.details) == ("na", "There are too few images.", {"settled": True})


@pytest.mark.parametrize("error", [StoreError("The disk is full."), KeyboardInterrupt()])
def test_what_concerns_every_cell_is_no_outcome(error):
    with pytest.raises(type(error)):
        measure(Returns(error), None)
