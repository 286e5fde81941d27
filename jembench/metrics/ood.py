"""Out-of-distribution detection: the separation of test images from other images by a model's scores.

Legend: N test images, M outliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from jembench.catalog import registry
from jembench.catalog.options import Names
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.interfaces import Evaluation, Measurement, Need, OODScore, Planned, Quantity
from jembench.metrics.base import Array, Arrays, Estimate, Metric, NotNegative, describe_test_images
from jembench.metrics.classification import require_finite

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True)
class OutOfDistribution(Metric):
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
    score: Annotated[str, Names("scores")] = "log-px"
    data_noise: NotNegative = 0.0
    name: ClassVar[str] = "ood"

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score."""
        return self.scorer.requires

    @property
    def reads(self) -> frozenset[Quantity]:
        """The quantities that the score reads of test images and outliers."""
        return self.scorer.reads

    @cached_property
    def _resolved(self) -> Resolved:
        return registry.resolve("scores", self.score)

    @cached_property
    def scorer(self) -> OODScore:
        """The score.

        Raises:
            SpecError: if there is no score of that name.
        """
        return cast(OODScore, self._resolved.make())

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The score with all of its options."""
        score = self._resolved
        options = ((option, format_value(value)) for option, value in sorted(score.arguments.items()))
        return {"score": str(Spec(score.name, tuple(options)))}

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
        arrays = {"inside": self._scores(evaluation, "test"), "outside": self._scores(evaluation, self.set)}
        parts = describe_test_images(len(arrays["inside"]), self.data_noise)
        parts |= {"set": str(resolve(self.set)), "outliers": len(outliers), "content": content_hash(outliers)[:10]}
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
        from jembench.stats import ranking

        return {
            label: Estimate(resampling, "", "lower" if label.startswith("fpr95") else "higher")
            for label, resampling in ranking.resamplings(arrays["inside"], arrays["outside"]).items()
        }

    def _scores(self, evaluation: Evaluation, images: str) -> Array:
        from jembench.data.ood_sets.resolve import resolve

        noise = self.data_noise * (1.0 if images == "test" else getattr(resolve(images).make(), "noise", 1.0))
        scores = self.scorer.scores(evaluation, images, noise).cpu().double()
        require_finite(
            scores,
            f"scores {self.score}",
            f"images of {images}",
            "they cannot be ranked. Train the model again if it has diverged; choose another score if the gradient "
            "of its density overflows in float32.",
        )
        return scores.numpy()
