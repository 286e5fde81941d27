"""Expected calibration error: does a confidence of 80 % mean that 80 % are right?

Legend: N examples, K classes, M bins, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Capability, Evaluation, Measurement
from jembench.metrics.classification import classification_protocol, labelled_logits
from jembench.metrics.protocol import bootstrap_rng, require_at_least, value_of
from jembench.stats import Statistic, bootstrap_interval, multiplicities


class Predictions(NamedTuple):
    """What top-label calibration sees of a classifier."""

    confidence: NDArray[np.float64]  # (N,) the largest p(k|x)
    correct: NDArray[np.bool_]  # (N,)


def predictions(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Predictions:
    """The confidence of each prediction, by a softmax in float64, and whether it was right."""
    confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
    return Predictions(confidence.numpy(), (predicted == labels).numpy())


def bin_of(confidence: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Which of M bins of equal width on [0, 1] each confidence falls into: [a, b), the last one [a, 1]."""
    edges = np.linspace(0, 1, bins + 1)
    return np.minimum(np.searchsorted(edges, confidence, side="right") - 1, bins - 1)


def expected_calibration_error(predicted: Predictions, bins: int) -> float:
    """ECE in [0, 1]: the weighted mean over bins of |accuracy - mean confidence|.

    Guo et al. (2017), arXiv:1706.04599, equation 3; M = 20 in Grathwohl et al. (2020), arXiv:1912.03263, section 5.2.
    The weight of a bin is its share of the examples, so each term is |sum of (correct - confidence)| / N.
    """
    return float(np.abs(_gaps(predicted, bins).sum(axis=0)).sum() / len(predicted.correct))


def _gaps(predicted: Predictions, bins: int) -> NDArray[np.float64]:
    """The gap correct - confidence of each example in the column of its bin: (N, M)."""
    gaps = np.zeros((len(predicted.correct), bins))
    gaps[np.arange(len(gaps)), bin_of(predicted.confidence, bins)] = predicted.correct - predicted.confidence
    return gaps


def _resampled(predicted: Predictions, bins: int) -> Statistic:
    gaps = _gaps(predicted, bins)
    n = len(gaps)
    return lambda indices: np.abs(multiplicities(indices, n) @ gaps).sum(axis=1) / n


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedCalibrationError:
    """Top-label ECE with M equal-width bins, in %, with a bootstrap interval."""

    bins: int = 20
    resamples: int = 1000
    name: ClassVar[str] = "ece"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        require_at_least(1, self.name, bins=self.bins)
        require_at_least(0, self.name, resamples=self.resamples)

    def compute(self, evaluation: Evaluation) -> Measurement:
        predicted = predictions(*labelled_logits(evaluation))
        order = np.lexsort(predicted)  # then the resamples do not depend on the order of the images
        in_order = Predictions(predicted.confidence[order], predicted.correct[order])
        ece, n = expected_calibration_error(in_order, self.bins), len(order)
        statistic = _resampled(in_order, self.bins)
        interval = bootstrap_interval(
            100 * ece,
            lambda indices: 100 * statistic(indices),
            n,
            rng=bootstrap_rng(evaluation, self.name),
            resamples=self.resamples,
            within=(0.0, 100.0),
        )
        return Measurement(
            protocol=classification_protocol(self.name, evaluation, n, bins=self.bins),
            values={self.name: value_of(100 * ece, interval, n, "%", "lower")},
            arrays=predicted._asdict(),
        )
