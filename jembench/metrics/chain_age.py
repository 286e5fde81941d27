"""How old the chains of a replay buffer are, and whether their age decides the class.

A chain of a persistent sampler lives until it is restarted. Grathwohl et al. (2020), Appendix H.2, saw that some
classes are those of young chains and others of old ones: then the buffer's classes are stages of a chain's life.

Legend: N chains, K classes, R resamples, U different ages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kruskal

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.classified import classified
from jembench.metrics.estimates import Arrays, Estimate, values_of
from jembench.metrics.generative import ChainAge
from jembench.metrics.protocol import protocol_id
from jembench.metrics.sample_protocol import ALL_KEPT
from jembench.stats import Indices, Statistic, multiplicities


def no_ages() -> NotApplicable:
    """The error for a model without ages of chains."""
    return NotApplicable("The model keeps no chains, or not their ages: only a replay buffer does.")


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


def compute(metric: ChainAge, evaluation: Evaluation) -> Measurement:
    """Measure the kept chains."""
    samples = evaluation.samples(ALL_KEPT.wanted)
    if samples.ages is None:
        raise no_ages()
    seen = classified(evaluation.predictions.read("logits", samples.images), "samples")
    arrays = {"ages": samples.ages.cpu().numpy(), "predicted": seen.predicted, "confidence": seen.confidence}
    order = np.lexsort((arrays["predicted"], arrays["ages"]))  # then no resample depends on the order of the chains
    in_order = {name: array[order] for name, array in arrays.items()}
    n = len(order)
    return Measurement(
        protocol=protocol_id(metric.name, evaluation, data_noise=0, **ALL_KEPT.parts(n, n, samples.source)),
        values=values_of(estimates(metric, in_order), evaluation, metric.name, metric.resamples),
        arrays=arrays,
        details=_by_class(arrays["ages"], arrays["predicted"], evaluation.data.spec.num_classes),
    )


def estimates(metric: ChainAge, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of chains."""
    ages, size = arrays["ages"], len(arrays["ages"])
    median = Resampling(lambda indices: np.median(ages[indices], axis=1), (size,), (0.0, np.inf))
    dependence = Resampling(epsilon_squared(ages, arrays["predicted"]), (size,), (0.0, 1.0))
    return {metric.name: Estimate(median, "steps"), "age-dependence": Estimate(dependence)}


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
