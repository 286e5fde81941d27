"""Accuracy, proper scores and calibration errors of p(y|x) on the test images.

Everything is computed in float64 from the model's float32 logits.

Legend: N examples, K classes or columns of confidences, M bins, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from jembench.catalog.spec import Scalar
from jembench.catalog.validation import Range
from jembench.errors import Diverged, NotApplicable, PluginError
from jembench.interfaces import Evaluation, Measurement, Need, Quantity, Resampling
from jembench.metrics.base import (
    Array,
    Arrays,
    Estimate,
    Metric,
    NotNegative,
    describe_test_images,
    mean,
    share,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from jembench.stats.intervals import Indices, Statistic

LOWEST, HIGHEST = 0.01, 100.0
"""The range of temperatures that is searched."""

# --- metrics --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Classification(Metric):
    """A metric of the logits of the test images and their labels."""

    data_noise: NotNegative = 0.0
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits"})

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the metric."""
        return frozenset({"logits", "labels"})

    @property
    def label(self) -> str:
        """The label of the value."""
        return self.name

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the test images.

        Raises:
            Diverged: if a logit is not finite.
        """
        return self.of_logits(evaluation, *labelled_logits(evaluation, "test", self.data_noise))

    def of_logits(self, evaluation: Evaluation, logits: Tensor, labels: Tensor) -> Measurement:
        """Measure images by their logits, float64 (N, K), and labels (N,)."""
        parts = describe_test_images(len(labels), self.data_noise)
        return self.measurement(evaluation, self.scores(logits, labels), parts=parts)

    def scores(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
        """Return the arrays of each example, from float64 logits."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Accuracy(Classification):
    """Share of test images classified correctly, in %, with Wilson's interval.

    ``data_noise``, of all metrics that have it, is the standard deviation of Gaussian noise on the
    images, on [-1, 1]: .03 in the reference code of JEM.
    """

    name: ClassVar[str] = "accuracy"

    def scores(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
        """Return ``correct``, bool (N,): whether the class of the largest logit is the label."""
        return {"correct": (logits.argmax(dim=1) == labels).numpy()}

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the share."""
        return {self.label: share(arrays["correct"], "higher")}

    def of_logits(self, evaluation: Evaluation, logits: Tensor, labels: Tensor) -> Measurement:
        """Measure images; the details have the accuracy of guessing among all classes."""
        chance = {"chance": 100 / evaluation.data.spec.num_classes}
        return replace(super().of_logits(evaluation, logits, labels), details=chance)


@dataclass(frozen=True, kw_only=True)
class Scaled(Classification):
    """A metric of probabilities, optionally after temperature scaling.

    With scaling, the logits are divided by the number that minimises the mean NLL of the
    *validation* images; test images are not used for it. Guo et al. (2017), arXiv:1706.04599,
    section 4.2.
    """

    scaling: Literal["none", "temperature"] = "none"

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the metric: with scaling, validation images too."""
        return super().requires | (
            frozenset({"validation"}) if self.scaling == "temperature" else frozenset()
        )

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The options that are part of the protocol."""
        return {name: value for name, value in super().protocol_options.items() if value != "none"}

    @property
    def label(self) -> str:
        """The label of the value, another one after scaling, so that one table can show both."""
        return self.name if self.scaling == "none" else f"{self.name}-scaled"

    def of_logits(self, evaluation: Evaluation, logits: Tensor, labels: Tensor) -> Measurement:
        """Measure images.

        Raises:
            NotApplicable: if the validation images determine no temperature.
        """
        if self.scaling == "none":
            return super().of_logits(evaluation, logits, labels)
        held, held_labels = labelled_logits(evaluation, "validation", self.data_noise)
        temperature, n = fit_temperature(held, held_labels), len(held)
        parts = {**describe_test_images(len(labels), self.data_noise), "validation_images": n}
        details = {"temperature": temperature, "validation_images": n}
        return self.measurement(
            evaluation, self.scores(logits / temperature, labels), parts=parts, details=details
        )


@dataclass(frozen=True, kw_only=True)
class NLL(Scaled):
    """Mean negative log-likelihood -log p(y|x) on the test images, in nats.

    ``scaling=temperature`` divides the logits by a temperature fitted on validation images, which
    the recipe must hold out. All metrics of calibration have this option.
    """

    name: ClassVar[str] = "nll"

    def scores(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
        """Return -log p(y|x) of each example (N,), at least 0."""
        from torch.nn import functional as F

        return {"nll": F.cross_entropy(logits, labels, reduction="none").numpy()}

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the mean."""
        return {self.label: mean(arrays["nll"], "nats", "lower", (0.0, float("inf")))}


@dataclass(frozen=True, kw_only=True)
class Brier(Scaled):
    """Brier score on the test images: squared error of p(y|x), summed over classes, 0 to 2.

    Brier (1950), Monthly Weather Review 78(1), equation 2: the sum over classes, not their mean.
    """

    name: ClassVar[str] = "brier"

    def scores(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
        """Return the sum over classes of (p(k|x) - [k = y])^2 of each example (N,)."""
        from torch.nn import functional as F

        return {
            "brier": (logits.softmax(dim=1) - F.one_hot(labels, logits.shape[1]))
            .square()
            .sum(dim=1)
            .numpy()
        }

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the mean."""
        return {self.label: mean(arrays["brier"], "", "lower", (0.0, 2.0))}


@dataclass(frozen=True, kw_only=True)
class ECE(Scaled):
    """Expected calibration error of the predicted class, equal-width bins, in %.

    It is above 0 for a calibrated model as well: by 4.6 % for 397 images with confidences uniform
    in .55 to 1. The interval is of its mean over as many images; ``debiased-ece`` has no such bias.
    Guo et al. (2017), arXiv:1706.04599, equation 3; 20 bins as in Grathwohl et al. (2020),
    arXiv:1912.03263, section 5.2.
    """

    bins: Annotated[int, Range(least=1, most=1000)] = 20  # each resample holds the sums of all bins
    name: ClassVar[str] = "ece"

    def scores(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
        """Return ``confidence``, ``predicted`` and ``correct`` of logits, (N,) each.

        The confidence is the largest p(k|x), ``predicted`` its class, and ``correct`` whether it is
        right.
        """
        confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
        values = {"confidence": confidence, "predicted": predicted, "correct": predicted == labels}
        return {name: value.numpy() for name, value in values.items()}

    def error(self, arrays: Arrays) -> Statistic:
        """Return the calibration error, 0 to 1."""
        return binned_error(arrays["confidence"], arrays["correct"], self.bins)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the calibration error in %."""
        error, n = self.error(arrays), len(next(iter(arrays.values())))
        return {
            self.label: Estimate(
                Resampling(lambda drawn: 100 * error(drawn), (n,), (0.0, 100.0)), "%", "lower"
            )
        }


@dataclass(frozen=True, kw_only=True)
class DebiasedECE(ECE):
    """Squared calibration error of the predicted class without the bias of few images.

    Bins have equal width.

    The mean of the squared difference of accuracy and confidence in an image's bin, 0 to 1, with
    the variance of that difference subtracted (Kumar et al., 2019, arXiv:1909.10155). It is 0 on
    average for a calibrated model, so below 0 for about half of them; .0025 is a typical difference
    of 5 %.
    """

    name: ClassVar[str] = "debiased-ece"

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the squared error."""
        error = debiased_squared_error(arrays["confidence"], arrays["correct"], self.bins)
        return {
            self.label: Estimate(
                Resampling(error, (len(arrays["correct"]),), (-1.0, 1.0)), "", "lower"
            )
        }


@dataclass(frozen=True, kw_only=True)
class AdaptiveECE(ECE):
    """Adaptive calibration error of the predicted class, in %.

    Bins hold equal numbers of images.

    No bin is empty, and all have the same weight: Nguyen & O'Connor (2015), arXiv:1508.05154,
    section 3.2; Nixon et al. (2019), arXiv:1904.01685.
    """

    name: ClassVar[str] = "adaptive-ece"

    def error(self, arrays: Arrays) -> Statistic:
        """Return the calibration error, 0 to 1."""
        return adaptive_error(arrays["confidence"], arrays["correct"], self.bins)


@dataclass(frozen=True, kw_only=True)
class ClasswiseECE(ECE):
    """Classwise calibration error: that of p(k|x), averaged over the classes k, in %.

    Kull et al. (2019), arXiv:1910.12656, definition 2.
    """

    name: ClassVar[str] = "classwise-ece"

    def scores(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Arrays:
        """Return all p(k|x) (N, K) and the labels (N,)."""
        return {"probabilities": logits.softmax(dim=1).numpy(), "labels": labels.numpy()}

    def error(self, arrays: Arrays) -> Statistic:
        """Return the calibration error, 0 to 1."""
        import numpy as np

        probabilities, labels = arrays["probabilities"], arrays["labels"]
        return binned_error(
            probabilities, labels[:, None] == np.arange(probabilities.shape[1]), self.bins
        )


# --- calibration errors ---------------------------------------------------------------------------


def equal_width(confidence: Array, bins: int) -> Array:
    """Return the bin of each confidence among M of equal width on [0, 1].

    Bins are [a, b), the last one [a, 1].
    """
    import numpy as np

    return np.minimum(
        np.searchsorted(np.linspace(0, 1, bins + 1), confidence, side="right") - 1, bins - 1
    )


def binned_error(confidence: Array, hit: Array, bins: int) -> Statistic:
    """Return the calibration error in M bins of equal width, 0 to 1.

    It is the sum over bins of |sum of (hit - confidence)| / N, for index matrices (R, N).

    The weight of a bin is its share of the examples, so this is the weighted mean of |frequency -
    mean confidence|. For several columns, (N, K), each with its own bins, it is the mean over
    columns.
    """
    import numpy as np

    columns = confidence.reshape(len(confidence), -1).T
    gaps = hit.reshape(len(hit), -1).T - columns
    sums = _sums_in_bins(gaps, equal_width(columns, bins), bins)
    return lambda indices: np.abs(sums(indices)).sum(axis=0) / gaps.size


def debiased_squared_error(confidence: Array, hit: Array, bins: int) -> Statistic:
    """Return the mean squared gap of the examples' bins, without bias.

    A statistic of index matrices (R, N).

    The squared mean of (hit - confidence) of a bin with n_b examples is too large by that mean's
    variance, which is estimated from the n_b examples and subtracted: Kumar et al. (2019),
    arXiv:1909.10155, section 5. Their variance is that of hits alone, for confidences that are
    equal within a bin. A bin with one example counts as 0.
    """
    import numpy as np

    gaps = hit - confidence
    sums = _sums_in_bins(
        np.stack([np.ones_like(gaps), gaps, gaps**2]), equal_width(confidence, bins), bins
    )

    def errors(indices: Indices) -> Array:
        count, first, second = sums(indices).reshape(3, bins, -1)
        several = np.maximum(count, 2)
        # n_b (mean^2 - variance / n_b) = (sum^2 - sum of squares) / (n_b - 1)
        of_bins = np.where(count > 1, (first**2 - second) / (several - 1), 0.0)
        total: Array = of_bins.sum(axis=0) / indices.shape[1]
        return total

    return errors


def _sums_in_bins(values: Array, where: Array, bins: int) -> Statistic:
    """Return the sums in bins of the drawn examples, (S M, R).

    Values and bins have S rows, (S, N).
    """
    import numpy as np
    from scipy.sparse import csr_array

    from jembench.stats.intervals import multiplicities

    rows, n = values.shape
    places = (where + bins * np.arange(rows)[:, None]).ravel(), np.tile(np.arange(n), rows)
    into_bins = csr_array((values.ravel(), places), shape=(rows * bins, n))
    return lambda indices: into_bins @ multiplicities(indices, n).T


def adaptive_error(confidence: Array, hit: Array, bins: int) -> Statistic:
    """Return the sum of :func:`binned_error` over M bins of equal mass.

    Each resample has bins of its own.

    An example is in bin ceil(F M), where F is the share of examples that are not more confident. So
    bins hold N / M examples each, up to rounding, and examples of the same confidence are always in
    the same bin.
    """
    import numpy as np

    distinct, group = np.unique(confidence, return_inverse=True)
    gap = hit - confidence

    def errors(indices: Indices) -> Array:
        rows, n = indices.shape
        places = (group[indices] + len(distinct) * np.arange(rows)[:, None]).ravel()
        shape = (rows, len(distinct))
        count = np.bincount(places, minlength=rows * len(distinct)).reshape(shape)
        gaps = np.bincount(
            places, weights=gap[indices].ravel(), minlength=rows * len(distinct)
        ).reshape(shape)
        # integer division, rounded up
        where = np.maximum(-(-count.cumsum(axis=1) * bins // n) - 1, 0)
        where += bins * np.arange(rows)[:, None]
        sums = np.bincount(where.ravel(), weights=gaps.ravel(), minlength=rows * bins).reshape(
            rows, bins
        )
        total: Array = np.abs(sums).sum(axis=1) / n
        return total

    return errors


class Reliability(NamedTuple):
    """A reliability diagram: examples, accuracy and confidence of each bin.

    NaN for an empty bin.
    """

    edges: Array  # (M + 1,)
    counts: Array  # (M,)
    accuracy: Array  # (M,) in 0..1
    confidence: Array  # (M,) mean, in 0..1


def reliability(confidence: Array, correct: Array, bins: int) -> Reliability:
    """Return accuracy and mean confidence in M bins of equal width.

    Guo et al. (2017), arXiv:1706.04599, figure 1.
    """
    import numpy as np

    where = equal_width(confidence, bins)
    counts = np.bincount(where, minlength=bins)
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(where, weights=correct, minlength=bins) / counts
        mean = np.bincount(where, weights=confidence, minlength=bins) / counts
    return Reliability(np.linspace(0, 1, bins + 1), counts, accuracy, mean)


# --- logits ---------------------------------------------------------------------------------------


def classified(evaluation: Evaluation, images: str | Tensor = "test") -> dict[str, Array]:
    """Return ``predicted``, ``confidence`` and ``log-odds`` of images, (N,) each.

    ``predicted`` is the likeliest class, int64, and ``confidence`` its p(y|x), float64. The
    log-odds are those of the confidence.

    Raises:
        Diverged: if a logit is not finite.
    """
    logits = evaluation.predictions.read("logits", images).cpu().double()
    require_finite(logits, "logits", "test images" if images == "test" else "samples")
    values = {"predicted": logits.argmax(dim=1), "confidence": logits.softmax(dim=1).amax(dim=1)}
    return {
        name: value.numpy() for name, value in (values | {"log-odds": log_odds(logits)}).items()
    }


def log_odds(logits: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """Return log(p / (1 - p)) of the likeliest class, float64.

    It has the order of p, and is distinct even where p rounds to 1.
    """
    ranked = logits.double().sort(dim=1, descending=True).values
    return ranked[:, 0] - ranked[:, 1:].logsumexp(dim=1)


def require_finite(
    values: Tensor,
    quantity: str,
    what: str,
    advice: str = "the model has diverged. Train it again with another seed or a lower learning "
    "rate.",
) -> None:
    """Check that values (N, ...) are finite.

    A statistic of the finite ones would hide that others are not.

    Raises:
        Diverged: if not, with the number of images concerned and the advice.
    """
    bad = int((~values.isfinite()).reshape(len(values), -1).any(dim=1).sum())
    if bad:
        raise Diverged(
            f"The {quantity} of {bad} of {len(values)} {what} are not finite (NaN or infinite): "
            f"{advice}"
        )


def labelled_logits(
    evaluation: Evaluation, images: str, noise: float, logits: Tensor | None = None
) -> list[Tensor]:
    """Return the logits of images with noise, float64 (N, K), and labels (N,).

    ``noise`` is the standard deviation.

    ``images`` is a name as for :meth:`Data.part`, and ``logits``, if given, replaces the model's.

    Raises:
        NotApplicable: if the images have no labels.
        Diverged: if a logit is not finite.
        PluginError: if the logits are not real numbers (N, K).
    """
    labels = evaluation.data.part(images).labels
    if labels is None:
        raise NotApplicable(
            f"The images of {images} have no labels of the classes of {evaluation.data.spec.name}."
        )
    logits = (
        evaluation.predictions.read("logits", images, noise) if logits is None else logits
    ).cpu()
    if not logits.is_floating_point():
        raise PluginError(
            f"The logits of the {images} images are {logits.dtype}, no real floating-point numbers."
        )
    logits = logits.double()
    rows = len(logits) if logits.ndim == 2 else 0
    classes = int(labels.max()) + 1 if len(labels) else 0
    if rows != len(labels) or logits.shape[1] < classes:
        raise PluginError(
            f"The logits of {len(labels)} {images} images have the shape {tuple(logits.shape)}; "
            "they must have a row for each image and a column for each class."
        )
    require_finite(logits, "logits", f"{images} images of {evaluation.data.spec.name}")
    return [logits, labels.cpu()]


def fit_temperature(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> float:
    """Return the T in [.01, 100] for which logits / T give the lowest mean NLL.

    The NLL is convex in 1 / T, so its derivative, mean of (E_p[f] - f_y) with p = softmax(f / T),
    has one root at most.

    Raises:
        NotApplicable: if it has none in the range. If all examples are classified correctly, for
            instance, the NLL falls with the temperature down to 0, which would mean infinite
            confidence.
    """
    from scipy.optimize import brentq

    # relative to the label's logit, so that every term is negative, whatever the rounding, if all
    # examples are correct
    margins = logits.double() - logits.double().gather(1, labels[:, None])

    def slope(inverse: float) -> float:
        return float(((margins * inverse).softmax(dim=1) * margins).sum(dim=1).mean())

    if slope(1 / LOWEST) <= 0 or slope(1 / HIGHEST) >= 0:
        right = int((logits.argmax(dim=1) == labels).sum())
        raise NotApplicable(
            f"No temperature between {LOWEST} and {HIGHEST:g} is the likeliest one for the "
            f"{len(labels)} validation images, of which {right} are classified correctly. Train "
            "the model with more images held out (--set data.validation=...)."
        )
    return 1 / float(brentq(slope, 1 / HIGHEST, 1 / LOWEST, xtol=1e-12))
