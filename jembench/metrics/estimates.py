"""Statistics of classes, and of the n highest images of a sample.

Legend: N images, K classes, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from jembench.interfaces import Resampling
from jembench.metrics.base import Estimate
from jembench.stats import Indices, multiplicities


def effective_classes(classes: NDArray[np.int64], num_classes: int) -> Estimate:
    """Return the effective number of classes, 1 to K: exp(H) of their shares among the classes (N,) of images.

    It is the Hill number of order 1. Jost (2006), Oikos 113(2), 363-375.
    """
    return Estimate(
        Resampling(
            lambda indices: hill_number(multiplicities(classes[indices], num_classes)),
            (len(classes),),
            (1.0, float(num_classes)),
        )
    )


def hill_number(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return exp(H) of the shares of counts: (R, K) -> (R,)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    numbers: NDArray[np.float64] = np.exp(entr(shares).sum(axis=1))
    return numbers


def among_highest(estimate: Estimate, order: NDArray[np.int64], n: int) -> Estimate:
    """Return a statistic restricted to the n highest images of each resample.

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
    """Return the n highest images of each resample: (R, N) -> (R, n), in no particular order."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return lambda indices: order[np.partition(rank[indices], n - 1, axis=1)[:, :n]]
