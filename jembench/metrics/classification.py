"""Accuracy, negative log-likelihood and Brier score of p(y|x) on the test images.

Legend: N examples, K classes. Everything is computed in float64 from the model's float32 logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jembench.catalog.spec import Scalar
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Quantity, Resampling
from jembench.metrics.labelled import Scaling, check_labels, label_of, labelled_logits
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least, require_noise, value_of
from jembench.stats import Interval, interval_of, mean_of, wilson


def is_correct(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    """Whether the class of the largest logit is the label."""
    return logits.argmax(dim=1) == labels


def negative_log_likelihood(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """-log p(y|x) in nats, >= 0; float64."""
    return F.cross_entropy(logits.double(), labels, reduction="none")


def brier_score(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The sum over classes of (p(k|x) - [k = y])^2, in [0, 2]; float64.

    Brier (1950), Monthly Weather Review 78(1), equation 2: the sum over classes, not their mean.
    """
    probabilities = logits.double().softmax(dim=1)
    target = F.one_hot(labels, logits.shape[1])
    return (probabilities - target).square().sum(dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """The share of test images whose most probable class is the label, in %, with Wilson's interval."""

    data_noise: float = 0.0  # standard deviation on [-1, 1]
    name: ClassVar[str] = "accuracy"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        require_noise(self.name, self.data_noise)

    def check(self, planned: Planned) -> None:
        """Whether there are labels."""
        check_labels(planned)

    def compute(self, evaluation: Evaluation) -> Measurement:
        seen = labelled_logits(evaluation, data_noise=self.data_noise)
        correct = is_correct(seen.logits, seen.labels).numpy()
        n, hits = len(correct), int(correct.sum())
        low, high = wilson(hits, n)
        return Measurement(
            protocol=classification_protocol(self.name, evaluation, n, self.data_noise),
            values={self.name: value_of(100 * hits / n, Interval(100 * low, 100 * high), n, "%", "higher")},
            arrays={"correct": correct},
        )

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The share in % of resampled images."""
        return {self.name: Resampling(mean_of(100.0 * arrays["correct"]), (len(arrays["correct"]),), (0.0, 100.0))}


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanScore:
    """The mean of a score of each test image, lower is better, with a bootstrap interval."""

    name: str
    unit: str
    score: Callable[[Tensor, Tensor], Tensor]  # logits (N, K), labels (N,) -> (N,), >= 0
    highest: float
    scaling: Scaling
    resamples: int
    data_noise: float = 0.0
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)
        require_noise(self.name, self.data_noise)

    @property
    def _label(self) -> str:
        return label_of(self.name, self.scaling)

    def check(self, planned: Planned) -> None:
        """Whether there will be labels, and images to fit a temperature on."""
        check_labels(planned, self.scaling)

    def compute(self, evaluation: Evaluation) -> Measurement:
        seen = labelled_logits(evaluation, self.scaling, self.data_noise)
        scores: NDArray[Any] = self.score(seen.logits, seen.labels).numpy()
        in_order = np.sort(scores)  # then neither the mean nor the resamples depend on the order of the images
        mean, n = float(in_order.mean()), len(scores)
        (resampling,) = self.resamplings({self.name: in_order}).values()
        interval = interval_of(mean, resampling, rng=bootstrap_rng(evaluation, self.name), resamples=self.resamples)
        return Measurement(
            protocol=classification_protocol(self.name, evaluation, n, self.data_noise, **seen.identity),
            values={self._label: value_of(mean, interval, n, self.unit, "lower")},
            arrays={self.name: scores},
            details=seen.details,
        )

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The mean score of resampled images."""
        scores = arrays[self.name]
        return {self._label: Resampling(mean_of(scores), (len(scores),), (0.0, self.highest))}


def classification_protocol(
    metric: str, evaluation: Evaluation, n: int, data_noise: float = 0.0, **parts: Scalar
) -> str:
    """The protocol id of a measurement on n test images, shown to the model with that noise."""
    return protocol_id(metric, evaluation, split="test", images=n, data_noise=f"{data_noise:g}", **parts)


def nll(*, scaling: Scaling, resamples: int, data_noise: float = 0.0) -> MeanScore:
    """The mean negative log-likelihood."""
    return MeanScore(
        name="nll",
        unit="nats",
        score=negative_log_likelihood,
        highest=float("inf"),
        scaling=scaling,
        resamples=resamples,
        data_noise=data_noise,
    )


def brier(*, scaling: Scaling, resamples: int, data_noise: float = 0.0) -> MeanScore:
    """The mean Brier score."""
    return MeanScore(
        name="brier",
        unit="",
        score=brier_score,
        highest=2.0,
        scaling=scaling,
        resamples=resamples,
        data_noise=data_noise,
    )
