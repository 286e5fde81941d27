"""Metrics, and the numbers that they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from jembench.interfaces.models import Capability

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from jembench.interfaces.evaluation import Evaluation, Quantity

__all__ = ["Measurement", "Need", "OODScore", "Resampling", "Value"]

Need = Literal[Capability, "labels", "validation", "chains", "buffer", "gradients", "training"]
"""What a metric may need of a fit: a capability of the model, labels of the test images, images held out of training,
chains of the model, a buffer that keeps them, gradients of its answers, or a record of its training."""


class Value(NamedTuple):
    """A number with the 95 % interval of its mean over other images of the same number; None: not known."""

    value: float
    low: float | None
    high: float | None
    n: int  #: how many test images, samples or timed iterations it was computed from
    unit: str = ""  #: "%", "nats", "s", "" for a pure number
    better: Literal["higher", "lower", ""] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The result of a metric. ``protocol`` says how it was measured: only numbers of one protocol are comparable."""

    protocol: str
    values: Mapping[str, Value]
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)  #: per example, to compare again
    details: Mapping[str, Any] = field(default_factory=dict)  #: further information, in JSON types


@runtime_checkable
class Metric(Protocol):
    """A measurement on one trained model.

    A metric may have more:

    - ``reads: frozenset[Quantity]``: the quantities of test images or out-of-distribution images that it reads; then
      one pass computes all quantities that the metrics of a run need;
    - ``resamples: int``: of the bootstrap; a worker on a GPU leaves them to one without;
    - ``parts: int``: the shares that different machines may compute of a long metric (see ``Services.share``).
    """

    @property
    def name(self) -> str: ...
    @property
    def requires(self) -> frozenset[Need]: ...
    def compute(self, evaluation: Evaluation) -> Measurement: ...


@runtime_checkable
class Costly(Protocol):
    """A metric that takes long. Its cost is shown before it starts."""

    def passes(self, images: int) -> int:
        """The approximate number of forward and backward passes of single images, for a number of test images."""
        ...


@runtime_checkable
class OODScore(Protocol):
    """A score of each image, higher for images that the model takes to be in-distribution; for the metric ``ood``.

    ``requires`` and ``reads`` are as for a :class:`Metric`.
    """

    @property
    def requires(self) -> frozenset[Need]: ...
    @property
    def reads(self) -> frozenset[Quantity]: ...
    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """The score of each image, float (N,); ``images`` and ``noise`` as for :class:`Predictions`."""
        ...


class Resampling(NamedTuple):
    """A value as a statistic of observations, for the bootstrap and for paired comparisons."""

    statistic: Callable[..., np.ndarray[Any, Any]]  #: index matrices (R, N), one for each size -> (R,)
    sizes: tuple[int, ...]  #: N of each independent sample
    within: tuple[float, float] = (-math.inf, math.inf)  #: the range of the value
    trials: int = 0  #: of a share or a rank statistic: the independent trials behind it, for intervals near its ends


@runtime_checkable
class Resampled(Protocol):
    """A metric whose values can be computed from its arrays, so that two models are compared image by image."""

    def resamplings(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, Resampling]:
        """The statistic of each label, computed from ``Measurement.arrays``, in the order of the images."""
        ...
