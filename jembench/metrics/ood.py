"""Out-of-distribution detection: the separation of test images from other images by a model's scores.

Legend: N test images, M outliers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from jembench.catalog.options import Names
from jembench.interfaces import Evaluation, Measurement, OODScore, Planned, Resampling
from jembench.metrics.base import Array, Arrays, Estimate, describe_test_images
from jembench.metrics.scored import Scored


@dataclass(frozen=True, kw_only=True)
class OutOfDistribution(Scored):
    """Out-of-distribution detection: AUROC, FPR at 95 % TPR and average precision of a score against other images.

    ``set`` is an OOD set (`jembench list ood_sets`) or a dataset: interp, svhn, celeba:root=/data. ``score`` is
    a name of `jembench list scores` with its options, refinement:steps=5, or an import path. ``data_noise`` is added to
    both kinds of images, to ``interp`` sqrt(1.5) times, as in the code of JEM.

    All values are computed in float64, and lie in 0..1. With ``-in`` test images are the positive class: ``fpr95-in``
    is the share of outliers above the threshold that 95 % of the test images exceed. With ``-out`` outliers are the
    positive class: ``fpr95-out`` is the share of test images detected at the threshold that detects 95 % of the
    outliers, as in OpenOOD (Yang et al. (2022), arXiv:2210.07242). ``aupr`` is average precision; OpenOOD's AUPR is the
    trapezoidal area under the precision-recall curve, which differs, most under ties. AUROC is the same either way.
    """

    set: Annotated[str, Names("ood_sets", "datasets")]
    name: ClassVar[str] = "ood"

    def check(self, planned: Planned) -> None:
        """Check that the outliers are available."""
        planned.check_ood_set(self.set)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Score the test images and the outliers.

        Raises:
            Unavailable: if the outliers are missing.
            Diverged: if a score is not finite.
        """
        noise, about = self.noise_and_about(evaluation, self.set)  # before the scores: outliers may be missing
        scorer, fitted = self.fitted(evaluation)
        inside = self.scores_of(scorer, evaluation, "test", self.data_noise)
        outside = self.outside(scorer, evaluation, noise)
        parts = describe_test_images(len(inside), self.data_noise) | about | {"outliers": len(outside), **fitted}
        return self.measurement(evaluation, {"inside": inside, "outside": outside}, parts=parts)

    def outside(self, scorer: OODScore, evaluation: Evaluation, noise: float) -> Array:
        """Return the scores of the outliers with noise, float64 (M,)."""
        return self.scores_of(scorer, evaluation, self.set, noise)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
        from jembench.stats import ranking

        return as_estimates(ranking.resamplings(arrays["inside"], arrays["outside"]))


def as_estimates(resamplings: Mapping[str, Resampling]) -> dict[str, Estimate]:
    """Return the values of statistics by their labels; an FPR is better lower, all others higher."""
    return {
        label: Estimate(resampling, "", "lower" if label.startswith("fpr95") else "higher")
        for label, resampling in resamplings.items()
    }
