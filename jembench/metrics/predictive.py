"""Metrics of p(y|x) on the test images: accuracy, proper scores and calibration errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from jembench.catalog.options import added_later
from jembench.catalog.validation import Range
from jembench.interfaces import Capability, Quantity
from jembench.metrics.base import Bootstrapped, Comparable, NotNegative, check_labels

if TYPE_CHECKING:
    from jembench.interfaces import Planned

Scaling = Literal["none", "temperature"]


@added_later(data_noise=0.0)
@dataclass(frozen=True, kw_only=True)
class Predictive(Comparable):
    """A metric of the logits of the test images and their labels."""

    data_noise: NotNegative = 0.0
    computed_by: ClassVar[str] = "jembench.metrics.classification:classification"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits"})

    def check(self, planned: Planned) -> None:
        """Whether the test images have labels."""
        check_labels(planned)


@dataclass(frozen=True, kw_only=True)
class Accuracy(Predictive):
    """Share of test images classified rightly, in %, with Wilson's interval.

    ``data_noise`` is the standard deviation of Gaussian noise on the images, on [-1, 1]: .03 in the reference code of
    JEM. So it is for all metrics that have it.
    """

    name: ClassVar[str] = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Scaled(Bootstrapped, Predictive):
    """A metric of probabilities, with an interval, perhaps after temperature scaling."""

    scaling: Scaling = "none"

    def check(self, planned: Planned) -> None:
        """Whether the test images have labels, and there are validation images to fit a temperature on."""
        super().check(planned)
        if self.scaling == "temperature":
            planned.count("validation")


@dataclass(frozen=True, kw_only=True)
class NLL(Scaled):
    """Mean negative log-likelihood -log p(y|x) on the test images, in nats.

    ``scaling=temperature`` divides the logits by a temperature fitted on validation images, which the recipe must hold
    out; so it does for all metrics of calibration.
    """

    name: ClassVar[str] = "nll"


@dataclass(frozen=True, kw_only=True)
class Brier(Scaled):
    """Brier score on the test images: squared error of p(y|x), summed over classes, 0 to 2."""

    name: ClassVar[str] = "brier"


@dataclass(frozen=True, kw_only=True)
class ECE(Scaled):
    """Expected calibration error of the predicted class, equal-width bins, in %.

    It is above 0 for a calibrated model as well: by 4.6 % for 397 images with confidences uniform in .55 to 1. The
    interval is of its mean over as many images; ``debiased-ece`` has no such bias.
    """

    bins: Annotated[int, Range(least=1, most=1000)] = 20  # each resample holds all of them
    name: ClassVar[str] = "ece"


@dataclass(frozen=True, kw_only=True)
class DebiasedECE(ECE):
    """Squared calibration error of the predicted class, equal-width bins, without the bias of few images.

    The mean of the squared difference of accuracy and confidence in an image's bin, 0 to 1, with the variance of that
    difference subtracted (Kumar et al., 2019, arXiv:1909.10155). It is 0 on average for a calibrated model, so below 0
    for about half of them; .0025 is a typical difference of 5 %.
    """

    name: ClassVar[str] = "debiased-ece"


@dataclass(frozen=True, kw_only=True)
class AdaptiveECE(ECE):
    """Adaptive calibration error: that of the predicted class in bins that hold as many images each, in %."""

    name: ClassVar[str] = "adaptive-ece"


@dataclass(frozen=True, kw_only=True)
class ClasswiseECE(ECE):
    """Classwise calibration error: that of each p(k|x) against how often the class is k, averaged over k, in %."""

    name: ClassVar[str] = "classwise-ece"
