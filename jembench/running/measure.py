"""One cell: computes a metric and returns its outcome."""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from jembench import stopping
from jembench.errors import DamagedError, NotApplicable, OutOfTime, StoreError, Unavailable, error_text
from jembench.interfaces import Evaluation, Measurement, Value
from jembench.interfaces.metrics import Metric
from jembench.stopping import contained
from jembench.store.outcome import Outcome, check
from jembench.store.records import REMEDY


class Measured(NamedTuple):
    """A cell's outcome, and the per-example values behind it."""

    outcome: Outcome
    arrays: Mapping[str, np.ndarray[Any, Any]]


def measure(metric: Metric, evaluation: Evaluation, within: AbstractContextManager[None] | None = None) -> Measured:
    """Compute one metric. What goes wrong is an outcome: a cell's failure stops no other cell.

    Args:
        metric: to be computed.
        evaluation: of the model.
        within: the context of the computation; None: :func:`~jembench.stopping.contained`.

    Raises:
        StoreError: if the disk is full or the store cannot be written, which concerns every cell.
        OutOfTime: if the run's time was over before anything was measured.
        Stopped: if it failed after a signal.
    """
    start = time.perf_counter()
    arrays: Mapping[str, np.ndarray[Any, Any]] = {}
    try:
        with within or contained("The metric"):
            outcome, arrays = _checked(metric.compute(evaluation))
    except (StoreError, OutOfTime):
        raise
    except Unavailable as error:
        stopping.check()
        outcome = not_applicable(error)
    except Exception as error:
        stopping.check()  # the error may be what a signal has left of an import
        outcome = failed(error)
    return Measured(dataclasses.replace(outcome, seconds=time.perf_counter() - start), arrays)


def _checked(measurement: Measurement) -> Measured:
    """Return the outcome of a measurement in plain numbers, as the store can write it.

    Raises:
        TypeError, ValueError: if it cannot be: this is the metric's failure, and must not become the store's.
    """
    if not measurement.values:
        raise ValueError("the metric measured nothing")
    arrays = {label: np.asarray(array) for label, array in measurement.arrays.items()}
    for label, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"the array {label} holds objects, not numbers")
    values, wild = {}, []
    for label, value in measurement.values.items():
        low, high = (None if end is None else float(end) for end in (value.low, value.high))
        values[label] = Value(float(value.value), low, high, int(value.n), value.unit, value.better)
        if not all(math.isfinite(number) for number in (values[label].value, low, high) if number is not None):
            wild.append(label)
    outcome = Outcome(status="ok", protocol=measurement.protocol, values=values, details=measurement.details)
    try:
        check(outcome)
    except DamagedError as error:
        raise ValueError(str(error).removesuffix(f" {REMEDY}")) from error
    if wild:
        outcome = dataclasses.replace(outcome, status="failed", reason=f"{', '.join(wild)} is not a finite number")
    return Measured(outcome, arrays)


def not_applicable(reason: Unavailable) -> Outcome:
    """Return the outcome of a cell that cannot be computed: for good, or until what is missing is there."""
    settled = {"settled": True} if isinstance(reason, NotApplicable) else {}
    return Outcome(status="na", reason=str(reason), details=settled)


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a cell in which something went wrong."""
    return Outcome(status="failed", reason=error_text(error), traceback="".join(traceback.format_exception(error)))
