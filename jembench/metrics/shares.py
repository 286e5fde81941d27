"""Of how many classes a set of images is made, and what share of it is so or so.

Legend: N images, K classes, R resamples.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from jembench.interfaces import Resampling, Value
from jembench.metrics.protocol import value_of
from jembench.stats import Interval, mean_of, multiplicities, wilson


def share(flags: NDArray[np.bool_], better: Literal["higher", "lower", ""] = "") -> Value:
    """The share of images that are so, in %, with Wilson's interval."""
    hits, n = int(flags.sum()), len(flags)
    low, high = wilson(hits, n)
    return value_of(100 * hits / n, Interval(100 * low, 100 * high), n, "%", better)


def share_resampling(flags: NDArray[np.bool_]) -> Resampling:
    """The same share as a statistic of the images."""
    percent = 100.0 * flags
    return Resampling(mean_of(percent), (len(flags),), (0.0, 100.0))


def effective_classes(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """exp(H) of the classes' shares, 1 to K: so many classes of equal size are as diverse; counts (R, K) -> (R,).

    The Hill number of order 1. Jost (2006), Oikos 113(2), 363-375.
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    numbers: NDArray[np.float64] = np.exp(entr(shares).sum(axis=1))
    return numbers


def class_resampling(classes: NDArray[np.int64], num_classes: int) -> Resampling:
    """The effective number of classes as a statistic of the images, whose classes (N,) are in 0..K-1."""
    return Resampling(
        lambda indices: effective_classes(multiplicities(classes[indices], num_classes)),
        (len(classes),),
        (1.0, float(num_classes)),
    )
