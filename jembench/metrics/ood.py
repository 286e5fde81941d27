"""Out-of-distribution detection: the separation of test images from other images by a model's scores.

Legend: N test images, M outliers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from jembench.attacks.eps import parse_eps
from jembench.catalog.options import Names
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Evaluation, Measurement, Need, Planned, Resampling
from jembench.interfaces.metrics import DifferentiableScore
from jembench.metrics import attacks
from jembench.metrics.base import Array, Arrays, Estimate, describe_test_images
from jembench.metrics.classification import require_finite
from jembench.metrics.pgd import PGD
from jembench.metrics.scored import Scored


@dataclass(frozen=True, kw_only=True)
class OutOfDistribution(attacks.UnderAttack, Scored):
    """Out-of-distribution detection: AUROC, FPR at 95 % TPR and average precision of a score against other images.

    ``set`` is an OOD set (`jembench list ood_sets`) or a dataset: interp, svhn, celeba:root=/data. ``score`` is
    a name of `jembench list scores` with its options, refinement:steps=5, or an import path. ``data_noise`` is added to
    both kinds of images, to ``interp`` sqrt(1.5) times, as in the code of JEM.

    All values are computed in float64, and lie in 0..1. With ``-in`` test images are the positive class: ``fpr95-in``
    is the share of outliers above the threshold that 95 % of the test images exceed. With ``-out`` outliers are the
    positive class: ``fpr95-out`` is the share of test images detected at the threshold that detects 95 % of the
    outliers, as in OpenOOD (Yang et al. (2022), arXiv:2210.07242). ``aupr`` is average precision; OpenOOD's AUPR is the
    trapezoidal area under the precision-recall curve, which differs, most under ties. AUROC is the same either way.

    ``under``, such as pgd@8/255 or pgd:norm=l2,restarts=1@0.5, moves outliers within eps by projected gradient ascent
    on the score, until they look in-distribution; each has the highest score found. Test images stay as they are. The
    attack's ``images`` is the number of outliers, which are drawn with a seed.

    Raises:
        SpecError: if ``under`` is another attack, or a model that refines or smooths.
    """

    set: Annotated[str, Names("ood_sets", "datasets")]
    name: ClassVar[str] = "ood"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attack and (not isinstance(self.attack, PGD) or self.attack.is_random):
            raise SpecError(f"under of ood is {self.under!r}; it must be pgd, without refine, data_noise and smooth.")

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score, and of an attack on it."""
        return super().requires | (frozenset({"gradients"}) if self.attack else frozenset())

    def check(self, planned: Planned) -> None:
        """Check that the outliers are available, and that the score can be attacked.

        Raises:
            NotApplicable: if the score has no gradient.
        """
        super().check(planned)
        planned.check_ood_set(self.set)
        if self.attack and not isinstance(self.scorer, DifferentiableScore):
            raise NotApplicable(f"The score {self.score} is not a differentiable function that outliers can ascend.")

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Score the test images and the outliers.

        Raises:
            Unavailable: if the outliers are missing.
            Diverged: if a score is not finite.
        """
        outliers = evaluation.data.images(self.set)  # before the scores, which are not needed if these are missing
        (scorer, fitted), (noise, about) = self.fitted(evaluation), self.noise_and_about(evaluation, self.set)
        inside = self.scores_of(scorer, evaluation, "test", self.data_noise)
        moved = self._under_attack(self.attack, evaluation, scorer, outliers) if self.attack else None
        scores = self.scores_of(scorer, evaluation, self.set, noise) if moved is None else moved
        arrays = {"inside": inside, "outside": scores}
        parts = describe_test_images(len(arrays["inside"]), self.data_noise)
        return self.measurement(evaluation, arrays, parts={**parts, **about, "outliers": len(scores), **fitted})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
        from jembench.stats import ranking

        return as_estimates(ranking.resamplings(arrays["inside"], arrays["outside"]), self.suffix)

    def shard_size(self, device: str) -> int:
        """Return the number of outliers that are attacked together, the same on every device."""
        return attacks.SHARD

    def _under_attack(self, attack: Any, evaluation: Evaluation, scorer: Any, outliers: Any) -> Array:
        """Return the highest score within eps of each attacked outlier, float64 (M,)."""
        import torch
        from torch import Tensor

        from jembench import seeds
        from jembench.attacks import pgd
        from jembench.attacks.gradient import settled
        from jembench.models.predictions import one_pass

        algorithm = pgd.PGD(norm=attack.norm, steps=attack.spent.steps, tolerance=0)
        low, high = evaluation.data.spec.bounds

        def scores(x: Tensor) -> tuple[Tensor, Tensor]:
            at = x * (high - low) + low
            reached = scorer.of(lambda quantity: one_pass(evaluation.model, at, {quantity}, graph=True)[quantity])
            return reached.sum(), reached

        def work(shard: attacks.Shard) -> dict[str, Tensor]:
            with settled(evaluation.model, shard.x.device):
                return {"score": algorithm.highest(scores, shard.x, parse_eps(attack.eps), attack.starts(shard))}

        index = torch.randperm(len(outliers), generator=seeds.generator(0, "robustness/outliers"))[
            : attack.spent.images
        ]
        chosen = attacks.Chosen(index, outliers[index], torch.zeros_like(index))
        worst: Array = attacks.in_shards(self, evaluation, chosen, work).whole()["score"]
        require_finite(torch.from_numpy(worst), f"scores {self.score}", "attacked outliers")
        return worst


def as_estimates(resamplings: Mapping[str, Resampling], suffix: str = "") -> dict[str, Estimate]:
    """Return the values of statistics by their labels with a suffix; an FPR is better lower, all others higher."""
    return {
        label + suffix: Estimate(resampling, "", "lower" if label.startswith("fpr95") else "higher")
        for label, resampling in resamplings.items()
    }
