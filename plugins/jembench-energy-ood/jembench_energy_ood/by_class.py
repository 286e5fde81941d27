"""Log p(x) within and between predicted classes.

The metric is the share of the variance between classes, the score is log p(x) minus class means.

Legend: N images, K classes, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from jembench.interfaces import Evaluation, Need, Quantity, Resampling
from jembench.metrics.base import Array, Arrays
from jembench.metrics.classification import classified
from jembench.metrics.densities import log_px
from jembench.metrics.samples import variance_between
from jembench.plugin import Estimate, Metric, NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.stats.intervals import Indices


@dataclass(frozen=True, kw_only=True)
class ClassOffset(Metric):
    """Share of log p(x)'s variance between predicted classes, 0 to 1.

    It is eta squared of a one-way analysis of variance. Near 1, log p(x) is mostly a constant of
    the predicted class, and ranks images by their classes; the score ``log-px-given-class``
    subtracts these constants.
    """

    name: ClassVar[str] = "class-offset"
    requires: ClassVar[frozenset[Need]] = frozenset({"logits", "energy"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits", "energy"})

    def arrays(self, evaluation: Evaluation) -> Arrays:
        """Return log p(x) in nats and the predicted classes of test images."""
        return {"log-px": log_px(evaluation), "predicted": classified(evaluation)["predicted"]}

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return eta squared."""
        scores = arrays["log-px"]
        classes = arrays["predicted"]

        def eta_squared(drawn: Indices) -> Array:
            return variance_between(scores[drawn], classes[drawn])

        share = Resampling(eta_squared, (len(scores),), (0.0, 1.0))
        return {self.name: Estimate(share)}


class GivenClass(NamedTuple):
    """Log p(x) minus its mean over held-out images of the predicted class.

    A :class:`~jembench.interfaces.metrics.FittedScore`. A class that is predicted for no held-out
    image has the mean over all held-out images.
    """

    offsets: Tensor | None = None  # float64 (K,): the mean of each class; None: not fitted
    requires: frozenset[Need] = frozenset({"logits", "energy"})
    reads: frozenset[Quantity] = frozenset({"logits", "energy"})

    def fit(self, evaluation: Evaluation, noise: float) -> tuple[GivenClass, dict[str, str | int]]:
        """Return the score with the model's offsets, and parts of the protocol."""
        import torch

        images = held_out(evaluation)
        read = evaluation.predictions.read
        energy = read("energy", images, noise).cpu()
        logits = read("logits", images, noise).cpu()
        log_px = -energy.double()
        predicted = logits.argmax(dim=1)
        size = (evaluation.data.spec.num_classes,)
        # a class without images has the mean over all images
        offsets = torch.full(size, float(log_px.mean()), dtype=torch.float64)
        offsets.scatter_reduce_(0, predicted, log_px, "mean", include_self=False)
        parts = {"fitted_on": images, "fitted_images": len(log_px)}
        return self._replace(offsets=offsets), parts

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        read = evaluation.predictions.read
        return self.of(lambda quantity: read(quantity, images, noise).cpu())

    def of(self, read: Callable[[Quantity], Tensor]) -> Tensor:
        """Return the score of each image, float64 (N,)."""
        assert self.offsets is not None, "fit comes first"
        predicted = read("logits").argmax(dim=1)
        offsets = self.offsets.to(predicted.device)
        return -read("energy").double() - offsets[predicted]


def held_out(evaluation: Evaluation) -> Literal["validation", "train"]:
    """Return the part that a score is fitted on: validation, else ``train``."""
    try:
        evaluation.data.part("validation")
    except NotApplicable:
        return "train"
    return "validation"


def log_px_given_class() -> GivenClass:
    """Log p(x) minus its mean over held-out images of the predicted class.

    Held-out images are validation images or, without any, training images.
    """
    return GivenClass()
