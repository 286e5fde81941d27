"""How old the chains of a replay buffer are, and whether their age decides the class.

A chain of a persistent sampler lives until it is restarted. Grathwohl et al. (2020), Appendix H.2, saw that some
classes are those of young chains and others of old ones: then the buffer's classes are stages of a chain's life.

Legend: N chains, K classes, R resamples, U different ages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kruskal

from jembench.errors import NotApplicable
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.classified import classified
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.metrics.sample_protocol import ALL_KEPT
from jembench.stats import Indices, Statistic, multiplicities

Arrays = Mapping[str, NDArray[Any]]


def _no_ages() -> NotApplicable:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainAge:
    """The median age of the kept chains, in sampling steps, and how much of it the class that the model sees explains.

    ``age-dependence`` is epsilon squared, 0 to 1. The details give, class by class, the number of chains, their median
    age, and how many of the youngest and of the oldest tenth are of it (with all that are as old as the last of them);
    and the p-value of Kruskal and Wallis's test that the class does not depend on the age.
    """

    resamples: int = 1000
    name: ClassVar[str] = "chain-age"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits", "samples"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def check(self, planned: Planned) -> None:
        """Whether chains will be kept."""
        if planned.kept == 0:
            raise _no_ages()

    def compute(self, evaluation: Evaluation) -> Measurement:
        samples = evaluation.samples(ALL_KEPT.wanted)
        if samples.ages is None:
            raise _no_ages()
        seen = classified(evaluation.read("logits", samples.images), "samples")
        arrays = {
            "ages": samples.ages.cpu().numpy(),
            "predicted": seen.predicted,
            "confidence": seen.confidence,
        }
        order = np.lexsort((arrays["predicted"], arrays["ages"]))
        resamplings = self.resamplings({name: array[order] for name, array in arrays.items()})
        rng = bootstrap_rng(evaluation, self.name)
        n = len(order)
        return Measurement(
            protocol=protocol_id(self.name, evaluation, data_noise=0, **ALL_KEPT.parts(n, n, samples.source)),
            values={
                label: bootstrapped(resampling, rng, self.resamples, "steps" if label == self.name else "")
                for label, resampling in resamplings.items()
            },
            arrays=arrays,
            details=_by_class(arrays["ages"], arrays["predicted"], evaluation.data.num_classes),
        )

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of chains."""
        ages, size = arrays["ages"], len(arrays["ages"])
        return {
            self.name: Resampling(lambda indices: np.median(ages[indices], axis=1), (size,), (0.0, np.inf)),
            "age-dependence": Resampling(epsilon_squared(ages, arrays["predicted"]), (size,), (0.0, 1.0)),
        }


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
