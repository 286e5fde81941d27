"""What a model finds likely: log p(x) of the test images, and the images at its two ends.

Legend: N test images, K classes, n images at an end, R resamples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from jembench.errors import Diverged
from jembench.interfaces import Classifier, Evaluation, Measurement, Resampling
from jembench.metrics.classification import classification_protocol
from jembench.metrics.classified import classified
from jembench.metrics.densities import LogDensity
from jembench.metrics.estimates import Arrays, Estimate, among_highest, effective_classes, share, values_of
from jembench.metrics.pictures import first_of_classes, in_rows, pictures, places, random_of_classes
from jembench.stats import ranking

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


def compute(metric: LogDensity, evaluation: Evaluation) -> Measurement:
    """Measure the test images."""
    arrays = _per_image(evaluation)
    arrays |= _shown(arrays, evaluation)
    n = len(arrays["log-px"])
    order = _order(arrays)  # then no resample depends on the order of the images
    in_order = {name: array[order] if name in _PER_IMAGE else array for name, array in arrays.items()}
    found = estimates(metric, in_order) | _detection(in_order)
    return Measurement(
        protocol=classification_protocol(metric.name, evaluation, n, top=size_of_end(n)),
        values=values_of(found, evaluation, metric.name, metric.resamples),
        arrays=arrays,
        details=_details(arrays, evaluation),
    )


def estimates(metric: LogDensity, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of test images, each resample with two ends of its own.

    Not ``auroc-correct``: which images are classified rightly differs from model to model, and so would the samples to
    draw from.
    """
    log_px = arrays["log-px"]
    n = len(log_px)
    spread = Resampling(lambda indices: log_px[indices].std(axis=1), (n,), (0.0, np.inf))
    found = {"log-px-spread": Estimate(spread, "nats")}
    if "labels" not in arrays:
        return found
    order, end = _order(arrays), size_of_end(n)
    classes = effective_classes(arrays["labels"], len(arrays["highest"]))
    found["classes-top"] = among_highest(classes, order, end)
    if "predicted" in arrays:
        right = share(arrays["predicted"] == arrays["labels"], "higher")
        found["accuracy-top"] = among_highest(right, order, end)
        found["accuracy-bottom"] = among_highest(right, order[::-1], end)
    return found


def _detection(arrays: Arrays) -> dict[str, Estimate]:
    """The AUROC of log p(x) for images that are classified rightly, where some are and some are not."""
    right = arrays["predicted"] == arrays["labels"] if {"predicted", "labels"} <= arrays.keys() else np.zeros(0, bool)
    if not 0 < right.sum() < len(right):
        return {}
    log_px = arrays["log-px"]
    resampling = ranking.auroc_resampling(log_px[right], log_px[~right])
    return {"auroc-correct": Estimate(resampling, "", "higher", value=float(roc_auc_score(right, log_px)))}


def _per_image(evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    """What is known of each test image, in their order."""
    arrays: dict[str, NDArray[Any]] = {"log-px": log_density(evaluation.predictions.read("energy"))}
    labels = evaluation.data.part("test").labels
    if labels is not None:
        arrays["labels"] = labels.cpu().numpy()
    if isinstance(evaluation.model, Classifier):
        arrays |= classified(evaluation.predictions.read("logits"), "test images").arrays()
    return arrays


def _order(arrays: Arrays, *ties: NDArray[np.int64]) -> NDArray[np.int64]:
    """The images from the highest to the lowest log p(x); of equals, in no order of the images."""
    known = [arrays[name] for name in ("predicted", "labels") if name in arrays]
    return np.lexsort((*ties, *known, -arrays["log-px"]))


def _shown(arrays: Arrays, evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    """The images at either end, of all and of each class, and random ones of each class."""
    images, n = evaluation.data.part("test").images, size_of_end(len(arrays["log-px"]))
    content = places(images)
    order = _order(arrays, content)
    grids = {"top": in_rows(order[:n]), "bottom": in_rows(order[::-1][:n])}
    if "log-odds" in arrays:
        surest = np.lexsort((content, -arrays["log-odds"]))
        grids |= {"top-confidence": in_rows(surest[:n]), "bottom-confidence": in_rows(surest[::-1][:n])}
    if "labels" in arrays:
        labels, num_classes = arrays["labels"], evaluation.data.spec.num_classes
        generator = evaluation.services.generator("log-density images")
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
        details[f"counts-{end}"] = np.bincount(members, minlength=evaluation.data.spec.num_classes).tolist()
    if "predicted" in arrays and len(set(arrays["predicted"] == arrays["labels"])) == 1:
        details["auroc-correct"] = "not defined: all images are classified rightly, or none is"
    return details
