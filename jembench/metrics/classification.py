"""Accuracy, proper scores and calibration errors of p(y|x) on the test images, and how a model classifies any images.

Legend: N examples, K classes, M bins. Everything is computed in float64 from the model's float32 logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jembench.catalog.spec import Scalar
from jembench.errors import Diverged, NotApplicable
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.base import no_labels
from jembench.metrics.binning import adaptive_error, binned_error, debiased_squared_error
from jembench.metrics.estimates import Arrays, Estimate, mean, measurement, share
from jembench.metrics.predictive import ECE, Predictive, Scaled, Scaling
from jembench.stats import Statistic

# --- logits -----------------------------------------------------------------------------------------------------------


class Classified(NamedTuple):
    """What a model says of each image."""

    predicted: NDArray[np.int64]  # (N,) the class of the largest logit
    confidence: NDArray[np.float64]  # (N,) its p(y|x)
    log_odds: NDArray[np.float64]  # (N,) log(p / (1 - p)) of the same, distinct even where p rounds to 1

    def arrays(self) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """The same, as a metric keeps it."""
        return {"predicted": self.predicted, "confidence": self.confidence, "log-odds": self.log_odds}


def classified(evaluation: Evaluation, images: str | Tensor = "test") -> Classified:
    """How a model classifies images, in float64.

    Raises:
        Diverged: if a logit is not finite.
    """
    logits = evaluation.predictions.read("logits", images).cpu().double()
    require_finite(logits, "logits", "test images" if images == "test" else "samples")
    confidence = logits.softmax(dim=1).amax(dim=1)
    return Classified(logits.argmax(dim=1).numpy(), confidence.numpy(), log_odds(logits).numpy())


def log_odds(logits: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """log(p / (1 - p)) of the likeliest class, float64: ordered as p, but distinct even where p rounds to 1."""
    ranked = logits.double().sort(dim=1, descending=True).values
    return ranked[:, 0] - ranked[:, 1:].logsumexp(dim=1)


def require_finite(values: Tensor, quantity: str, what: str) -> None:
    """Refuse values (N, ...) of which some are not finite: a number made from the others would hide it.

    Raises:
        Diverged: with how many images' they are.
    """
    bad = int((~values.isfinite()).reshape(len(values), -1).any(dim=1).sum())
    if bad:
        raise Diverged(
            f"The {quantity} of {bad} of {len(values)} {what} are not finite (NaN or infinite): the model has "
            "diverged. Train it again with another seed or a lower learning rate."
        )


class LabelledLogits(NamedTuple):
    """The test images' logits and what they should have said."""

    logits: Tensor  # float64 (N, K), finite
    labels: Tensor  # int64 (N,)
    identity: Mapping[str, Scalar] = {}  # what a protocol must say of how they were scaled
    details: Mapping[str, Any] = {}


def labelled_logits(evaluation: Evaluation, scaling: Scaling = "none", data_noise: float = 0.0) -> LabelledLogits:
    """The test images' logits in float64, checked, with their labels, both on the CPU.

    With temperature scaling they are divided by the one number that makes the *validation* images likeliest; test
    images have no part in it. Guo et al. (2017), arXiv:1706.04599, section 4.2. ``data_noise`` is that on both.

    Raises:
        NotApplicable: if the dataset has no labels, or if no temperature follows from validation images.
        Diverged: if a logit is not finite; a number made from the others would hide it.
    """
    plain = _labelled(evaluation, "test", data_noise)
    if scaling == "none":
        return plain
    held = _labelled(evaluation, "validation", data_noise)
    temperature, n = fit_temperature(held.logits, held.labels), len(held.labels)
    return LabelledLogits(
        plain.logits / temperature,
        plain.labels,
        identity={"scaling": scaling, "validation_images": n},
        details={"temperature": temperature, "validation_images": n},
    )


def _labelled(evaluation: Evaluation, images: Literal["test", "validation"], noise: float) -> LabelledLogits:
    labels = evaluation.data.part(images).labels
    if labels is None:
        raise no_labels(evaluation.data.spec)
    logits = evaluation.predictions.read("logits", images, noise).cpu().double()
    require_finite(logits, "logits", f"{images} images of {evaluation.data.spec.name}")
    return LabelledLogits(logits, labels.cpu())


LOWEST, HIGHEST = 0.01, 100.0
"""Between these a temperature is looked for."""


def fit_temperature(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> float:
    """The T in [.01, 100] for which logits / T give the lowest mean NLL.

    The NLL is convex in 1 / T, so its derivative, mean of (E_p[f] - f_y) with p = softmax(f / T), has one root at most.

    Raises:
        NotApplicable: if it has none there. Where all examples are classified right, for one, less temperature is
            always likelier; the infinite confidence that would follow is the examples' fault and not the model's merit.
    """
    from scipy.optimize import brentq

    # Relative to the label's logit: then no rounding hides that where all examples are right every term is negative.
    margins = logits.double() - logits.double().gather(1, labels[:, None])

    def slope(inverse: float) -> float:
        return float(((margins * inverse).softmax(dim=1) * margins).sum(dim=1).mean())

    if slope(1 / LOWEST) <= 0 or slope(1 / HIGHEST) >= 0:
        right = int((logits.argmax(dim=1) == labels).sum())
        raise NotApplicable(
            f"No temperature between {LOWEST} and {HIGHEST:g} is the likeliest one for the {len(labels)} validation "
            f"images, of which {right} are classified right. Train the model with more than these held out "
            "(--set data.validation=...)."
        )
    return 1 / float(brentq(slope, 1 / HIGHEST, 1 / LOWEST, xtol=1e-12))


# --- scores -----------------------------------------------------------------------------------------------------------


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


def predictions(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
    """What top-label calibration sees: the largest p(k|x), by a softmax in float64, and whether its class is right."""
    confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
    return {"confidence": confidence.numpy(), "correct": (predicted == labels).numpy()}


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


def _debiased(metric: ECE, kept: Arrays) -> Estimate:
    error = debiased_squared_error(kept["confidence"], kept["correct"], metric.bins)
    return Estimate(Resampling(error, (len(kept["correct"]),), (-1.0, 1.0)), "", "lower")


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
    "ece": _calibration_error(predictions, lambda kept, bins: binned_error(kept["confidence"], kept["correct"], bins)),
    "debiased-ece": Formula(predictions, _debiased),
    # Nguyen & O'Connor (2015), arXiv:1508.05154, section 3.2; Nixon et al. (2019), arXiv:1904.01685: in bins of equal
    # mass none is empty, and each weighs the same
    "adaptive-ece": _calibration_error(
        predictions, lambda kept, bins: adaptive_error(kept["confidence"], kept["correct"], bins)
    ),
    # Kull et al. (2019), arXiv:1910.12656, definition 2
    "classwise-ece": _calibration_error(_all_classes, _classwise_error),
}
"""By the name of the metric."""


def _in_order(arrays: Arrays) -> Arrays:
    """The examples sorted: then neither values nor resamples depend on the order of the images."""
    order = np.lexsort([column for array in arrays.values() for column in np.atleast_2d(array.T)])
    return {name: array[order] for name, array in arrays.items()}


def classification(metric: Predictive, evaluation: Evaluation) -> Measurement:
    """Measure the test images."""
    scaling = metric.scaling if isinstance(metric, Scaled) else "none"
    seen = labelled_logits(evaluation, scaling, metric.data_noise)
    arrays = FORMULAS[metric.name].arrays(seen.logits, seen.labels)
    parts = {**of_test_images(len(seen.labels), metric.data_noise), **seen.identity}
    if isinstance(metric, ECE):
        parts["bins"] = metric.bins
    return measurement(metric, evaluation, parts, metric.estimates(_in_order(arrays)), arrays, seen.details)


def classification_values(metric: Predictive, logits: Tensor, labels: Tensor) -> dict[str, Estimate]:
    """The value of float64 logits (N, K) and labels (N,)."""
    return metric.estimates(_in_order(FORMULAS[metric.name].arrays(logits, labels)))


def classification_estimates(metric: Predictive, arrays: Arrays) -> dict[str, Estimate]:
    """The value; one after scaling has a label of its own, so that both can stand in one table."""
    scaled = isinstance(metric, Scaled) and metric.scaling != "none"
    return {f"{metric.name}-scaled" if scaled else metric.name: FORMULAS[metric.name].estimate(metric, arrays)}


def of_test_images(n: int, data_noise: float = 0.0) -> dict[str, Scalar]:
    """What a protocol says of a measurement on n test images, shown to the model with that noise."""
    return {"split": "test", "images": n, "data_noise": f"{data_noise:g}"}
