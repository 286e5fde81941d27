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
from jembench.interfaces import Evaluation, Measurement, Value
from jembench.metrics.estimates import Arrays, Estimate, values_of
from jembench.metrics.ood import OutOfDistribution
from jembench.metrics.protocol import protocol_id
from jembench.stats import ranking, wilson


def compute(metric: OutOfDistribution, evaluation: Evaluation) -> Measurement:
    """Score the test images and the outliers."""
    outliers = evaluation.data.images(metric.set)  # first: where they are missing, nothing need be scored
    arrays = {"inside": _scores(metric, evaluation, "test"), "outside": _scores(metric, evaluation, metric.set)}
    of_set = resolve(metric.set)
    return Measurement(
        protocol=protocol_id(
            metric.name,
            evaluation,
            split="test",
            images=len(evaluation.data.part("test").images),
            set=str(of_set),
            outliers=len(outliers),
            content=content_hash(outliers)[:10],
            data_noise=f"{metric.data_noise:g}",
            **metric.protocol_parts,
        ),
        values=_values(metric, evaluation, arrays, f"{metric.name}/{metric.score}/{of_set}"),
        arrays=arrays,
        details={"mean-inside": float(arrays["inside"].mean()), "mean-outside": float(arrays["outside"].mean())},
    )


def estimates(metric: OutOfDistribution, arrays: Arrays) -> dict[str, Estimate]:
    """AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
    found = ranking.resamplings(arrays["inside"], arrays["outside"])
    return {
        label: Estimate(resampling, "", "lower" if label.startswith("fpr95") else "higher")
        for label, resampling in found.items()
    }


def _scores(metric: OutOfDistribution, evaluation: Evaluation, images: str) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = metric.scorer.scores(evaluation, images, metric.data_noise).cpu().double().numpy()
    bad = int((~np.isfinite(scores)).sum())
    if bad:
        raise Diverged(
            f"The score {metric.score} of {bad} of {len(scores)} images of {images} is not finite (NaN or infinite), "
            "and ranks nothing. A model that diverged is to be trained again; a density whose gradient overflows "
            "in float32 has no such score."
        )
    return scores


def _values(metric: OutOfDistribution, evaluation: Evaluation, arrays: Arrays, purpose: str) -> dict[str, Value]:
    in_order = {side: np.sort(scores) for side, scores in arrays.items()}  # then no value depends on the images' order
    exact = ranking.detection(**in_order)
    found = {label: one._replace(value=exact[label]) for label, one in estimates(metric, in_order).items()}
    values = values_of(found, evaluation, purpose, metric.resamples)
    sizes = len(arrays["inside"]), len(arrays["outside"])
    agree = metric.resamples > 0 and min(sizes) > 1
    return {
        label: _where_resamples_agree(label, value, *sizes) if agree and value.low is None else value
        for label, value in values.items()
    }


def _where_resamples_agree(label: str, value: Value, inside: int, outside: int) -> Value:
    """Wilson's interval where all resamples give the same, as they do for sets that do not overlap.

    AUROC is the probability that an image ranks above an outlier. As many pairs as the smaller set has share no image,
    and are Bernoulli trials. So is each image of the negative class for the false positive rate. Average precision is
    not such a share.
    """
    trials = {"auroc": min(inside, outside), "fpr95-in": outside, "fpr95-out": inside}.get(label, 0)
    if not trials or value.value not in (0, 1):
        return value
    within = wilson(round(value.value * trials), trials)
    return value._replace(low=within.low, high=within.high)
