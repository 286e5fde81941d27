"""Calibration errors: does a confidence of 80 % mean that 80 % are right?

Legend: N examples, K classes, M bins, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Quantity, Resampling
from jembench.metrics.binning import adaptive_error, binned_error
from jembench.metrics.classification import classification_protocol
from jembench.metrics.labelled import LabelledLogits, Scaling, check_labels, label_of, labelled_logits
from jembench.metrics.protocol import bootstrap_rng, require_at_least, require_noise, value_of
from jembench.stats import Statistic, interval_of

Arrays = Mapping[str, NDArray[Any]]


class Predictions(NamedTuple):
    """What top-label calibration sees of a classifier."""

    confidence: NDArray[np.float64]  # (N,) the largest p(k|x)
    correct: NDArray[np.bool_]  # (N,)


def predictions(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Predictions:
    """The confidence of each prediction, by a softmax in float64, and whether it was right."""
    confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
    return Predictions(confidence.numpy(), (predicted == labels).numpy())


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationError:
    """A weighted mean over M bins of |frequency - mean confidence|, in %, with a bootstrap interval."""

    name: str
    arrays_of: Callable[[LabelledLogits], Arrays]  # what is kept of each example
    error: Callable[[Arrays, int], Statistic]  # the error in 0..1 as a statistic of them
    bins: int
    scaling: Scaling
    resamples: int
    data_noise: float = 0.0
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        require_at_least(1, self.name, most=1000, bins=self.bins)  # each resample holds all of them
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
        arrays, n = self.arrays_of(seen), len(seen.labels)
        (resampling,) = self.resamplings(_in_order(arrays)).values()
        value = float(resampling.statistic(np.arange(n)[None])[0])
        rng = bootstrap_rng(evaluation, self.name)
        interval = interval_of(value, resampling, rng=rng, resamples=self.resamples)
        return Measurement(
            protocol=classification_protocol(
                self.name, evaluation, n, self.data_noise, bins=self.bins, **seen.identity
            ),
            values={self._label: value_of(value, interval, n, "%", "lower")},
            arrays=arrays,
            details=seen.details,
        )

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The error in % of resampled examples."""
        error = self.error(arrays, self.bins)
        n = len(next(iter(arrays.values())))
        return {self._label: Resampling(lambda indices: 100 * error(indices), (n,), (0.0, 100.0))}


def _in_order(arrays: Arrays) -> Arrays:
    """The examples sorted: then the resamples do not depend on the order of the images."""
    order = np.lexsort([column for array in arrays.values() for column in np.atleast_2d(array.T)])
    return {name: array[order] for name, array in arrays.items()}


def ece(*, bins: int, scaling: Scaling, resamples: int, data_noise: float = 0.0) -> CalibrationError:
    """Of the predicted class, in bins of equal width.

    Guo et al. (2017), arXiv:1706.04599, equation 3; M = 20 in Grathwohl et al. (2020), arXiv:1912.03263, section 5.2.
    """
    return CalibrationError(
        name="ece",
        arrays_of=_top_label,
        error=lambda arrays, bins: binned_error(arrays["confidence"], arrays["correct"], bins),
        bins=bins,
        scaling=scaling,
        resamples=resamples,
        data_noise=data_noise,
    )


def adaptive_ece(*, bins: int, scaling: Scaling, resamples: int, data_noise: float = 0.0) -> CalibrationError:
    """Of the predicted class, in bins of equal mass: none is empty, and each weighs the same.

    Nguyen & O'Connor (2015), arXiv:1508.05154, section 3.2; Nixon et al. (2019), arXiv:1904.01685.
    """
    return CalibrationError(
        name="adaptive-ece",
        arrays_of=_top_label,
        error=lambda arrays, bins: adaptive_error(arrays["confidence"], arrays["correct"], bins),
        bins=bins,
        scaling=scaling,
        resamples=resamples,
        data_noise=data_noise,
    )


def classwise_ece(*, bins: int, scaling: Scaling, resamples: int, data_noise: float = 0.0) -> CalibrationError:
    """The mean over classes of the same error of p(k|x), against how often the label is k.

    Kull et al. (2019), arXiv:1910.12656, definition 2.
    """
    return CalibrationError(
        name="classwise-ece",
        arrays_of=_all_classes,
        error=_classwise_error,
        bins=bins,
        scaling=scaling,
        resamples=resamples,
        data_noise=data_noise,
    )


def _top_label(seen: LabelledLogits) -> Arrays:
    return predictions(seen.logits, seen.labels)._asdict()


def _all_classes(seen: LabelledLogits) -> Arrays:
    return {"probabilities": seen.logits.softmax(dim=1).numpy(), "labels": seen.labels.numpy()}


def _classwise_error(arrays: Arrays, bins: int) -> Statistic:
    probabilities, labels = arrays["probabilities"], arrays["labels"]
    return binned_error(probabilities, labels[:, None] == np.arange(probabilities.shape[1]), bins)
