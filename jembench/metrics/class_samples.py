"""A model's images by class: what they look like, drawn at random, and which classes they are of.

Legend: N generated images, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jembench.interfaces import Density, Energy, Evaluation, Measurement
from jembench.metrics.classified import classified
from jembench.metrics.estimates import Arrays, Estimate, among_highest, effective_classes, share, values_of
from jembench.metrics.generative import ClassSamples
from jembench.metrics.log_density import log_density, size_of_end
from jembench.metrics.pictures import pictures, random_of_classes
from jembench.metrics.protocol import protocol_id

CONFIDENT = 0.9
"""The model is sure of an image whose max p(y|x) is above this."""

_PER_IMAGE = ("predicted", "confidence", "labels", "log-px")


def compute(metric: ClassSamples, evaluation: Evaluation) -> Measurement:
    """Measure samples; ``grid`` (K, 10) has random ones of each class.

    Of the class that they were drawn for, or else of the one that the model takes them for.
    """
    asked = metric.samples
    images, labels, source, _ = evaluation.samples(asked.wanted)
    seen = classified(evaluation.predictions.read("logits", images), "samples")
    num_classes = evaluation.data.spec.num_classes
    arrays: dict[str, NDArray[Any]] = {"predicted": seen.predicted, "confidence": seen.confidence}
    if labels is not None:
        arrays["labels"] = labels.cpu().numpy()
    elif isinstance(evaluation.model, (Energy, Density)):
        arrays["log-px"] = log_density(evaluation.predictions.read("energy", images), "samples")
    generator = evaluation.services.generator(f"{metric.name} images")
    rows = random_of_classes(images, arrays.get("labels", seen.predicted), num_classes, generator)
    arrays |= pictures(images, {"grid": rows})
    order = np.lexsort([arrays[name] for name in ("predicted", "log-px") if name in arrays])
    in_order = arrays | {name: arrays[name][order] for name in _PER_IMAGE if name in arrays}  # then no resample depends
    # on the order of the samples
    parts = asked.parts(len(images), len(images), source)
    return Measurement(
        protocol=protocol_id(metric.name, evaluation, confident=CONFIDENT, data_noise=0, **parts),
        values=values_of(estimates(metric, in_order), evaluation, f"{metric.name}-{metric.source}", metric.resamples),
        arrays=arrays,
        details={"source": source, "counts": np.bincount(seen.predicted, minlength=num_classes).tolist()},
    )


def estimates(metric: ClassSamples, arrays: Arrays) -> dict[str, Estimate]:
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
