import math
import re

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
        protocol="p",
        values={"it": Value(1.0, 0.5, 2.0, 9, "%", "lower")},
        arrays={"a": np.ones(3)},
        details={"k": [1]},
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
    "wild",
    [
        value(math.nan),
        value(math.inf),
        value(1.0, -math.inf, 2.0),
        value(1.0, 0.0, np.float32("nan")),
    ],
)
def test_a_number_that_is_not_finite_is_a_failure(wild):
    outcome, _ = measure(Returns(wild), None)
    assert (outcome.status, outcome.reason) == ("failed", "it is not a finite number")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ZeroDivisionError("its own bug"), "ZeroDivisionError: its own bug"),
        (Measurement(protocol="", values={}), "ValueError: the metric measured nothing"),
        (
            Measurement(protocol="", values={"it": 1.0}),
            "AttributeError: 'float' object has no attribute",
        ),
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


ARRAYS = {
    "complex": (np.ones(2, complex), "TypeError: the array a holds complex128, not real numbers"),
    "texts": (np.array(["1", "2"]), "TypeError: the array a holds <U1, not real numbers"),
    "times": (np.ones(2, "M8[s]"), "TypeError: the array a holds datetime64"),
    "a missing number": (
        np.array([1, np.nan]),
        "ValueError: the array a holds 1 numbers that are NaN or infinite",
    ),
    "infinite numbers": (
        np.array([[np.inf], [-np.inf]]),
        "ValueError: the array a holds 2 numbers",
    ),
}


@pytest.mark.parametrize(("array", "reason"), ARRAYS.values(), ids=ARRAYS)
def test_an_array_of_other_things_than_finite_numbers_is_a_failure(array, reason):
    outcome, arrays = measure(
        Returns(Measurement(protocol="p", values=value(1.0).values, arrays={"a": array})), None
    )
    assert (outcome.status, outcome.values, arrays) == ("failed", {}, {})
    assert outcome.reason.startswith(reason)


WRONG = [
    (value("0.5"), "TypeError: it has '0.5' in the place of a real number"),
    (value(True), "TypeError: it has True in the place"),
    (value(1 + 0j), r"TypeError: it has \(1\+0j\) in the place"),
    (value(np.complex64(1)), "TypeError: it has .* in the place"),
    (value(np.bool_(True)), "TypeError: it has .*True.* in the place"),
    (value(np.ones(1)), r"TypeError: it has array\(\[1.\]\) in the place"),
    (value(torch.ones(1)), r"TypeError: it has tensor\(\[1.\]\) in the place"),
    (value(None), "TypeError: it has None in the place"),
    (value(1.0, "0", 2.0), "TypeError: it has '0' in the place"),
    (value(1.0, n=2.5), "TypeError: it has n = 2.5, which is no whole number"),
    (value(1.0, n=True), "TypeError: it has n = True"),
    (value(1.0, n=-1), "ValueError: .*n >= 0"),
    (value(1.0, 2.0, 3.0), "ValueError: it is 1, outside of its interval from 2.0 to 3.0"),
    (value(1.0, 0.0, 0.5), "ValueError: it is 1, outside of its interval"),
    (value(1.0, 2.0, 0.0), "ValueError: it is 1, outside of its interval from 2.0 to 0.0"),
    (value(1.0, None, 0.0), "ValueError: it is 1, outside of its interval from None to 0.0"),
]


@pytest.mark.parametrize(
    ("wrong", "reason"), WRONG, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_value_of_another_type_or_outside_of_its_interval_is_a_failure(wrong, reason):
    outcome, _ = measure(Returns(wrong), None)
    assert (outcome.status, outcome.values) == ("failed", {})
    assert re.match(reason, outcome.reason)


def test_a_value_may_lie_outside_of_its_interval_by_rounding():
    outcome, _ = measure(Returns(value(100 * (1 / 3), math.nextafter(100 / 3, 99), 50.0)), None)
    assert outcome.status == "ok"


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1, "1"], "the label 1 is no line of printable text"),
        (["\x1b[31mred"], "is no line of printable text"),
        (["two\nlines"], "is no line of printable text"),
        (["tab\t"], "is no line of printable text"),
        (["\u202eback"], "is no line of printable text"),
        ([""], "is no line of printable text"),
        (["é", "e\u0301"], "two labels read 'é'"),
        (["a b", "a  b"], "two labels read 'a b'"),
    ],
)
def test_labels_that_a_table_cannot_tell_apart_or_print_are_a_failure(labels, reason):
    values = dict.fromkeys(labels, Value(1.0, None, None, 1))
    outcome, _ = measure(Returns(Measurement(protocol="p", values=values)), None)
    assert outcome.status == "failed"
    assert reason in outcome.reason
    arrays = dict.fromkeys(labels, np.ones(2))
    outcome, found = measure(
        Returns(Measurement(protocol="p", values=value(1.0).values, arrays=arrays)), None
    )
    assert (outcome.status, found) == ("failed", {})


def test_what_is_missing_is_not_applicable_and_says_how_to_get_it():
    outcome, _ = measure(Returns(Unavailable("The weights are missing: fetch them.")), None)
    assert (outcome.status, outcome.reason, outcome.details) == (
        "na",
        "The weights are missing: fetch them.",
        {},
    )


def test_what_can_never_be_is_settled():
    outcome, _ = measure(Returns(NotApplicable("There are too few images.")), None)
    assert (outcome.status, outcome.reason, outcome.details) == (
        "na",
        "There are too few images.",
        {"settled": True},
    )


@pytest.mark.parametrize("error", [StoreError("The disk is full."), KeyboardInterrupt()])
def test_what_concerns_every_cell_is_no_outcome(error):
    with pytest.raises(type(error)):
        measure(Returns(error), None)
