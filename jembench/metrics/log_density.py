"""Log p(x) of test images or of samples: its spread, and the classes at its extremes.

Legend: N images, n of them at either end, K classes, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from jembench.catalog.options import Neutral
from jembench.interfaces import Classifier, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.base import (
    NOT_NEGATIVE,
    Array,
    Arrays,
    Estimate,
    Estimates,
    Metric,
    Needs,
    Parts,
    describe_test_images,
    share,
)
from jembench.metrics.classification import classified
from jembench.metrics.densities import log_px
from jembench.metrics.sample_protocol import SampleProtocol

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.stats.intervals import Indices

END = 100
"""The number of images at either end, at most a quarter of all."""


class _Measured(NamedTuple):
    images: Tensor
    labels: Array | None
    parts: Parts  # of the protocol


@dataclass(frozen=True, kw_only=True)
class LogDensity(Metric):
    """Log p(x) of the test images or of samples, in nats.

    Its values are the spread of log p(x), and the classes at the extremes.

    The two ends are the 100 images of the highest and of the lowest log p(x), or a quarter of all
    images each, if fewer. ``classes-top`` is the effective number of classes, by label, at the
    upper end; ``accuracy-top`` and ``accuracy-bottom`` the share of images classified correctly at
    each end, in %; ``auroc-correct`` the AUROC of log p(x) for images that are classified correctly
    (the positive class) against all other images. Values that need logits or labels are left out
    where there are none.

    ``source=kept`` measures the samples that training kept, as in Figures 9 to 12 and Appendix D of
    Grathwohl et al. (2020), and ``source=fresh`` the ends of new chains. Samples are counted by the
    class that the model predicts, and have no accuracies; the labels of values end with the source:
    ``log-px-spread-kept``.
    """

    source: Annotated[Literal["test", "kept", "fresh"], Neutral()] = "test"
    name = "log-density"
    reads = frozenset({"energy", "logits"})

    @property
    def requires(self) -> Needs:
        """An energy, and the samples if they are measured."""
        if self.source == "test":
            return frozenset({"energy"})
        return frozenset({"energy", "samples"})

    @property
    def protocol_options(self) -> Parts:
        """No options, since they are part of the description of the images."""
        return {}

    @property
    def samples(self) -> SampleProtocol | None:
        """The samples that are measured; None: the test images."""
        if self.source == "test":
            return None
        return SampleProtocol(source=self.source)

    def check(self, planned: Planned) -> None:
        """Check that the model will have the samples."""
        if self.samples:
            planned.samples(self.samples.wanted)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the images; the arrays hold the images at the ends too."""
        images, labels, parts = self._measured(evaluation)
        which = images if self.samples else "test"

        # samples are counted by the class that the model predicts
        arrays: dict[str, Any] = {"log-px": log_px(evaluation, which)}
        if isinstance(evaluation.model, Classifier):
            arrays |= classified(evaluation, which)
            if self.samples:
                labels = arrays["predicted"]
        if labels is not None:
            arrays["labels"] = labels
        arrays |= _images_at_ends(arrays, images, evaluation)

        estimates = self.estimates(arrays) | _detection(arrays)
        details: dict[str, Any] = {}
        if "accuracy-top" in estimates and "auroc-correct" not in estimates:
            reason = "All images are classified correctly, or none is."
            details["undefined"] = {"auroc-correct": reason}
        parts["top"] = size_of_end(len(images))
        return self.measurement(
            evaluation, arrays, estimates=estimates, parts=parts, details=details
        )

    def _measured(self, evaluation: Evaluation) -> _Measured:
        if self.samples:
            samples = evaluation.samples(self.samples.wanted)
            n = len(samples.images)
            return _Measured(samples.images, None, self.samples.description(n, n, samples.source))

        images, labels = evaluation.data.part("test")
        parts = describe_test_images(len(images))
        if labels is None:
            return _Measured(images, None, parts)
        return _Measured(images, labels.cpu().numpy(), parts)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the values of the images, except ``auroc-correct``.

        Each resample has its own extremes.

        The correctly classified images, from which ``auroc-correct`` is resampled, differ between
        models, so that two models cannot be compared image by image.
        """
        log_px = arrays["log-px"]
        n = len(log_px)
        spread = Resampling(lambda drawn: log_px[drawn].std(axis=1), (n,), NOT_NEGATIVE)
        estimates = {"log-px-spread": Estimate(spread, "nats")}

        order, end = highest_first(log_px), size_of_end(n)
        if "labels" in arrays:
            classes = effective_classes(arrays["labels"], len(arrays["highest"]))
            estimates["classes-top"] = among_highest(classes, order, end)
        if self.samples:
            return {f"{label}-{self.source}": estimate for label, estimate in estimates.items()}

        if {"labels", "predicted"} <= arrays.keys():
            right = share(arrays["predicted"] == arrays["labels"], "higher")
            estimates["accuracy-top"] = among_highest(right, order, end)
            estimates["accuracy-bottom"] = among_highest(right, order[::-1], end)
        return estimates


def size_of_end(n: int) -> int:
    """Return the number of extreme images of n."""
    return max(1, min(END, n // 4))


def highest_first(values: Array) -> Array:
    """Return the order from the highest value to the lowest; equal values keep their order."""
    return (-values).argsort(kind="stable")


def effective_classes(classes: Array, num_classes: int) -> Estimate:
    """Return the effective number of classes (N,) of images, from 1 to K.

    It is the exponential of the entropy of the classes' shares, the Hill number of order 1. Jost
    (2006), Oikos 113(2), 363-375.
    """
    import numpy as np
    from scipy.special import entr

    from jembench.stats.intervals import multiplicities

    def hill_number(indices: Indices) -> Array:
        counts = multiplicities(classes[indices], num_classes)
        shares = counts / counts.sum(axis=1, keepdims=True)
        numbers: Array = np.exp(entr(shares).sum(axis=1))
        return numbers

    return Estimate(Resampling(hill_number, (len(classes),), (1.0, float(num_classes))))


def among_highest(estimate: Estimate, order: Array, n: int) -> Estimate:
    """Return a statistic restricted to the n highest images of each resample.

    Args:
        estimate: of all N images.
        order: (N,) the images from the highest to the lowest.
        n: at most N.
    """
    import numpy as np

    statistic = estimate.resampling.statistic
    trials = min(n, estimate.resampling.trials)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))

    def of_highest(indices: Indices) -> Array:
        highest = np.partition(rank[indices], n - 1, axis=1)[:, :n]
        return statistic(order[highest])

    resampling = estimate.resampling._replace(statistic=of_highest, trials=trials)
    flags = estimate.flags
    if flags is not None:
        flags = flags[order[:n]]
    return estimate._replace(resampling=resampling, n=n, flags=flags)


def _detection(arrays: Arrays) -> Estimates:
    """Return the AUROC of log p(x) for correctly classified images, if it is defined.

    Some images must be correct and some not.
    """
    if not {"predicted", "labels"} <= arrays.keys():
        return {}
    right = arrays["predicted"] == arrays["labels"]
    if right.all() or not right.any():
        return {}
    from jembench.stats import ranking

    log_px = arrays["log-px"]
    resampling = ranking.auroc_resampling(log_px[right], log_px[~right])
    return {"auroc-correct": Estimate(resampling, "", "higher")}


def _images_at_ends(arrays: Arrays, images: Tensor, evaluation: Evaluation) -> Arrays:
    """Return extreme images, overall and by class, and random images by class."""
    import torch

    from jembench.data.grid import arranged, first_of_classes, pictures

    order = highest_first(arrays["log-px"])
    n = size_of_end(len(order))
    grids = {"top": arranged(order[:n]), "bottom": arranged(order[::-1][:n])}
    if "log-odds" in arrays:
        surest = highest_first(arrays["log-odds"])
        grids["top-confidence"] = arranged(surest[:n])
        grids["bottom-confidence"] = arranged(surest[::-1][:n])
    if "labels" in arrays:
        labels, num_classes = arrays["labels"], evaluation.data.spec.num_classes
        generator = evaluation.services.generator("log-density images")
        shuffled = torch.randperm(len(labels), generator=generator).numpy()
        grids["highest"] = first_of_classes(order, labels, num_classes)
        grids["random"] = first_of_classes(shuffled, labels, num_classes)
        grids["lowest"] = first_of_classes(order[::-1], labels, num_classes)
    return pictures(images, grids)
