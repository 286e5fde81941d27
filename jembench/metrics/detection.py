"""Out-of-distribution detection: do a model's scores tell test images from images of another kind?

FPR95 and AUPR depend on which class is positive: they are measured both ways, and their labels say which.

Legend: N test images, M outliers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jembench.data.ood_sets.resolve import resolve
from jembench.data.pixels import content_hash
from jembench.errors import Diverged
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.base import describe_test_images
from jembench.metrics.estimates import Arrays, Estimate, measurement
from jembench.metrics.ood import OutOfDistribution
from jembench.stats import ranking


def detection(metric: OutOfDistribution, evaluation: Evaluation) -> Measurement:
    """Score the test images and the outliers."""
    outliers = evaluation.data.images(metric.set)  # first: where they are missing, nothing need be scored
    arrays = {"inside": _scores(metric, evaluation, "test"), "outside": _scores(metric, evaluation, metric.set)}
    in_order = {side: np.sort(scores) for side, scores in arrays.items()}  # then no value depends on the images' order
    of_set = resolve(metric.set)
    parts = {
        **describe_test_images(len(arrays["inside"])),
        "data_noise": f"{metric.data_noise:g}",
        "set": str(of_set),
        "outliers": len(outliers),
        "content": content_hash(outliers)[:10],
        **metric.protocol_parts,
    }
    details = {"mean-inside": float(arrays["inside"].mean()), "mean-outside": float(arrays["outside"].mean())}
    purpose = f"{metric.name}/{metric.score}/{of_set}"
    return measurement(metric, evaluation, parts, metric.estimates(in_order), arrays, details, purpose)


def detection_estimates(metric: OutOfDistribution, arrays: Arrays) -> dict[str, Estimate]:
    """AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
    exact = ranking.detection(arrays["inside"], arrays["outside"])
    return {
        label: Estimate(resampling, "", "lower" if label.startswith("fpr95") else "higher", value=exact[label])
        for label, resampling in ranking.resamplings(arrays["inside"], arrays["outside"]).items()
    }


def _scores(metric: OutOfDistribution, evaluation: Evaluation, images: str) -> NDArray[np.float64]:
    noise = metric.data_noise * (1.0 if images == "test" else getattr(resolve(images).make(), "noise", 1.0))
    scores: NDArray[np.float64] = metric.scorer.scores(evaluation, images, noise).cpu().double().numpy()
    bad = int((~np.isfinite(scores)).sum())
    if bad:
        raise Diverged(
            f"The score {metric.score} of {bad} of {len(scores)} images of {images} is not finite (NaN or infinite), "
            "and ranks nothing. A model that diverged is to be trained again; a density whose gradient overflows "
            "in float32 has no such score."
        )
    return scores
