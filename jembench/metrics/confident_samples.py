"""The images that a model is surest of among its own.

Legend: N generated images, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.classified import classified
from jembench.metrics.estimates import Arrays, Estimate, among_highest, effective_classes, mean, values_of
from jembench.metrics.generation import require_images
from jembench.metrics.generative import ConfidentSamples
from jembench.metrics.pictures import places
from jembench.metrics.protocol import protocol_id
from jembench.metrics.sample_protocol import ALL_KEPT

SHOWN = 64
"""Images: a sheet of eight by eight."""


def require(n: int | None) -> None:
    """Refuse fewer than 64 samples; None: it is not known how many there will be.

    Raises:
        NotApplicable: if there are fewer.
    """
    require_images(n, SHOWN, "samples", "confident-samples", "the most confident of which it shows")


def compute(metric: ConfidentSamples, evaluation: Evaluation) -> Measurement:
    """Measure the kept samples."""
    samples = evaluation.samples(ALL_KEPT.wanted)
    n = len(samples.images)
    require(n)
    seen = classified(evaluation.predictions.read("logits", samples.images), "samples")
    order = np.lexsort((places(samples.images), seen.predicted, -seen.log_odds))
    shown = order[:SHOWN]
    arrays: dict[str, NDArray[Any]] = {
        **seen.arrays(),
        "counts": np.bincount(seen.predicted[shown], minlength=evaluation.data.spec.num_classes),
        "images": samples.images[torch.from_numpy(shown)].numpy(),
        "shown": shown,
    }
    in_order = arrays | {name: array[order] for name, array in seen.arrays().items()}
    parts = ALL_KEPT.parts(n, n, samples.source)
    return Measurement(
        protocol=protocol_id(metric.name, evaluation, data_noise=0, shown=SHOWN, **parts),
        values=values_of(estimates(metric, in_order), evaluation, metric.name, metric.resamples),
        arrays=arrays,
    )


def estimates(metric: ConfidentSamples, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of samples."""
    predicted = arrays["predicted"]
    order = np.lexsort((predicted, -arrays["log-odds"]))
    confidence = mean(100 * arrays["confidence"], "%", within=(0.0, 100.0))
    classes = effective_classes(predicted, len(arrays["counts"]))
    return {
        "confidence-64": among_highest(confidence, order, SHOWN),
        "classes-64": among_highest(classes, order, SHOWN),
    }
