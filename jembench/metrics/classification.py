"""Accuracy, negative log-likelihood and Brier score of p(y|x) on the test images.

Legend: N examples, K classes. Everything is computed in float64 from the model's float32 logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jembench.errors import Diverged, Unavailable
from jembench.interfaces import Capability, Evaluation, Measurement
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least, value_of
from jembench.stats import Interval, bootstrap_interval, mean_of, wilson


class LabelledLogits(NamedTuple):
    """The test images' logits and what they should have said."""

    logits: Tensor  # float64 (N, K), finite
    labels: Tensor  # int64 (N,)


def labelled_logits(evaluation: Evaluation) -> LabelledLogits:
    """The test images' logits in float64, checked, with their labels, both on the CPU.

    Raises:
        Unavailable: if the dataset has no labels.
        Diverged: if a logit is not finite; a number made from the others would hide it.
    """
    labels = evaluation.test().labels
    if labels is None:
        raise Unavailable(f"The dataset {evaluation.data.name} has no labels, so there is nothing to classify.")
    logits = evaluation.logits().cpu().double()
    bad = int((~logits.isfinite()).any(dim=1).sum())
    if bad:
        raise Diverged(
            f"The logits of {bad} of {len(logits)} test images of {evaluation.data.name} are not finite (NaN or "
            "infinite): the model has diverged. Train it again with another seed or a lower learning rate."
        )
    return LabelledLogits(logits, labels.cpu())


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

    name: ClassVar[str] = "accuracy"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        correct = is_correct(*labelled_logits(evaluation)).numpy()
        n, hits = len(correct), int(correct.sum())
        low, high = wilson(hits, n)
        return Measurement(
            protocol=classification_protocol(self.name, evaluation, n),
            values={self.name: value_of(100 * hits / n, Interval(100 * low, 100 * high), n, "%", "higher")},
            arrays={"correct": correct},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanScore:
    """The mean of a score of each test image, lower is better, with a bootstrap interval."""

    name: str
    unit: str
    score: Callable[[Tensor, Tensor], Tensor]  # logits (N, K), labels (N,) -> (N,), >= 0
    highest: float
    resamples: int = 1000
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def compute(self, evaluation: Evaluation) -> Measurement:
        scores: NDArray[Any] = self.score(*labelled_logits(evaluation)).numpy()
        in_order = np.sort(scores)  # then neither the mean nor the resamples depend on the order of the images
        mean, n = float(in_order.mean()), len(scores)
        interval = bootstrap_interval(
            mean,
            mean_of(in_order),
            n,
            rng=bootstrap_rng(evaluation, self.name),
            resamples=self.resamples,
            within=(0.0, self.highest),
        )
        return Measurement(
            protocol=classification_protocol(self.name, evaluation, n),
            values={self.name: value_of(mean, interval, n, self.unit, "lower")},
            arrays={self.name: scores},
        )


def classification_protocol(metric: str, evaluation: Evaluation, n: int, **parts: int) -> str:
    """The protocol id of a measurement on n test images, shown to the model without data noise."""
    return protocol_id(metric, evaluation, split="test", images=n, data_noise=0, **parts)


def nll(*, resamples: int) -> MeanScore:
    """The mean negative log-likelihood."""
    return MeanScore(name="nll", unit="nats", score=negative_log_likelihood, highest=float("inf"), resamples=resamples)


def brier(*, resamples: int) -> MeanScore:
    """The mean Brier score."""
    return MeanScore(name="brier", unit="", score=brier_score, highest=2.0, resamples=resamples)
