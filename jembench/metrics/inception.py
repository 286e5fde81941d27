"""The Inception score: are images recognisable one by one, and diverse together?

Salimans et al. (2016), arXiv:1606.03498, section 4; computed by torch-fidelity's ``metric_isc``, which agrees with
float64 numpy to 1e-12. Implementations cut the images into splits differently, and published scores are of several.

Legend: N images, K logits, S splits, R resamples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.estimates import Estimate
from jembench.metrics.generation import Generated, Scored, score
from jembench.metrics.generative import IS
from jembench.stats import Indices, Statistic, multiplicities


class Score(NamedTuple):
    """The Inception score in 1..K: its mean and standard deviation over splits."""

    mean: float
    std: float


def inception_score(logits: Float[Tensor, "N K"], splits: int) -> Score:
    """IS = exp(mean over images of KL(p(y|x) || p(y))) of each of S splits of the shuffled images; their mean."""
    from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, KEY_METRIC_ISC_STD, isc_features_to_metric

    found = isc_features_to_metric(logits.double(), splits=splits)
    return Score(found[KEY_METRIC_ISC_MEAN], found[KEY_METRIC_ISC_STD])


def in_order(logits: Float[Tensor, "N K"], splits: int) -> Score:
    """The same of the images as they come: N // S in each split, and what is left over is left out.

    So does the code of Barratt & Sharma (2018), arXiv:1801.01973, which the reproducibility report uses. Images that
    stand next to each other and are alike, in a replay buffer for instance, make the score lower.
    """
    parts = logits[: len(logits) // splits * splits].chunk(splits)
    of_splits = np.array([inception_score(part, 1).mean for part in parts])
    return Score(float(of_splits.mean()), float(of_splits.std()))


def resampled_score(logits: Float[Tensor, "N K"], splits: int, *, even: bool = False) -> Statistic:
    """The mean score of index matrices (R, N), whose columns are cut into the S splits.

    ``even``: as many in each, the rest left out.

    With KL = sum_k p log p - sum_k p log q, a split's score needs only the sums of p and of sum_k p log p over it.
    """
    log_p: NDArray[np.float64] = logits.double().log_softmax(dim=1).numpy()
    p = np.exp(log_p)
    n = len(p)
    sums = np.concatenate([p, (p * log_p).sum(axis=1, keepdims=True)], axis=1)
    used = n // splits * splits if even else n
    bounds = [(i * used // splits, (i + 1) * used // splits) for i in range(splits)]

    def scores(indices: Indices) -> NDArray[Any]:
        of_splits = [_score(multiplicities(indices[:, a:b], n) @ sums / (b - a)) for a, b in bounds]
        mean: NDArray[np.float64] = np.stack(of_splits).mean(axis=0)
        return mean

    return scores


def _score(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exp of the mean KL from the means of p and, in the last column, of sum_k p log p."""
    q, mean_negentropy = means[:, :-1], means[:, -1]
    log_q = np.log(q, out=np.zeros_like(q), where=q > 0)  # 0 log 0 = 0
    scores: NDArray[np.float64] = np.exp(mean_negentropy - (q * log_q).sum(axis=1))
    return scores


def compute(metric: IS, evaluation: Evaluation) -> Measurement:
    """Measure generated images."""
    even = metric.implementation == "barratt-sharma"

    def scored(sample: Generated) -> Scored:
        logits, splits = sample.features.logits, metric.splits
        found = in_order(logits[sample.places.argsort()], splits) if even else inception_score(logits, splits)
        within = (1.0, float(logits.shape[1]))
        resampling = Resampling(resampled_score(logits, splits, even=even), (sample.n,), within)
        return Scored(
            {"is": Estimate(resampling, "", "higher", value=found.mean)},
            metric.resamples,
            {"splits": splits},
            {"std_over_splits": found.std},
        )

    return score(metric, evaluation, scored, metric.implementation)
