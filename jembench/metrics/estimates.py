"""Values of metrics as statistics of what was kept of each image: one formula gives value, interval and comparison.

Legend: N images, K classes, R resamples, n how many are the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from jembench.catalog.spec import Scalar
from jembench.interfaces import Evaluation, Measurement, Resampling, Value
from jembench.metrics.base import Estimate as Estimate
from jembench.metrics.base import Metric, bootstrap_rng, protocol_id, value_of
from jembench.metrics.base import mean as mean
from jembench.metrics.base import median as median
from jembench.metrics.base import share as share
from jembench.stats import Indices, multiplicities

Arrays = Mapping[str, NDArray[Any]]


def effective_classes(classes: NDArray[np.int64], num_classes: int) -> Estimate:
    """exp(H) of the shares of the classes (N,), 1 to K: as many classes of equal size are as diverse.

    The Hill number of order 1. Jost (2006), Oikos 113(2), 363-375.
    """
    return Estimate(
        Resampling(
            lambda indices: hill_number(multiplicities(classes[indices], num_classes)),
            (len(classes),),
            (1.0, float(num_classes)),
        )
    )


def hill_number(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """exp(H) of the shares of counts: (R, K) -> (R,)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    numbers: NDArray[np.float64] = np.exp(entr(shares).sum(axis=1))
    return numbers


def among_highest(estimate: Estimate, order: NDArray[np.int64], n: int) -> Estimate:
    """The same statistic of the n highest images of each resample.

    Args:
        estimate: of all N images.
        order: (N,) the images from the highest to the lowest.
        n: at most N.
    """
    highest, statistic = highest_of(order, n), estimate.resampling.statistic
    trials = min(n, estimate.resampling.trials)
    resampling = estimate.resampling._replace(statistic=lambda indices: statistic(highest(indices)), trials=trials)
    flags = None if estimate.flags is None else estimate.flags[order[:n]]
    return estimate._replace(resampling=resampling, n=n, flags=flags)


def highest_of(order: NDArray[np.int64], n: int) -> Callable[[Indices], Indices]:
    """Which n images are the highest of each resample: (R, N) -> (R, n), in no particular order."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return lambda indices: order[np.partition(rank[indices], n - 1, axis=1)[:, :n]]


def measurement(
    metric: Metric,
    evaluation: Evaluation,
    parts: Mapping[str, Scalar],
    estimates: Mapping[str, Estimate],
    arrays: Arrays | None = None,
    details: Mapping[str, Any] | None = None,
    purpose: str = "",
) -> Measurement:
    """The measurement of a metric: its values with intervals, and what is kept of each image.

    Args:
        metric: its ``resamples``, if it has them, are those of the intervals.
        evaluation: the model.
        parts: of the protocol.
        estimates: the values, by label.
        arrays: what is kept of each image.
        details: further information.
        purpose: names the random numbers that the resamples are drawn with; by default the metric's name.
    """
    return Measurement(
        protocol=protocol_id(metric.name, evaluation, **parts),
        values=values_of(estimates, evaluation, purpose or metric.name, metric.resamples or 0),
        arrays=arrays or {},
        details=details or {},
    )


def values_of(
    estimates: Mapping[str, Estimate], evaluation: Evaluation, purpose: str, resamples: int = 0
) -> dict[str, Value]:
    """Values with their intervals; ``purpose`` names the random numbers that the resamples are drawn with."""
    rng = bootstrap_rng(evaluation.services.generator(f"bootstrap {purpose}"))
    return {label: value_of(estimate, rng, resamples) for label, estimate in estimates.items()}
