"""Values from statistics that can be resampled, and statistics of the highest of each resample.

Legend: N observations, R resamples, n how many are the highest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jembench.interfaces import Resampling, Value
from jembench.metrics.protocol import value_of
from jembench.stats import Indices, interval_of


def bootstrapped(
    resampling: Resampling,
    rng: np.random.Generator,
    resamples: int,
    unit: str = "",
    better: Literal["higher", "lower", ""] = "",
    n: int | None = None,
) -> Value:
    """The statistic of the observations themselves, with its bootstrap interval; of ``n`` of them, by default all.

    Where all resamples agree, as of observations that are all the same, they tell nothing of an interval: it is None.
    """
    estimate = float(resampling.statistic(*(np.arange(size)[None] for size in resampling.sizes))[0])
    interval = interval_of(estimate, resampling, rng=rng, resamples=resamples)
    if interval is not None and interval.low == interval.high:
        interval = None
    return value_of(estimate, interval, min(resampling.sizes) if n is None else n, unit, better)


def highest_of(order: NDArray[np.int64], n: int) -> Callable[[Indices], Indices]:
    """Which n observations are the highest of each resample: (R, N) -> (R, n), in no order.

    Args:
        order: (N,) the observations from the highest to the lowest.
        n: at most N.
    """
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return lambda indices: order[np.partition(rank[indices], n - 1, axis=1)[:, :n]]
