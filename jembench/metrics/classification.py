"""Accuracy, proper scores and calibration errors of p(y|x) on the test images.

Legend: N examples, K classes, M bins. Everything is computed in float64 from the model's float32 logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jembench.catalog.spec import Scalar
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.binning import adaptive_error, binned_error
from jembench.metrics.estimates import Arrays, Estimate, mean, share, values_of
from jembench.metrics.labelled import labelled_logits
from jembench.metrics.predictive import ECE, Predictive, Scaled
from jembench.metrics.protocol import protocol_id
from jembench.stats import Statistic


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


class Predictions(NamedTuple):
    """What top-label calibration sees of a classifier."""

    confidence: NDArray[np.float64]  # (N,) the largest p(k|x)
    correct: NDArray[np.bool_]  # (N,)


def predictions(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Predictions:
    """The confidence of each prediction, by a softmax in float64, and whether it was right."""
    confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
    return Predictions(confidence.numpy(), (predicted == labels).numpy())


class Formula(NamedTuple):
    """How a metric is computed."""

    arrays: Callable[[Tensor, Tensor], Arrays]  # logits (N, K), labels (N,) -> what is kept of each image
    estimate: Callable[[Any, Arrays], Estimate]  # of the metric and these arrays


def _mean_score(name: str, score: Callable[[Tensor, Tensor], Tensor], unit: str, highest: float) -> Formula:
    return Formula(
        lambda logits, labels: {name: score(logits, labels).numpy()},
        lambda metric, arrays: mean(arrays[name], unit, "lower", (0.0, highest)),
    )


def _calibration_error(
    arrays: Callable[[Tensor, Tensor], Arrays], error: Callable[[Arrays, int], Statistic]
) -> Formula:
    """From a calibration error in 0..1, as a statistic of what is kept, to one in %."""

    def estimate(metric: ECE, kept: Arrays) -> Estimate:
        in_unit, n = error(kept, metric.bins), len(next(iter(kept.values())))
        return Estimate(Resampling(lambda indices: 100 * in_unit(indices), (n,), (0.0, 100.0)), "%", "lower")

    return Formula(arrays, estimate)


def _top_label(logits: Tensor, labels: Tensor) -> Arrays:
    return predictions(logits, labels)._asdict()


def _all_classes(logits: Tensor, labels: Tensor) -> Arrays:
    return {"probabilities": logits.softmax(dim=1).numpy(), "labels": labels.numpy()}


def _classwise_error(arrays: Arrays, bins: int) -> Statistic:
    probabilities, labels = arrays["probabilities"], arrays["labels"]
    return binned_error(probabilities, labels[:, None] == np.arange(probabilities.shape[1]), bins)


FORMULAS: Mapping[str, Formula] = {
    "accuracy": Formula(
        lambda logits, labels: {"correct": is_correct(logits, labels).numpy()},
        lambda metric, arrays: share(arrays["correct"], "higher"),
    ),
    "nll": _mean_score("nll", negative_log_likelihood, "nats", float("inf")),
    "brier": _mean_score("brier", brier_score, "", 2.0),
    # Guo et al. (2017), arXiv:1706.04599, equation 3; M = 20 in Grathwohl et al. (2020), arXiv:1912.03263, section 5.2
    "ece": _calibration_error(_top_label, lambda kept, bins: binned_error(kept["confidence"], kept["correct"], bins)),
    # Nguyen & O'Connor (2015), arXiv:1508.05154, section 3.2; Nixon et al. (2019), arXiv:1904.01685: in bins of equal
    # mass none is empty, and each weighs the same
    "adaptive-ece": _calibration_error(
        _top_label, lambda kept, bins: adaptive_error(kept["confidence"], kept["correct"], bins)
    ),
    # Kull et al. (2019), arXiv:1910.12656, definition 2
    "classwise-ece": _calibration_error(_all_classes, _classwise_error),
}
"""By the name of the metric."""


def compute(metric: Predictive, evaluation: Evaluation) -> Measurement:
    """Measure the test images."""
    scaling = metric.scaling if isinstance(metric, Scaled) else "none"
    seen = labelled_logits(evaluation, scaling, metric.data_noise)
    arrays = FORMULAS[metric.name].arrays(seen.logits, seen.labels)
    bins = {"bins": metric.bins} if isinstance(metric, ECE) else {}
    resamples = metric.resamples if isinstance(metric, Scaled) else 0
    return Measurement(
        protocol=classification_protocol(
            metric.name, evaluation, len(seen.labels), metric.data_noise, **bins, **seen.identity
        ),
        values=values_of(estimates(metric, _in_order(arrays)), evaluation, metric.name, resamples),
        arrays=arrays,
        details=seen.details,
    )


def estimates(metric: Predictive, arrays: Arrays) -> dict[str, Estimate]:
    """The value; one after scaling has a label of its own, so that both can stand in one table."""
    scaled = isinstance(metric, Scaled) and metric.scaling != "none"
    return {f"{metric.name}-scaled" if scaled else metric.name: FORMULAS[metric.name].estimate(metric, arrays)}


def _in_order(arrays: Arrays) -> Arrays:
    """The examples sorted: then neither values nor resamples depend on the order of the images."""
    order = np.lexsort([column for array in arrays.values() for column in np.atleast_2d(array.T)])
    return {name: array[order] for name, array in arrays.items()}


def classification_protocol(
    metric: str, evaluation: Evaluation, n: int, data_noise: float = 0.0, **parts: Scalar
) -> str:
    """The protocol id of a measurement on n test images, shown to the model with that noise."""
    return protocol_id(metric, evaluation, split="test", images=n, data_noise=f"{data_noise:g}", **parts)
