"""Out-of-distribution detection: do a model's scores tell test images from images of another kind?

A score is higher for what the model takes to be in-distribution. FPR95 and AUPR depend on which class is positive: they
are measured both ways, and their labels say which.

Legend: N test images, M outliers, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jembench.data.ood_sets.resolve import resolve
from jembench.data.pixels import content_hash
from jembench.errors import Diverged
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Quantity, Resampling, Value
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least, require_noise, value_of
from jembench.sampling.chain import require_chains
from jembench.stats import Interval, interval_of, ranking, wilson

Scores = NDArray[np.float64]
ScoreName = Literal["log-px", "max-py", "grad-norm", "max-logit", "refinement"]


class Score(NamedTuple):
    """A number for each image, higher for in-distribution, and what it takes."""

    requires: frozenset[Capability]
    reads: frozenset[Quantity]
    of: Callable[[Mapping[Quantity, Tensor]], Tensor]  # float64 readings -> (N,)


def _score(capability: Capability, quantity: Quantity, of: Callable[[Tensor], Tensor]) -> Score:
    return Score(frozenset({capability}), frozenset({quantity}), lambda readings: of(readings[quantity]))


SCORES: Mapping[ScoreName, Score] = {
    # Grathwohl et al. (2020), arXiv:1912.03263, section 5.3: the three of Table 3 and Table 7. log p(x) is logsumexp of
    # the logits, up to a constant: for any classifier it is the energy score of Liu et al. (2020), arXiv:2010.03759
    "log-px": _score("energy", "energy", lambda energy: -energy),
    "max-py": _score("logits", "logits", lambda logits: logits.softmax(dim=1).amax(dim=1)),
    "grad-norm": _score("energy", "grad-norm", lambda norm: -norm),
    # Hendrycks et al. (2022), arXiv:1911.11132
    "max-logit": _score("logits", "logits", lambda logits: logits.amax(dim=1)),
    # how little energy the model's own chain takes off an image: what is likely already stays as it is
    "refinement": Score(frozenset({"energy", "samples"}), frozenset({"energy"}), lambda readings: -readings["energy"]),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfDistribution:
    """How well one score tells the test images from one OOD set: AUROC, FPR at 95 % TPR, average precision.

    All are by scikit-learn, in float64, in 0..1. ``-in``: test images are the positive class; ``fpr95-in`` is the share
    of outliers that score above the threshold which 95 % of the test images pass. ``-out``: outliers are, as in OpenOOD
    (Yang et al. (2022), arXiv:2210.07242); ``fpr95-out`` is the share of test images that are taken for outliers where
    95 % of the outliers are found. AUROC is the same either way.
    """

    set: str
    score: ScoreName = "log-px"
    steps: int = 10  # of the chain, for the score ``refinement``
    resamples: int = 1000
    data_noise: float = 0.0  # on test images and outliers: its standard deviation on [-1, 1]
    name: ClassVar[str] = "ood"

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)
        require_noise(self.name, self.data_noise)
        require_at_least(1, self.name, steps=self.steps)

    @property
    def requires(self) -> frozenset[Capability]:
        """What the score needs."""
        return SCORES[self.score].requires

    @property
    def reads(self) -> frozenset[Quantity]:
        """What the score reads of test images and outliers."""
        return SCORES[self.score].reads

    def check(self, planned: Planned) -> None:
        """Whether the other images can be had, and the chains that a score runs."""
        planned.check_ood_set(self.set)
        if self.score == "refinement":
            require_chains(planned.sampler)

    def compute(self, evaluation: Evaluation) -> Measurement:
        outliers = evaluation.images(self.set)  # first: where they are missing, nothing need be scored
        arrays = {"inside": self._scores(evaluation, "test"), "outside": self._scores(evaluation, self.set)}
        return Measurement(
            protocol=self._protocol(evaluation, outliers),
            values=self._values(arrays, evaluation),
            arrays=arrays,
            details={"mean-inside": float(arrays["inside"].mean()), "mean-outside": float(arrays["outside"].mean())},
        )

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """AUROC, FPR at 95 % TPR and average precision of resampled test images and outliers."""
        return ranking.resamplings(arrays["inside"], arrays["outside"])

    def _scores(self, evaluation: Evaluation, images: str) -> Scores:
        score = SCORES[self.score]
        readings = {quantity: evaluation.read(quantity, images, self.data_noise).double() for quantity in score.reads}
        if self.score == "refinement":
            readings["energy"] = readings["energy"] - evaluation.refined(images, self.steps, self.data_noise).double()
        scores: Scores = score.of(readings).numpy()
        bad = int((~np.isfinite(scores)).sum())
        if bad:
            raise Diverged(
                f"The score {self.score} of {bad} of {len(scores)} images of {images} is not finite (NaN or infinite), "
                "and ranks nothing. A model that diverged is to be trained again; a density whose gradient overflows "
                "in float32 has no such score."
            )
        return scores

    def _values(self, arrays: Mapping[str, Scores], evaluation: Evaluation) -> dict[str, Value]:
        inside, outside = (np.sort(arrays[side]) for side in ("inside", "outside"))  # of no order of the images
        resamplings = self.resamplings({"inside": inside, "outside": outside})
        estimates = ranking.detection(inside, outside)
        n = min(len(inside), len(outside))
        rng = bootstrap_rng(evaluation, f"{self.name}/{self.score}/{resolve(self.set)}")
        values = {}
        for label, resampling in resamplings.items():
            interval = interval_of(estimates[label], resampling, rng=rng, resamples=self.resamples)
            if interval and interval.low == interval.high:
                interval = _where_resamples_agree(label, estimates[label], len(inside), len(outside))
            better: Literal["higher", "lower"] = "lower" if label.startswith("fpr95") else "higher"
            values[label] = value_of(estimates[label], interval, n, "", better)
        return values

    def _protocol(self, evaluation: Evaluation, outliers: Tensor) -> str:
        parts = {"steps": self.steps} if self.score == "refinement" else {}
        return protocol_id(
            self.name,
            evaluation,
            split="test",
            images=len(evaluation.test().images),
            set=str(resolve(self.set)),
            outliers=len(outliers),
            content=content_hash(outliers)[:10],
            score=self.score,
            data_noise=f"{self.data_noise:g}",
            **parts,
        )


def _where_resamples_agree(label: str, estimate: float, inside: int, outside: int) -> Interval | None:
    """The interval where all resamples give the same, as they do of sets that do not overlap, and prove nothing by it.

    AUROC is the chance that an image ranks above an outlier: as many pairs as the smaller set has share no image, and
    are Bernoulli trials. So is each image of the negative class for the false positive rate. Average precision is no
    such share.
    """
    trials = {"auroc": min(inside, outside), "fpr95-in": outside, "fpr95-out": inside}
    return wilson(round(estimate * trials[label]), trials[label]) if label in trials and estimate in (0, 1) else None
