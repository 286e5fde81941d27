"""Values of metrics as statistics of what was kept of each image: one formula gives value, interval and comparison.

Legend: N images, K classes, R resamples, n how many are the highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr

from jembench.catalog.spec import Scalar
from jembench.interfaces import Evaluation, Measurement, Resampling, Value
from jembench.metrics.base import Better, Metric, protocol_id
from jembench.stats import Indices, interval_of, mean_of, multiplicities, wilson

Arrays = Mapping[str, NDArray[Any]]


class Estimate(NamedTuple):
    """A value and the statistic behind it."""

    resampling: Resampling
    unit: str = ""
    better: Better = ""
    n: int | None = None  # None: the size of the smallest sample
    value: float | None = None  # as a library computes it; None: the statistic of the images themselves
    flags: NDArray[np.bool_] | None = None  # the value is the share of these; the interval is Wilson's


def mean(
    values: NDArray[Any], unit: str = "", better: Better = "", within: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate:
    """The mean of a number of each image (N,)."""
    return Estimate(Resampling(mean_of(values), (len(values),), within), unit, better)


def median(
    values: NDArray[Any], unit: str = "", better: Better = "", within: tuple[float, float] = (0.0, math.inf)
) -> Estimate:
    """The median of a number of each image (N,), none of them below 0."""
    return Estimate(
        Resampling(lambda indices: np.median(values[indices], axis=1), (len(values),), within), unit, better
    )


def share(flags: NDArray[np.bool_], better: Better = "") -> Estimate:
    """The share of images whose flag (N,) is set, in %, with Wilson's interval."""
    resampling = Resampling(mean_of(100.0 * flags), (len(flags),), (0.0, 100.0), len(flags))
    return Estimate(resampling, "%", better, flags=flags)


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
        values=values_of(estimates, evaluation, purpose or metric.name, getattr(metric, "resamples", 0)),
        arrays=arrays or {},
        details=details or {},
    )


def values_of(
    estimates: Mapping[str, Estimate], evaluation: Evaluation, purpose: str, resamples: int = 0
) -> dict[str, Value]:
    """Values with their intervals; ``purpose`` names the random numbers that the resamples are drawn with."""
    rng = bootstrap_rng(evaluation.services.generator(f"bootstrap {purpose}"))
    return {label: value_of(estimate, rng, resamples) for label, estimate in estimates.items()}


def value_of(estimate: Estimate, rng: np.random.Generator, resamples: int) -> Value:
    """A value with its interval: Wilson's of a share, else the bootstrap's, see :mod:`jembench.stats.intervals`."""
    resampling, unit, better, n, value, flags = estimate
    if flags is not None:
        hits, n = int(flags.sum()), len(flags)
        within = wilson(hits, n)
        return Value(100 * hits / n, 100 * within.low, 100 * within.high, n, unit, better)
    if value is None:
        value = float(resampling.statistic(*(np.arange(size)[None] for size in resampling.sizes))[0])
    low, high = interval_of(value, resampling, rng=rng, resamples=resamples) or (None, None)
    return Value(value, low, high, min(resampling.sizes) if n is None else n, unit, better)


def bootstrap_rng(generator: torch.Generator) -> np.random.Generator:
    """The numpy generator of a metric's resamples."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
