"""The computation of a metric, and its outcome."""

import dataclasses
import math
import time
import traceback
import unicodedata
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from jembench import stopping
from jembench.errors import (
    DamagedError,
    NotApplicable,
    OutOfTime,
    StoreError,
    Unavailable,
    error_text,
)
from jembench.interfaces import Evaluation, Measurement, Value
from jembench.interfaces.metrics import Metric
from jembench.stopping import contained
from jembench.store.outcome import Outcome, check
from jembench.store.records import REMEDY

ROUNDING = 1e-9
"""The relative error up to which a value may lie outside of its interval, whose ends are computed
separately.
"""

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Per-example values by label."""


def measure(
    metric: Metric, evaluation: Evaluation, within: AbstractContextManager[None] | None = None
) -> tuple[Outcome, Arrays]:
    """Compute a metric; its failure becomes the outcome.

    Args:
        metric: the metric.
        evaluation: the evaluation of the model.
        within: the context of the computation; None: :func:`~jembench.stopping.contained`.

    Returns:
        the outcome, and the arrays of per-example values.

    Raises:
        StoreError: if the disk is full or the store cannot be written, which concerns every cell.
        OutOfTime: if the run's time limit passed before anything was measured.
        Stopped: if the metric failed after a signal.
    """
    start = time.perf_counter()
    arrays: Arrays = {}
    try:
        with within or contained("The metric"):
            outcome, arrays = _checked(metric.compute(evaluation))
    except (StoreError, OutOfTime):
        raise
    except Unavailable as error:
        stopping.check()
        outcome = not_applicable(error)
    except Exception as error:
        stopping.check()  # the error may be the consequence of a signal during an import
        outcome = failed(error)
    return dataclasses.replace(outcome, seconds=time.perf_counter() - start), arrays


def _checked(measurement: Measurement) -> tuple[Outcome, Arrays]:
    """Convert a measurement to an outcome and arrays that can be stored.

    Raises:
        TypeError, ValueError: if the conversion is not possible, which is a failure of the metric
            and not of the store.
    """
    if not measurement.values:
        raise ValueError("the metric measured nothing")
    arrays = {label: np.asarray(array) for label, array in measurement.arrays.items()}
    for label, array in arrays.items():
        _check_array(label, array)
    _check_labels(measurement.values)
    _check_labels(measurement.arrays)

    # plain numbers
    values, not_finite = {}, []
    for label, value in measurement.values.items():
        values[label] = plain = _plain_value(label, value)
        numbers = filter(None, (plain.value, plain.low, plain.high))
        if all(map(math.isfinite, numbers)):
            _check_interval(label, plain)
        else:
            not_finite.append(label)

    # an outcome that can be read back
    outcome = Outcome(
        status="ok", protocol=measurement.protocol, values=values, details=measurement.details
    )
    try:
        check(outcome)
    except DamagedError as error:
        raise ValueError(str(error).removesuffix(f" {REMEDY}")) from error
    if not_finite:
        reason = f"{', '.join(not_finite)} is not a finite number"
        outcome = dataclasses.replace(outcome, status="failed", reason=reason)
    return outcome, arrays


def _plain_value(label: str, value: Value) -> Value:
    """Return a value with plain numbers."""
    if not isinstance(_plain(value.n), Integral) or isinstance(value.n, bool):
        raise TypeError(f"{label} has n = {value.n!r}, which is no whole number")
    low, high = (end if end is None else _number(end, label) for end in (value.low, value.high))
    return value._replace(value=_number(value.value, label), low=low, high=high, n=int(value.n))


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy or PyTorch as a number, other values unchanged."""
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        return value.item()
    return value


def _number(value: Any, label: str) -> float:
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise TypeError(f"{label} has {value!r:.100} in the place of a real number")
    return float(plain)


def _check_interval(label: str, value: Value) -> None:
    """Check that an interval holds its value, up to rounding."""
    least = -math.inf if value.low is None else value.low
    most = math.inf if value.high is None else value.high
    rounding = ROUNDING * abs(value.value)
    if not least - rounding <= value.value <= most + rounding:
        raise ValueError(
            f"{label} is {value.value:g}, outside of its interval from {value.low} to {value.high}"
        )


def _check_labels(labels: Mapping[str, Any]) -> None:
    """Check that labels are different texts of one line."""
    if not isinstance(labels, Mapping):
        raise TypeError(
            f"its values or arrays are a {type(labels).__name__}, and must be a mapping from labels"
        )
    for label in labels:
        if not isinstance(label, str) or not label.strip() or not label.isprintable():
            raise ValueError(f"the label {label!r:.100} is no line of printable text")
    forms = Counter(" ".join(unicodedata.normalize("NFC", label).split()) for label in labels)
    twice = [form for form, count in forms.items() if count > 1]
    if twice:
        raise ValueError(f"two labels read {twice[0]!r}")


def _check_array(label: object, array: np.ndarray[Any, Any]) -> None:
    """Check that an array holds real, finite numbers."""
    if array.dtype.hasobject:
        raise TypeError(f"the array {label} holds objects, not numbers")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"the array {label} holds {array.dtype}, not real numbers")
    strange = int(np.count_nonzero(~np.isfinite(array)))
    if strange:
        raise ValueError(f"the array {label} holds {strange} numbers that are NaN or infinite")


def not_applicable(reason: Unavailable) -> Outcome:
    """Return the outcome of a cell that cannot be computed.

    The outcome is settled if the reason is permanent, and not if something is missing.
    """
    details = {}
    if isinstance(reason, NotApplicable):
        details["settled"] = True
    return Outcome(status="na", reason=str(reason), details=details)


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a cell that failed with an error."""
    lines = "".join(traceback.format_exception(error))
    return Outcome(status="failed", reason=error_text(error), traceback=lines)
