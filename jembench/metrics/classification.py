"""Accuracy, proper scores and calibration errors of p(y|x) on the test images.

Everything is computed in float64 from the model's float32 logits.

Legend: N examples, K classes or columns of confidences, M bins, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from jembench.catalog.options import Neutral
from jembench.catalog.validation import Range
from jembench.errors import Diverged, NotApplicable, PluginError
from jembench.interfaces import Evaluation, Measurement, Quantity, Resampling
from jembench.metrics.base import (
    NOT_NEGATIVE,
    PERCENT,
    Array,
    Arrays,
    Estimate,
    Estimates,
    Metric,
    Needs,
    NotNegative,
    Parts,
    describe_test_images,
    mean,
    share,
)
from jembench.metrics.binning import adaptive_error, binned_error, debiased_squared_error

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from jembench.stats.intervals import Statistic

    Logits = Float[Tensor, "N K"]
    Labels = Int[Tensor, " N"]

LOWEST, HIGHEST = 0.01, 100.0
"""The range of temperatures that is searched."""

# --- metrics --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Classification(Metric):
    """A metric of the logits of the test images and their labels."""

    data_noise: NotNegative = 0.0
    reads = frozenset({"logits"})

    @property
    def requires(self) -> Needs:
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
        scores = self.scores(logits, labels)
        parts = describe_test_images(len(labels), self.data_noise)
        return self.measurement(evaluation, scores, parts=parts)

    def scores(self, logits: Logits, labels: Labels) -> Arrays:
        """Return the arrays of each example, from float64 logits."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Accuracy(Classification):
    """Share of test images classified correctly, in %, with Wilson's interval.

    With ``top=5`` an image is classified correctly if its class is among the five of the largest
    logits. In all metrics, ``data_noise`` is the standard deviation, on [-1, 1], of Gaussian noise
    that is added to the images: .03 in the reference code of JEM.
    """

    top: Annotated[int, Range(least=1), Neutral()] = 1
    name = "accuracy"

    @property
    def protocol_options(self) -> Parts:
        """The options that are part of the protocol; ``top=1`` is left out."""
        options = super().protocol_options
        if self.top == 1:
            del options["top"]
        return options

    @property
    def label(self) -> str:
        """The label of the value: ``accuracy``, or ``top-5-accuracy``."""
        return self.name if self.top == 1 else f"top-{self.top}-{self.name}"

    def scores(self, logits: Logits, labels: Labels) -> Arrays:
        """Return ``correct``, bool (N,): whether few enough logits come before the label's."""
        import torch

        own = logits.gather(1, labels[:, None])
        # of equal logits the first counts as the largest, as for argmax
        precedes = torch.arange(logits.shape[1]) < labels[:, None]
        before = (logits > own) | ((logits == own) & precedes)
        return {"correct": (before.sum(dim=1) < self.top).numpy()}

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the share."""
        return {self.label: share(arrays["correct"], "higher")}

    def of_logits(self, evaluation: Evaluation, logits: Tensor, labels: Tensor) -> Measurement:
        """Measure images; the details hold the accuracy of random guesses.

        Raises:
            NotApplicable: if ``top`` is more than one, and no class is left out.
        """
        data = evaluation.data.spec
        if 1 < self.top >= data.num_classes:
            raise NotApplicable(
                f"{data.name} has {data.num_classes} classes, all of which are among the "
                f"{self.top} of the largest logits."
            )
        measured = super().of_logits(evaluation, logits, labels)
        chance = 100 * self.top / data.num_classes
        return replace(measured, details={"chance": chance})


@dataclass(frozen=True, kw_only=True)
class Scaled(Classification):
    """A metric of probabilities, optionally after temperature scaling.

    With scaling, the logits are divided by the temperature that minimises the mean NLL of the
    *validation* images; test images do not influence the temperature. Guo et al. (2017),
    arXiv:1706.04599, section 4.2.
    """

    scaling: Literal["none", "temperature"] = "none"

    @property
    def requires(self) -> Needs:
        """The needs of the metric: with scaling, validation images too."""
        if self.scaling == "none":
            return super().requires
        return super().requires | {"validation"}

    @property
    def protocol_options(self) -> Parts:
        """The options that are part of the protocol; ``scaling=none`` is left out."""
        options = super().protocol_options
        if self.scaling == "none":
            del options["scaling"]
        return options

    @property
    def label(self) -> str:
        """The label of the value; after scaling it differs, so that tables show both."""
        if self.scaling == "none":
            return self.name
        return f"{self.name}-scaled"

    def of_logits(self, evaluation: Evaluation, logits: Tensor, labels: Tensor) -> Measurement:
        """Measure images.

        Raises:
            NotApplicable: if the validation images determine no temperature.
        """
        if self.scaling == "none":
            return super().of_logits(evaluation, logits, labels)

        held_out = labelled_logits(evaluation, "validation", self.data_noise)
        temperature = fit_temperature(*held_out)
        n = len(held_out.labels)

        scores = self.scores(logits / temperature, labels)
        parts = describe_test_images(len(labels), self.data_noise)
        parts["validation_images"] = n
        details = {"temperature": temperature, "validation_images": n}
        return self.measurement(evaluation, scores, parts=parts, details=details)


@dataclass(frozen=True, kw_only=True)
class NLL(Scaled):
    """Mean negative log-likelihood -log p(y|x) on the test images, in nats.

    ``scaling=temperature`` divides the logits by a temperature fitted on validation images, which
    the recipe must hold out. All metrics of calibration have this option.
    """

    name = "nll"

    def scores(self, logits: Logits, labels: Labels) -> Arrays:
        """Return -log p(y|x) of each example (N,), at least 0."""
        from torch.nn import functional as F

        losses = F.cross_entropy(logits, labels, reduction="none")
        return {"nll": losses.numpy()}

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the mean."""
        return {self.label: mean(arrays["nll"], "nats", "lower", NOT_NEGATIVE)}


@dataclass(frozen=True, kw_only=True)
class Brier(Scaled):
    """Brier score on the test images: squared error of p(y|x), summed over classes, 0 to 2.

    Brier (1950), Monthly Weather Review 78(1), equation 2: the sum over classes, not their mean.
    """

    name = "brier"

    def scores(self, logits: Logits, labels: Labels) -> Arrays:
        """Return the sum over classes of (p(k|x) - [k = y])^2 of each example (N,)."""
        from torch.nn import functional as F

        one_hot = F.one_hot(labels, logits.shape[1])
        errors = (logits.softmax(dim=1) - one_hot).square()
        return {"brier": errors.sum(dim=1).numpy()}

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the mean."""
        return {self.label: mean(arrays["brier"], "", "lower", (0.0, 2.0))}


@dataclass(frozen=True, kw_only=True)
class ECE(Scaled):
    """Expected calibration error of the predicted class, equal-width bins, in %.

    Even a calibrated model has an ECE above 0: 4.6 % for 397 images with confidences uniform in .55
    to 1. The interval is of the mean ECE over samples of as many images; ``debiased-ece`` has no
    such bias. Guo et al. (2017), arXiv:1706.04599, equation 3; 20 bins as in Grathwohl et al.
    (2020), arXiv:1912.03263, section 5.2.
    """

    bins: Annotated[int, Range(least=1, most=1000)] = 20  # memory: a resample holds all bins' sums
    name = "ece"

    def scores(self, logits: Logits, labels: Labels) -> Arrays:
        """Return ``confidence``, ``predicted`` and ``correct`` of logits, (N,) each.

        The confidence is the largest p(k|x), ``predicted`` its class, and ``correct`` whether this
        class is the label.
        """
        confidence, predicted = logits.double().softmax(dim=1).max(dim=1)
        return {
            "confidence": confidence.numpy(),
            "predicted": predicted.numpy(),
            "correct": (predicted == labels).numpy(),
        }

    def error(self, arrays: Arrays) -> Statistic:
        """Return the calibration error, 0 to 1."""
        return binned_error(arrays["confidence"], arrays["correct"], self.bins)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the calibration error in %."""
        error = self.error(arrays)
        n = len(next(iter(arrays.values())))
        percent = Resampling(lambda drawn: 100 * error(drawn), (n,), PERCENT)
        return {self.label: Estimate(percent, "%", "lower")}


@dataclass(frozen=True, kw_only=True)
class DebiasedECE(ECE):
    """Squared calibration error of the predicted class without the bias of few images.

    The mean over images of the squared difference between accuracy and confidence in the image's
    bin of equal width, minus the variance of the difference (Kumar et al., 2019, arXiv:1909.10155).
    For calibrated models it is 0 on average, so below 0 for about half of them; .0025 means a
    typical difference of 5 %.
    """

    name = "debiased-ece"

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the squared error."""
        confidence, correct = arrays["confidence"], arrays["correct"]
        error = debiased_squared_error(confidence, correct, self.bins)
        resampling = Resampling(error, (len(correct),), (-1.0, 1.0))
        return {self.label: Estimate(resampling, "", "lower")}


@dataclass(frozen=True, kw_only=True)
class AdaptiveECE(ECE):
    """Adaptive calibration error of the predicted class, in %.

    Bins hold equal numbers of images, so that none is empty and all have the same weight: Nguyen &
    O'Connor (2015), arXiv:1508.05154, section 3.2; Nixon et al. (2019), arXiv:1904.01685.
    """

    name = "adaptive-ece"

    def error(self, arrays: Arrays) -> Statistic:
        """Return the calibration error, 0 to 1."""
        return adaptive_error(arrays["confidence"], arrays["correct"], self.bins)


@dataclass(frozen=True, kw_only=True)
class ClasswiseECE(ECE):
    """Calibration error of p(k|x), averaged over the classes k, in %.

    Kull et al. (2019), arXiv:1910.12656, definition 2.
    """

    name = "classwise-ece"

    def scores(self, logits: Logits, labels: Labels) -> Arrays:
        """Return all p(k|x) (N, K) and the labels (N,)."""
        return {"probabilities": logits.softmax(dim=1).numpy(), "labels": labels.numpy()}

    def error(self, arrays: Arrays) -> Statistic:
        """Return the calibration error, 0 to 1."""
        import numpy as np

        probabilities, labels = arrays["probabilities"], arrays["labels"]
        classes = np.arange(probabilities.shape[1])
        return binned_error(probabilities, labels[:, None] == classes, self.bins)


# --- logits ---------------------------------------------------------------------------------------


def classified(evaluation: Evaluation, images: str | Tensor = "test") -> dict[str, Array]:
    """Return ``predicted``, ``confidence`` and ``log-odds`` of images, (N,) each.

    ``predicted`` is the likeliest class, int64, ``confidence`` its p(y|x), float64, and
    ``log-odds`` the log-odds of the confidence.

    Raises:
        Diverged: if a logit is not finite.
    """
    logits = read_finite(evaluation, "logits", images).double()
    return {
        "predicted": logits.argmax(dim=1).numpy(),
        "confidence": logits.softmax(dim=1).amax(dim=1).numpy(),
        "log-odds": log_odds(logits).numpy(),
    }


def read_finite(evaluation: Evaluation, quantity: Quantity, images: str | Tensor) -> Tensor:
    """Return a quantity of the test images or of samples, on the CPU.

    Raises:
        Diverged: if a value is not finite.
    """
    values = evaluation.predictions.read(quantity, images).cpu()
    quantities = "energies" if quantity == "energy" else quantity
    what = "test images" if images == "test" else "samples"
    require_finite(values, quantities, what)
    return values


def log_odds(logits: Logits) -> Float[Tensor, " N"]:
    """Return log(p / (1 - p)) of the likeliest class, float64.

    Log-odds have the order of p, and differ even where p rounds to 1.
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

    A statistic of the finite values would hide the others.

    Raises:
        Diverged: if a value is not finite, with the number of images concerned and the advice.
    """
    bad = int((~values.isfinite()).reshape(len(values), -1).any(dim=1).sum())
    if bad:
        raise Diverged(
            f"The {quantity} of {bad} of {len(values)} {what} are not finite (NaN or infinite): "
            f"{advice}"
        )


class LabelledLogits(NamedTuple):
    """Logits of images and their labels, on the CPU."""

    logits: Tensor  # float64 (N, K)
    labels: Tensor  # int64 (N,)


def labelled_logits(
    evaluation: Evaluation, images: str, noise: float, logits: Tensor | None = None
) -> LabelledLogits:
    """Return the logits of images with noise, float64 (N, K), and labels (N,).

    ``images`` is a name as for :meth:`Data.part`, and ``noise`` the standard deviation; ``logits``,
    if given, replace the model's logits.

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
    if logits is None:
        logits = evaluation.predictions.read("logits", images, noise)
    if not logits.is_floating_point():
        raise PluginError(
            f"The logits of the {images} images are {logits.dtype}, not real floating-point ones."
        )
    logits = logits.cpu().double()
    is_table = logits.ndim == 2 and len(logits) == len(labels)
    if not is_table or bool((labels >= logits.shape[1]).any()):
        raise PluginError(
            f"The logits of {len(labels)} {images} images have the shape {tuple(logits.shape)}; "
            "they must have a row for each image and a column for each class."
        )
    require_finite(logits, "logits", f"{images} images of {evaluation.data.spec.name}")
    return LabelledLogits(logits, labels.cpu())


def fit_temperature(logits: Logits, labels: Labels) -> float:
    """Return the T in [.01, 100] for which logits / T give the lowest mean NLL.

    The NLL is convex in 1 / T, so its derivative, mean of (E_p[f] - f_y) with p = softmax(f / T),
    has one root at most.

    Raises:
        NotApplicable: if there is no root in the range. If all examples are classified correctly,
            for instance, the NLL falls until the temperature is 0, which would mean infinite
            confidence.
    """
    from scipy.optimize import brentq

    # relative to the label's logit: if all examples are correct, every term is negative, whatever
    # the rounding
    logits = logits.double()
    margins = logits - logits.gather(1, labels[:, None])

    def slope(inverse: float) -> float:
        p = (margins * inverse).softmax(dim=1)
        return float((p * margins).sum(dim=1).mean())

    if slope(1 / LOWEST) <= 0 or slope(1 / HIGHEST) >= 0:
        right = int((logits.argmax(dim=1) == labels).sum())
        raise NotApplicable(
            f"No temperature between {LOWEST} and {HIGHEST:g} minimises the NLL of the "
            f"{len(labels)} validation images, of which {right} are classified correctly. Train "
            "the model with more images held out (--set data.validation=...)."
        )
    return 1 / float(brentq(slope, 1 / HIGHEST, 1 / LOWEST, xtol=1e-12))
