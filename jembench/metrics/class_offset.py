"""The share of the variance of log p(x) that lies between predicted classes.

Legend: N images, K classes, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jembench.interfaces import Evaluation, Need, Quantity, Resampling
from jembench.metrics.base import Array, Arrays, Estimate, Metric
from jembench.metrics.classification import classified
from jembench.metrics.densities import log_px

if TYPE_CHECKING:
    from jembench.stats.intervals import Indices


@dataclass(frozen=True, kw_only=True)
class ClassOffset(Metric):
    """Share of the variance of log p(x) over test images that lies between predicted classes, 0 to 1.

    It is eta squared of a one-way analysis of variance. Near 1, log p(x) is mostly a constant of the predicted class,
    and ranks images by their classes; the score ``log-px-given-class`` of ``ood`` subtracts these constants.
    """

    name: ClassVar[str] = "class-offset"
    requires: ClassVar[frozenset[Need]] = frozenset({"logits", "energy"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"logits", "energy"})

    def arrays(self, evaluation: Evaluation) -> Arrays:
        """Return log p(x) in nats and the predicted class of each test image (N,)."""
        return {"log-px": log_px(evaluation), "predicted": classified(evaluation)["predicted"]}

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return eta squared."""
        scores, classes = arrays["log-px"], arrays["predicted"]

        def eta_squared(drawn: Indices) -> Array:
            return variance_between(scores[drawn], classes[drawn])

        return {self.name: Estimate(Resampling(eta_squared, (len(scores),), (0.0, 1.0)))}


def variance_between(values: Array, classes: Array) -> Array:
    """Return the share of the variance of values (R, N) between classes (R, N), (R,) in 0..1; 0 for equal values."""
    import numpy as np

    rows, num_classes = len(values), int(classes.max()) + 1
    deviations = values - values.mean(axis=1, keepdims=True)
    cells = (classes + num_classes * np.arange(rows)[:, None]).ravel()
    sums, members = (np.bincount(cells, given, rows * num_classes) for given in (deviations.ravel(), None))
    between = (sums**2 / np.maximum(members, 1)).reshape(rows, num_classes).sum(axis=1)
    total = (deviations**2).sum(axis=1)
    shares: Array = np.divide(between, total, out=np.zeros(rows), where=total > 0)
    return shares
