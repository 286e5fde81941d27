"""The computation of a metric, and its outcome."""

import dataclasses
import math
import time
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from jembench import stopping
from jembench.errors import DamagedError, NotApplicable, OutOfTime, StoreError, Unavailable, error_text
from jembench.interfaces import Evaluation, Measurement, Value
from jembench.interfaces.metrics import Metric
from jembench.stopping import contained
from jembench.store.outcome import Outcome, check
from jembench.store.records import REMEDY

Arrays = Mapping[str, np.ndarray[Any, Any]]
"""Per-example values by label."""


def measure(
    metric: Metric, evaluation: Evaluation, within: AbstractContextManager[None] | None = None
) -> tuple[Outcome, Arrays]:
    """Compute one metric. A failure is its outcome, and stops no other cell.

    Args:
        metric: the metric.
        evaluation: of the model.
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
    """Convert a measurement to an outcome of plain numbers and arrays, which the store can write.

    Raises:
        TypeError, ValueError: if that is not possible, which is a failure of the metric and not of the store.
    """
    if not measurement.values:
        raise ValueError("the metric measured nothing")
    arrays = {label: np.asarray(array) for label, array in measurement.arrays.items()}
    for label, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"the array {label} holds objects, not numbers")
    values, not_finite = {}, []
    for label, value in measurement.values.items():
        low, high = (None if end is None else float(end) for end in (value.low, value.high))
        values[label] = Value(float(value.value), low, high, int(value.n), value.unit, value.better)
        if not all(math.isfinite(number) for number in (values[label].value, low, high) if number is not None):
            not_finite.append(label)
    outcome = Outcome(status="ok", protocol=measurement.protocol, values=values, details=measurement.details)
    try:
        check(outcome)
    except DamagedError as error:
        raise ValueError(str(error).removesuffix(f" {REMEDY}")) from error
    if not_finite:
        outcome = dataclasses.replace(
            outcome, status="failed", reason=f"{', '.join(not_finite)} is not a finite number"
        )
    return outcome, arrays


def not_applicable(reason: Unavailable) -> Outcome:
    """Return the outcome of a cell that cannot be computed, permanently or because something is missing."""
    settled = {"settled": True} if isinstance(reason, NotApplicable) else {}
    return Outcome(status="na", reason=str(reason), details=settled)


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a cell that failed by an error."""
    return Outcome(status="failed", reason=error_text(error), traceback="".join(traceback.format_exception(error)))
