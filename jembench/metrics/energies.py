"""Energies and densities of test images and samples: bits per dimension, the energy gap, and log p(x) at its two ends.

Legend: N test images, K classes, n images at an end, R resamples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jembench.data import dequantisation
from jembench.interfaces import Classifier, Evaluation, Measurement, Resampling
from jembench.metrics.base import describe_test_images
from jembench.metrics.classification import classified, require_finite
from jembench.metrics.densities import BitsPerDim, EnergyGap, LogDensity
from jembench.metrics.estimates import Arrays, Estimate, among_highest, effective_classes, mean, measurement, share
from jembench.metrics.pictures import first_of_classes, in_rows, pictures, places, random_of_classes
from jembench.stats import mean_of, ranking

END = 100
"""Images at either end, but never more than a quarter of all."""

_PER_IMAGE = ("log-px", "labels", "predicted", "confidence", "log-odds")


def energies(evaluation: Evaluation, images: str | Tensor = "test") -> NDArray[Any]:
    """E(x), or -log p(x) of a normalised density, of the test images or of samples.

    Raises:
        Diverged: if one is not finite.
    """
    found = evaluation.predictions.read("energy", images).cpu()
    require_finite(found, "energies", "test images" if images == "test" else "samples")
    array: NDArray[Any] = found.numpy()
    return array


def log_px(evaluation: Evaluation, images: str | Tensor = "test") -> NDArray[np.float64]:
    """Log p(x) = -E(x) up to an unknown constant, in nats; errors as for :func:`energies`."""
    return -energies(evaluation, images).astype(np.float64)


# --- bits per dimension -----------------------------------------------------------------------------------------------


def bits_per_dim(metric: BitsPerDim, evaluation: Evaluation) -> Measurement:
    """Measure the test images."""
    energy = evaluation.predictions.read("energy").double()
    require_finite(energy, "log densities", "test images")
    arrays = {metric.name: dequantisation.bits_per_dim(-energy, evaluation.data.spec).cpu().numpy()}
    in_order = {metric.name: np.sort(arrays[metric.name])}  # then no resample depends on the order of the images
    parts = {**describe_test_images(len(energy)), "at": "cell-middle"}
    return measurement(metric, evaluation, parts, metric.estimates(in_order), arrays)


def bits_per_dim_estimates(metric: BitsPerDim, arrays: Arrays) -> dict[str, Estimate]:
    """The mean over test images."""
    return {metric.name: mean(arrays[metric.name].astype(np.float64), "bits", "lower")}


# --- energy gap -------------------------------------------------------------------------------------------------------


def energy_gap(metric: EnergyGap, evaluation: Evaluation) -> Measurement:
    """Measure the test images and the kept samples."""
    samples = evaluation.samples()
    arrays = {"energy-data": energies(evaluation), "energy-samples": energies(evaluation, samples.images)}
    # in float64 and sorted, so that neither means nor resamples depend on the order of the images
    in_order = {name: np.sort(array.astype(np.float64)) for name, array in arrays.items()}
    means = {name: float(array.mean()) for name, array in in_order.items()}
    parts = describe_test_images(len(arrays["energy-data"])) | {
        "samples": len(samples.images),
        "source": samples.source,
    }
    return measurement(metric, evaluation, parts, metric.estimates(in_order), arrays, means)


def energy_gap_estimates(metric: EnergyGap, arrays: Arrays) -> dict[str, Estimate]:
    """The gap, of test images and samples."""
    data, drawn = (arrays[name].astype(np.float64) for name in ("energy-data", "energy-samples"))
    mean_data, mean_drawn = mean_of(data), mean_of(drawn)
    gap = Resampling(lambda i, j: mean_data(i) - mean_drawn(j), (len(data), len(drawn)))
    return {metric.name: Estimate(gap, "nats")}


# --- log p(x) at its two ends -----------------------------------------------------------------------------------------


def size_of_end(n: int) -> int:
    """How many of n test images are at either end."""
    return max(1, min(END, n // 4))


def log_density(metric: LogDensity, evaluation: Evaluation) -> Measurement:
    """Measure the test images."""
    arrays = _per_image(evaluation)
    arrays |= _shown(arrays, evaluation)
    n = len(arrays["log-px"])
    order = _order(arrays)  # then no resample depends on the order of the images
    in_order = {name: array[order] if name in _PER_IMAGE else array for name, array in arrays.items()}
    found = {**metric.estimates(in_order), **_detection(in_order)}
    parts = describe_test_images(n) | {"top": size_of_end(n)}
    return measurement(metric, evaluation, parts, found, arrays, _details(arrays, evaluation))


def log_density_estimates(metric: LogDensity, arrays: Arrays) -> dict[str, Estimate]:
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
    from sklearn.metrics import roc_auc_score  # scikit-learn takes a second to import

    log_px = arrays["log-px"]
    resampling = ranking.auroc_resampling(log_px[right], log_px[~right])
    return {"auroc-correct": Estimate(resampling, "", "higher", value=float(roc_auc_score(right, log_px)))}


def _per_image(evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    """What is known of each test image, in their order."""
    arrays: dict[str, NDArray[Any]] = {"log-px": log_px(evaluation)}
    labels = evaluation.data.part("test").labels
    if labels is not None:
        arrays["labels"] = labels.cpu().numpy()
    if isinstance(evaluation.model, Classifier):
        arrays |= classified(evaluation).arrays()
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
