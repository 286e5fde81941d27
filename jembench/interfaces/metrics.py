"""Metrics, scores and their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from jembench.interfaces.models import Capability

if TYPE_CHECKING:
    import numpy as np
    from torch import Generator, Tensor, nn

    from jembench.interfaces.data import DataSpec
    from jembench.interfaces.evaluation import Evaluation, Quantity

__all__ = ["Measurement", "Need", "OODScore", "Resampling", "Value"]

Need = Literal[
    Capability, "labels", "validation", "chains", "buffer", "gradients", "training", "memory"
]
"""A need of a metric: a capability of the model, labels of the test images, validation images,
chains of the model, a buffer of kept chains, gradients of its outputs, a record of its training, or
all test images in memory at once.
"""


class Value(NamedTuple):
    """A number with the 95 % interval of its mean over other images.

    The other images are as many. None: the interval is unknown.
    """

    value: float
    low: float | None
    high: float | None
    n: int  #: number of test images, samples or windows of a training
    unit: str = ""  #: "%", "nats", "s", "" for a pure number
    better: Literal["higher", "lower", ""] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The result of a metric.

    ``protocol`` identifies the procedure: only values of one protocol are comparable.
    """

    protocol: str
    values: Mapping[str, Value]
    #: per example, for later comparisons
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    #: additional information, in JSON types
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Metric(Protocol):
    """A measurement on one trained model.

    A metric may have further attributes:

    - ``reads: frozenset[Quantity]``: the quantities of test images or out-of-distribution images
      that it reads; then one pass computes all quantities that the metrics of a run need;
    - ``parts: int``, of a long metric: with several workers the metric is a unit of work of its
      own, divided into at most ``parts`` shares (see ``Services.share``).
    """

    @property
    def name(self) -> str: ...
    @property
    def requires(self) -> frozenset[Need]: ...
    def compute(self, evaluation: Evaluation) -> Measurement: ...


@runtime_checkable
class OODScore(Protocol):
    """A score of each image, for the metric ``ood``.

    A score is higher for images that the model takes to be in-distribution.

    ``requires`` and ``reads`` are as for a :class:`Metric`.
    """

    @property
    def requires(self) -> frozenset[Need]: ...
    @property
    def reads(self) -> frozenset[Quantity]: ...
    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float (N,).

        ``images`` and ``noise`` are as in :class:`Predictions`.
        """


@runtime_checkable
class DifferentiableScore(OODScore, Protocol):
    """A score that is a differentiable function of quantities, so that outliers can be attacked."""

    def of(self, read: Callable[[Quantity], Tensor]) -> Tensor:
        """Return each image's score, float64 (N,), from the quantities that ``read`` returns."""


@runtime_checkable
class FittedScore(OODScore, Protocol):
    """A score with parameters that are fitted to each model on training or validation images."""

    def fit(self, evaluation: Evaluation, noise: float) -> tuple[OODScore, Mapping[str, str | int]]:
        """Return the score of this model, and the protocol of the images it was fitted on.

        Args:
            evaluation: of the model; no test image may be used.
            noise: standard deviation of the noise on the test images, on [-1, 1].
        """


@runtime_checkable
class Adaptation(Protocol):
    """A test-time adaptation of a classifier to images without labels, for the metric ``shift``."""

    def logits(
        self, model: nn.Module, x: Tensor, data: DataSpec, *, generator: Generator
    ) -> Tensor:
        """Adapt a model to images, and return the logits by which it classifies them, (N, K).

        Args:
            model: a copy of the trained model in evaluation mode, which may be changed.
            x: all images of one shift, float32 (N, C, H, W) on the model's device.
            data: the description of the images that the model was trained on.
            generator: on the same device; all random numbers are drawn from it.

        Raises:
            NotApplicable: if the model has nothing that could be adapted.
        """


class Resampling(NamedTuple):
    """A value as a statistic of observations, for the bootstrap and for paired comparisons."""

    #: index matrices (R, N), one for each size -> (R,)
    statistic: Callable[..., np.ndarray[Any, Any]]
    sizes: tuple[int, ...]  #: N of each independent sample
    within: tuple[float, float] = (-math.inf, math.inf)  #: the range of the value
    #: independent trials of a share or rank statistic, for intervals at the ends of its range
    trials: int = 0


@runtime_checkable
class Resampled(Protocol):
    """A metric whose values can be computed from its arrays.

    Two models are then compared image by image.
    """

    def resamplings(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, Resampling]:
        """Return the statistic of each label, computed from ``Measurement.arrays``.

        A statistic's indices are in the order of the images.
        """
