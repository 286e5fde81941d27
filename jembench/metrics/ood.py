"""Out-of-distribution detection: the separation of test images from other images by a model's scores.

Legend: N test images, M outliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from jembench.catalog.options import Names
from jembench.interfaces import Evaluation, Measurement, Planned
from jembench.metrics.base import Arrays, Estimate, describe_test_images
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
        from jembench.data.ood_sets.resolve import resolve
        from jembench.data.pixels import content_hash

        outliers = evaluation.data.images(self.set)  # before the scores, which are not needed if these are missing
        (scorer, fitted), outside = self.fitted(evaluation), resolve(self.set)
        noise = self.data_noise * getattr(outside.make(), "noise", 1.0)
        arrays = {
            "inside": self.scores_of(scorer, evaluation, "test", self.data_noise),
            "outside": self.scores_of(scorer, evaluation, self.set, noise),
        }
        parts = describe_test_images(len(arrays["inside"]), self.data_noise)
        parts |= {"set": str(outside), "outliers": len(outliers), "content": content_hash(outliers)[:10], **fitted}
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
        from jembench.stats import ranking

        return {
            label: Estimate(resampling, "", "lower" if label.startswith("fpr95") else "higher")
            for label, resampling in ranking.resamplings(arrays["inside"], arrays["outside"]).items()
        }
