"""What every metric shares: the id of its protocol, its random numbers and the way an interval enters a value."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.errors import SpecError
from jembench.interfaces import Evaluation, Value
from jembench.stats import Interval


def protocol_id(metric: str, evaluation: Evaluation, **parts: Scalar) -> str:
    """The identity of a measurement: the metric, the data and everything else that decides what the number means.

    Written like a spec string, keys sorted: ``accuracy:data=digits,data_noise=0,images=397,split=test``. The name of a
    data set of the user's own files says little, so a hash of their content stands beside it.
    """
    named = {"data": evaluation.data.name, **parts}
    if content := getattr(evaluation, "data_content", ""):
        named["data_content"] = content
    return str(Spec(metric, tuple((key, format_value(value)) for key, value in named.items())))


def bootstrap_rng(evaluation: Evaluation, metric: str) -> np.random.Generator:
    """The numpy generator of one metric's resamples, derived from the fit's seed."""
    generator = evaluation.generator(f"bootstrap {metric}")
    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    return np.random.default_rng(int(seed))


def value_of(
    estimate: float, interval: Interval | None, n: int, unit: str = "", better: Literal["higher", "lower", ""] = ""
) -> Value:
    """A value with its interval, or without one where none is known."""
    low, high = interval if interval is not None else (None, None)
    return Value(estimate, low, high, n, unit, better)


def require_noise(metric: str, data_noise: float) -> None:
    """Check the standard deviation of noise on images.

    Raises:
        SpecError: if it is negative.
    """
    if data_noise < 0:
        raise SpecError(f"data_noise of {metric} is {data_noise:g}; it must be at least 0, on the scale of [-1, 1].")


MOST = 1_000_000
"""Of anything that a metric counts: more would not end, or not fit into memory."""


def require_at_least(minimum: int, metric: str, most: int = MOST, **options: int) -> None:
    """Check whole-number options of a metric.

    Raises:
        SpecError: naming the first that is too small or too large.
    """
    for option, value in options.items():
        if value < minimum:
            raise SpecError(f"{option} of {metric} is {value}; it must be at least {minimum}.")
        if value > most:
            raise SpecError(f"{option} of {metric} is {value}; it must be at most {most:,}.")
