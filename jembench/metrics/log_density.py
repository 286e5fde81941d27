"""What a model finds likely: log p(x) of the test images, and the images at its two ends.

Legend: N test images, K classes, n images at an end, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from jembench.errors import Diverged
from jembench.interfaces import Capability, Classifier, Evaluation, Measurement, Quantity, Resampling, Value
from jembench.metrics.classification import classification_protocol
from jembench.metrics.classified import classified
from jembench.metrics.pictures import first_of_classes, in_rows, pictures, places, random_of_classes
from jembench.metrics.protocol import bootstrap_rng, require_at_least, value_of
from jembench.metrics.resampled import bootstrapped, highest_of
from jembench.metrics.shares import class_resampling, share, share_resampling
from jembench.stats import interval_of, ranking

Arrays = Mapping[str, NDArray[Any]]

END = 100
"""Images at either end, but never more than a quarter of all."""

_PER_IMAGE = ("log-px", "labels", "predicted", "confidence", "log-odds")


def size_of_end(n: int) -> int:
    """How many of n test images are at either end."""
    return max(1, min(END, n // 4))


def log_density(energies: Float[Tensor, " N"], what: str = "test images") -> NDArray[np.float64]:
    """Log p(x) = -E(x) up to an unknown constant, in nats; ``what`` they are of, for the error.

    Raises:
        Diverged: if one is not finite.
    """
    bad = int((~energies.isfinite()).sum())
    if bad:
        raise Diverged(
            f"log p(x) of {bad} of {len(energies)} {what} is not finite (NaN or infinite), so none can be the "
            "highest: the model has diverged. Train it again with another seed or a lower learning rate."
        )
    density: NDArray[np.float64] = -energies.cpu().double().numpy()
    return density


@dataclass(frozen=True, kw_only=True, slots=True)
class LogDensity:
    """The spread of log p(x) over the test images, in nats, and how its highest differ from its lowest.

    The two ends are the 100 images of the highest and of the lowest log p(x), or a quarter of the images each if that
    is fewer. ``classes-top`` is the effective number of classes, by label, at the upper end; ``accuracy-top`` and
    ``accuracy-bottom`` the share of images classified rightly at each end, in %; ``auroc-correct`` how well log p(x)
    tells images that are classified rightly (the positive class) from the others. A model that does not classify, or a
    dataset without labels, leaves out what needs them.
    """

    resamples: int = 1000
    name: ClassVar[str] = "log-density"
    requires: ClassVar[frozenset[Capability]] = frozenset({"energy"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy", "logits"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def compute(self, evaluation: Evaluation) -> Measurement:
        arrays = _per_image(evaluation)
        arrays |= _shown(arrays, evaluation)
        n = len(arrays["log-px"])
        return Measurement(
            protocol=classification_protocol(self.name, evaluation, n, top=size_of_end(n)),
            values=self._values(arrays, evaluation),
            arrays=arrays,
            details=_details(arrays, evaluation),
        )

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of test images, each resample with two ends of its own.

        Not of ``auroc-correct``: which images are classified rightly differs from model to model, and so would the
        samples to draw from.
        """
        log_px = arrays["log-px"]
        n = len(log_px)
        found = {"log-px-spread": Resampling(lambda indices: log_px[indices].std(axis=1), (n,), (0.0, np.inf))}
        if "labels" not in arrays:
            return found
        order = _order(arrays)
        top, bottom = (highest_of(ranked, size_of_end(n)) for ranked in (order, order[::-1]))
        classes = class_resampling(arrays["labels"], len(arrays["highest"]))
        found["classes-top"] = classes._replace(statistic=lambda indices: classes.statistic(top(indices)))
        if "predicted" in arrays:
            right = share_resampling(arrays["predicted"] == arrays["labels"])
            found["accuracy-top"] = right._replace(statistic=lambda indices: right.statistic(top(indices)))
            found["accuracy-bottom"] = right._replace(statistic=lambda indices: right.statistic(bottom(indices)))
        return found

    def _values(self, arrays: Arrays, evaluation: Evaluation) -> dict[str, Value]:
        rng = bootstrap_rng(evaluation, self.name)
        order = _order(arrays)  # then no resample depends on the order of the images
        in_order = {name: array[order] if name in _PER_IMAGE else array for name, array in arrays.items()}
        resamplings = self.resamplings(in_order)
        n = size_of_end(len(arrays["log-px"]))
        values = {"log-px-spread": bootstrapped(resamplings["log-px-spread"], rng, self.resamples, "nats")}
        if "classes-top" in resamplings:
            values["classes-top"] = bootstrapped(resamplings["classes-top"], rng, self.resamples, n=n)
        if "accuracy-top" in resamplings:
            right = in_order["predicted"] == in_order["labels"]
            values |= {"accuracy-top": share(right[:n], "higher"), "accuracy-bottom": share(right[-n:], "higher")}
            if 0 < right.sum() < len(right):
                values["auroc-correct"] = self._detection(in_order["log-px"], right, rng)
        return values

    def _detection(self, log_px: NDArray[np.float64], right: NDArray[np.bool_], rng: np.random.Generator) -> Value:
        """The AUROC of log p(x) for images that are classified rightly."""
        auroc = float(roc_auc_score(right, log_px))
        resampling = ranking.auroc_resampling(log_px[right], log_px[~right])
        interval = interval_of(auroc, resampling, rng=rng, resamples=self.resamples)
        return value_of(auroc, interval, min(resampling.sizes), "", "higher")


def _per_image(evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    """What is known of each test image, in their order."""
    arrays: dict[str, NDArray[Any]] = {"log-px": log_density(evaluation.energies())}
    labels = evaluation.test().labels
    if labels is not None:
        arrays["labels"] = labels.cpu().numpy()
    if isinstance(evaluation.model, Classifier):
        arrays |= classified(evaluation.logits(), "test images").arrays()
    return arrays


def _order(arrays: Arrays, *ties: NDArray[np.int64]) -> NDArray[np.int64]:
    """The images from the highest to the lowest log p(x); of equals, in no order of the images."""
    known = [arrays[name] for name in ("predicted", "labels") if name in arrays]
    return np.lexsort((*ties, *known, -arrays["log-px"]))


def _shown(arrays: Arrays, evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    """The images at either end, of all and of each class, and random ones of each class."""
    images, n = evaluation.test().images, size_of_end(len(arrays["log-px"]))
    content = places(images)
    order = _order(arrays, content)
    grids = {"top": in_rows(order[:n]), "bottom": in_rows(order[::-1][:n])}
    if "log-odds" in arrays:
        surest = np.lexsort((content, -arrays["log-odds"]))
        grids |= {"top-confidence": in_rows(surest[:n]), "bottom-confidence": in_rows(surest[::-1][:n])}
    if "labels" in arrays:
        labels, num_classes = arrays["labels"], evaluation.data.num_classes
        generator = evaluation.generator("log-density images")
        grids |= {
            "highest": first_of_classes(order, labels, num_classes),
            "random": random_of_classes(images, labels, num_classes, generator),
            "lowest": first_of_classes(order[::-1], labels, num_classes),
        }
    return pictures(images, grids)


def _details(arrays: Arrays, evaluation: Evaluation) -> dict[str, Any]:
    n = size_of_end(len(arrays["log-px"]))
    details: dict[str, Any] = {"top": n}
    if "labels" not in arrays:
        return details
    labels = arrays["labels"][_order(arrays)]
    for end, members in (("top", labels[:n]), ("bottom", labels[-n:])):
        details[f"counts-{end}"] = np.bincount(members, minlength=evaluation.data.num_classes).tolist()
    if "predicted" in arrays and len(set(arrays["predicted"] == arrays["labels"])) == 1:
        details["auroc-correct"] = "not defined: all images are classified rightly, or none is"
    return details
