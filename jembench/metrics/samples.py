"""A model's own images: which classes they are of, the surest of them, and the age of the chains that they come from.

Legend: N generated images or chains, K classes, R resamples, U different ages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kruskal

from jembench.interfaces import Density, Energy, Evaluation, Measurement, Resampling
from jembench.metrics.classification import classified
from jembench.metrics.energies import log_px, size_of_end
from jembench.metrics.estimates import (
    Arrays,
    Estimate,
    among_highest,
    effective_classes,
    mean,
    measurement,
    median,
    share,
)
from jembench.metrics.generative import SHOWN, ChainAge, ClassSamples, ConfidentSamples, no_ages
from jembench.metrics.pictures import pictures, places, random_of_classes
from jembench.metrics.sample_protocol import ALL_KEPT
from jembench.stats import Indices, Statistic, multiplicities

CONFIDENT = 0.9
"""The model is sure of an image whose max p(y|x) is above this."""

_PER_IMAGE = ("predicted", "confidence", "labels", "log-px")


def class_samples(metric: ClassSamples, evaluation: Evaluation) -> Measurement:
    """Measure samples; ``grid`` (K, 10) has random ones of each class.

    Of the class that they were drawn for, or else of the one that the model takes them for.
    """
    images, labels, source, _ = evaluation.samples(metric.samples.wanted)
    seen = classified(evaluation, images)
    num_classes = evaluation.data.spec.num_classes
    arrays: dict[str, NDArray[Any]] = {"predicted": seen.predicted, "confidence": seen.confidence}
    if labels is not None:
        arrays["labels"] = labels.cpu().numpy()
    elif isinstance(evaluation.model, (Energy, Density)):
        arrays["log-px"] = log_px(evaluation, images)
    generator = evaluation.services.generator(f"{metric.name} images")
    rows = random_of_classes(images, arrays.get("labels", seen.predicted), num_classes, generator)
    arrays |= pictures(images, {"grid": rows})
    order = np.lexsort([arrays[name] for name in ("predicted", "log-px") if name in arrays])
    in_order = arrays | {name: arrays[name][order] for name in _PER_IMAGE if name in arrays}  # then no resample depends
    # on the order of the samples
    parts = metric.samples.parts(len(images), len(images), source) | {"confident": CONFIDENT, "data_noise": 0}
    details = {"source": source, "counts": np.bincount(seen.predicted, minlength=num_classes).tolist()}
    purpose = f"{metric.name}-{metric.source}"
    return measurement(metric, evaluation, parts, metric.estimates(in_order), arrays, details, purpose)


def class_samples_estimates(metric: ClassSamples, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of samples; their labels say where these come from."""
    predicted = arrays["predicted"]
    if "labels" in arrays:
        return {f"agreement-{metric.source}": share(predicted == arrays["labels"], "higher")}
    classes = effective_classes(predicted, len(arrays["grid"]))
    found = {"confident": share(arrays["confidence"] > CONFIDENT), "classes": classes}
    if "log-px" in arrays:
        order = np.lexsort((predicted, -arrays["log-px"]))
        densest = among_highest(classes, order, size_of_end(len(order)))
        found["classes-densest"] = densest._replace(n=None)
    return {f"{label}-{metric.source}": estimate for label, estimate in found.items()}


def confident_samples(metric: ConfidentSamples, evaluation: Evaluation) -> Measurement:
    """Measure the kept samples."""
    samples = evaluation.samples(ALL_KEPT.wanted)
    n = len(samples.images)
    metric.require(n)
    seen = classified(evaluation, samples.images)
    order = np.lexsort((places(samples.images), seen.predicted, -seen.log_odds))
    shown = order[:SHOWN]
    arrays: dict[str, NDArray[Any]] = {
        **seen.arrays(),
        "counts": np.bincount(seen.predicted[shown], minlength=evaluation.data.spec.num_classes),
        "images": samples.images[torch.from_numpy(shown)].numpy(),
        "shown": shown,
    }
    in_order = arrays | {name: array[order] for name, array in seen.arrays().items()}
    parts = ALL_KEPT.parts(n, n, samples.source) | {"data_noise": 0, "shown": SHOWN}
    return measurement(metric, evaluation, parts, metric.estimates(in_order), arrays)


def confident_samples_estimates(metric: ConfidentSamples, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of samples."""
    predicted = arrays["predicted"]
    order = np.lexsort((predicted, -arrays["log-odds"]))
    confidence = mean(100 * arrays["confidence"], "%", within=(0.0, 100.0))
    classes = effective_classes(predicted, len(arrays["counts"]))
    return {
        "confidence-64": among_highest(confidence, order, SHOWN),
        "classes-64": among_highest(classes, order, SHOWN),
    }


def epsilon_squared(ages: NDArray[np.int64], classes: NDArray[np.int64]) -> Statistic:
    """The share of the variance of ages' ranks that is between classes: 0 (none) to 1; of (R, N).

    That is H / (N - 1) with the H of Kruskal and Wallis, corrected for ties. 0 where all ages are equal. Tomczak &
    Tomczak (2014), Trends in Sport Sciences 1(21), 19-25.
    """
    different, place = np.unique(ages, return_inverse=True)
    num_classes = int(classes.max()) + 1

    def statistic(indices: Indices) -> NDArray[np.float64]:
        rows, n = indices.shape
        drawn, drawn_classes = place[indices], classes[indices]
        counts = multiplicities(drawn, len(different))
        ranks = counts.cumsum(axis=1) - (counts - 1) / 2 - (n + 1) / 2  # the mean rank of equals, around 0: (R, U)
        cells = (drawn_classes + num_classes * np.arange(rows)[:, None]).ravel()
        sums = np.bincount(cells, np.take_along_axis(ranks, drawn, axis=1).ravel(), rows * num_classes)
        members = np.maximum(multiplicities(drawn_classes, num_classes), 1)
        between = (sums.reshape(rows, num_classes) ** 2 / members).sum(axis=1)
        total = (counts * ranks**2).sum(axis=1)
        shares: NDArray[np.float64] = np.divide(between, total, out=np.zeros(rows), where=total > 0)
        return shares

    return statistic


def chain_age(metric: ChainAge, evaluation: Evaluation) -> Measurement:
    """Measure the kept chains."""
    samples = evaluation.samples(ALL_KEPT.wanted)
    if samples.ages is None:
        raise no_ages()
    seen = classified(evaluation, samples.images)
    arrays = {"ages": samples.ages.cpu().numpy(), "predicted": seen.predicted, "confidence": seen.confidence}
    order = np.lexsort((arrays["predicted"], arrays["ages"]))  # then no resample depends on the order of the chains
    in_order = {name: array[order] for name, array in arrays.items()}
    details = _by_class(arrays["ages"], arrays["predicted"], evaluation.data.spec.num_classes)
    parts = ALL_KEPT.parts(len(order), len(order), samples.source) | {"data_noise": 0}
    return measurement(metric, evaluation, parts, metric.estimates(in_order), arrays, details)


def chain_age_estimates(metric: ChainAge, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of chains."""
    ages = arrays["ages"]
    dependence = Resampling(epsilon_squared(ages, arrays["predicted"]), (len(ages),), (0.0, 1.0))
    return {metric.name: median(ages, "steps"), "age-dependence": Estimate(dependence)}


def _by_class(ages: NDArray[np.int64], classes: NDArray[np.int64], num_classes: int) -> dict[str, Any]:
    by_class = [ages[classes == number] for number in range(num_classes)]
    groups = [members for members in by_class if len(members)]
    in_order, tenth = np.sort(ages), -(-len(ages) // 10)
    testable = len(groups) > 1 and in_order[0] < in_order[-1]
    ends = {"youngest-tenth": ages <= in_order[tenth - 1], "oldest-tenth": ages >= in_order[-tenth]}
    return {
        "p-value": float(kruskal(*groups).pvalue) if testable else None,
        "counts": [len(members) for members in by_class],
        "median-age": [float(np.median(members)) if len(members) else None for members in by_class],
        **{end: np.bincount(classes[inside], minlength=num_classes).tolist() for end, inside in ends.items()},
    }
