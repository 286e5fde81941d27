"""Precision and recall of generated images: how many look real, and how much of the real is covered?

Kynkäänniemi et al. (2019), arXiv:1904.06991, section 3, with k = 3 neighbours; computed by torch-fidelity's
``metric_prc``.

Legend: N generated images, M reference images, D features, R resamples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.estimates import Estimate
from jembench.metrics.generation import Generated, Scored, compare
from jembench.metrics.generative import PRC
from jembench.stats import Indices, Statistic, multiplicities

Matrix = NDArray[Any]

_BLOCK = 1024
_KEPT_PER_NEIGHBOUR = 12
"""A resample holds 63 % of the images: fewer than k drawn among the 12 k nearest happens once in a million or less."""


class PrecisionRecall(NamedTuple):
    """Shares in [0, 1]."""

    precision: float
    recall: float


def precision_recall(
    generated: Float[Tensor, "N D"], reference: Float[Tensor, "M D"], neighbours: int
) -> PrecisionRecall:
    """Precision: generated images no further from some real image than its k-th neighbour is; recall: vice versa."""
    from torch_fidelity.metric_prc import KEY_METRIC_PRECISION, KEY_METRIC_RECALL, prc_features_to_metric

    found = prc_features_to_metric(generated, reference, prc_neighborhood=neighbours, save_cpu_ram=True, verbose=False)
    return PrecisionRecall(found[KEY_METRIC_PRECISION], found[KEY_METRIC_RECALL])


def resampled_coverage(judged: Float[Tensor, "N D"], manifold: Float[Tensor, "M D"], neighbours: int) -> Statistic:
    """The share of judged images within the manifold, of index matrices (R, N) and (R, M).

    A resample holds copies, at distance 0, which would shrink the balls around their neighbours. So the k-th neighbour
    is the k-th nearest *other image* that was drawn; the spread of the resamples is then that of independent sets of
    images (checked by simulation), and so is nearly their mean.
    """
    distance = torch.cdist(judged, manifold).numpy()
    nearest = _nearest_others(manifold, _KEPT_PER_NEIGHBOUR * neighbours)

    def shares(drawn_judged: Indices, drawn_manifold: Indices) -> Matrix:
        judged_counts = multiplicities(drawn_judged, distance.shape[0])
        is_drawn = multiplicities(drawn_manifold, distance.shape[1]) > 0
        radii = (np.where(drawn, _radii(nearest, drawn, neighbours), -1.0) for drawn in is_drawn)
        inside = ((distance <= radius).any(axis=1) for radius in radii)
        return np.array([counts @ hit / counts.sum() for counts, hit in zip(judged_counts, inside, strict=True)])

    return shares


class _Nearest(NamedTuple):
    """The images around each image, without itself, nearest first."""

    indices: NDArray[np.int64]  # (M, T)
    distance: NDArray[np.float64]  # (M, T)


def _nearest_others(features: Tensor, count: int) -> _Nearest:
    parts = []
    for start in range(0, len(features), _BLOCK):
        block = torch.cdist(features[start : start + _BLOCK], features)
        itself = torch.arange(len(block))
        block[itself, start + itself] = -torch.inf  # first in the order whatever the rounding, then left out
        parts.append(block.topk(min(count + 1, len(features)), largest=False))
    return _Nearest(
        torch.cat([part.indices[:, 1:] for part in parts]).numpy(),
        torch.cat([part.values[:, 1:] for part in parts]).numpy(),
    )


def _radii(nearest: _Nearest, drawn: NDArray[np.bool_], neighbours: int) -> Matrix:
    """The distance of each image to the k-th nearest other one drawn, or to the last one kept if fewer were."""
    reached = drawn[nearest.indices].cumsum(axis=1) >= neighbours
    position = np.where(reached[:, -1], reached.argmax(axis=1), -1)
    return nearest.distance[np.arange(len(position)), position]


def compute(metric: PRC, evaluation: Evaluation) -> Measurement:
    """Measure generated images."""

    def coverage(value: float, judged: Tensor, manifold: Tensor) -> Estimate:
        inside = resampled_coverage(judged, manifold, metric.neighbours)
        sizes = (len(judged), len(manifold))
        resampling = Resampling(lambda *drawn: 100 * inside(*drawn), sizes, (0.0, 100.0))
        return Estimate(resampling, "%", "higher", len(judged), 100 * value)

    def both(sample: Generated, real: Tensor) -> Scored:
        images = sample.features.pool
        found = precision_recall(images, real, metric.neighbours)
        estimates = {
            "precision": coverage(found.precision, images, real),
            "recall": coverage(found.recall, real, images),
        }
        return Scored(estimates, metric.resamples, {"neighbours": metric.neighbours})

    return compare(metric, evaluation, both)
