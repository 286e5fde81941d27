"""The factories of the example plugin. Each imports its module when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import Dataset, DataSpec, Metric
    from jembench_example.model import Linear


def linear(data: DataSpec, *, bias: bool = True) -> Linear:
    """Logistic regression on the pixels, read as an energy."""
    from jembench_example.model import Linear

    return Linear(data, bias)


def stripes(*, noise: float = 0.2) -> Dataset:
    """Horizontal, vertical and diagonal stripes, 8x8, grey."""
    from jembench_example.data import Stripes

    return Stripes(noise)


def confidence() -> Metric:
    """Mean probability of the predicted class, in %."""
    from jembench_example.metric import Confidence

    return Confidence()
