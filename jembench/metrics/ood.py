"""Out-of-distribution detection by a score of each image.

The score separates test images from an OOD set, or from groups of sets as in OpenOOD.

Legend: N test images, M outliers of a set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, cast

from jembench.catalog import registry
from jembench.catalog.options import Names
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Spec
from jembench.errors import PluginError
from jembench.interfaces import (
    DataSpec,
    Evaluation,
    Measurement,
    OODScore,
    Planned,
    Resampling,
)
from jembench.interfaces.metrics import FittedScore
from jembench.metrics.base import (
    Array,
    Arrays,
    Better,
    Estimate,
    Estimates,
    Metric,
    Needs,
    NotNegative,
    Parts,
    Quantities,
    describe_test_images,
)
from jembench.metrics.classification import require_finite


class Outliers(NamedTuple):
    """The noise on the images of an OOD set, and their description."""

    noise: float
    about: Parts  # of the protocol


@dataclass(frozen=True, kw_only=True)
class Scored(Metric):
    """A metric of a score of each image.

    ``score`` is a name of `jembench list scores` with its options.
    """

    score: Annotated[str, Names("scores")] = "log-px"
    data_noise: NotNegative = 0.0

    @property
    def requires(self) -> Needs:
        """The needs of the score."""
        return self.scorer.requires

    @property
    def reads(self) -> Quantities:
        """The quantities that the score reads."""
        return self.scorer.reads

    @cached_property
    def _resolved(self) -> Resolved:
        return registry.resolve("scores", self.score)

    @cached_property
    def scorer(self) -> OODScore:
        """The score, not fitted.

        Raises:
            SpecError: if there is no score of that name.
        """
        return cast(OODScore, self._resolved.make())

    @property
    def protocol_options(self) -> Parts:
        """The score with all of its options."""
        score = self._resolved
        return {"score": Spec.of(score.name, score.arguments)}

    def fitted(self, evaluation: Evaluation) -> tuple[OODScore, Mapping[str, str | int]]:
        """Return the fitted score, and the protocol of the images behind the fit."""
        scorer = self.scorer
        if isinstance(scorer, FittedScore):
            return scorer.fit(evaluation, self.data_noise)
        return scorer, {}

    def scores_of(
        self, scorer: OODScore, evaluation: Evaluation, images: str, noise: float
    ) -> Array:
        """Return the score of each image, float64 (N,).

        Raises:
            Diverged: if a score is not finite.
            PluginError: if there is not a real number for each image.
        """
        scores = scorer.scores(evaluation, images, noise)
        expected = (len(evaluation.data.images(images)),)
        if tuple(scores.shape) != expected or scores.is_complex():
            raise PluginError(
                f"The score {self.score} gives {tuple(scores.shape)} {scores.dtype} for the "
                f"images of {images}; it must give a real number per image, {expected}."
            )
        scores = scores.cpu().double()
        require_finite(
            scores,
            f"scores {self.score}",
            f"images of {images}",
            "they cannot be ranked. Train the model again if it has diverged; choose another "
            "score if the gradient of its density overflows in float32.",
        )
        return scores.numpy()

    def noise_and_about(self, evaluation: Evaluation, name: str) -> Outliers:
        """Return the noise on an OOD set's images, and the set's description for the protocol.

        Raises:
            Unavailable: if the set's images are missing.
        """
        from jembench.data.ood_sets.resolve import resolve
        from jembench.data.pixels import content_hash

        images = evaluation.data.images(name)
        ood_set = resolve(name)
        about: Parts = {"set": str(ood_set), "outliers": len(images)}
        about["content"] = content_hash(images)[:10]
        factor = getattr(ood_set.make(), "noise", 1.0)
        return Outliers(self.data_noise * factor, about)


@dataclass(frozen=True, kw_only=True)
class ScoredClasses(Scored):
    """A metric of a score and of predicted classes."""

    @property
    def requires(self) -> Needs:
        """The needs of the score, and labelled logits."""
        return super().requires | {"logits", "labels"}

    @property
    def reads(self) -> Quantities:
        """The logits, and what the score reads."""
        return super().reads | {"logits"}


@dataclass(frozen=True, kw_only=True)
class OutOfDistribution(Scored):
    """Out-of-distribution detection of another set of images by a score.

    Its values are AUROC, FPR at 95 % TPR and average precision.

    ``set`` is an OOD set (`jembench list ood_sets`) or a dataset: interp, svhn, celeba:root=/data.
    ``score`` is a name of `jembench list scores` with its options, refinement:steps=5, or an import
    path. Noise with the standard deviation ``data_noise`` is added to test images and
    outliers; on ``interp`` the noise is sqrt(1.5) times as large, as in the code of JEM.

    All values are computed in float64, and lie in 0..1. With ``-in`` test images are the positive
    class: ``fpr95-in`` is the share of outliers above the threshold that 95 % of the test images
    exceed. With ``-out`` outliers are the positive class: ``fpr95-out`` is the share of test images
    detected at the threshold that detects 95 % of the outliers, as in OpenOOD (Yang et al. (2022),
    arXiv:2210.07242). ``aupr`` is average precision; OpenOOD's AUPR is the trapezoidal area under
    the precision-recall curve, which differs, most under ties. AUROC is the same either way.
    """

    set: Annotated[str, Names("ood_sets", "datasets")]
    name = "ood"

    def check(self, planned: Planned) -> None:
        """Check that the outliers are available."""
        planned.check_ood_set(self.set)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Score the test images and the outliers.

        Raises:
            Unavailable: if the outliers are missing.
            Diverged: if a score is not finite.
        """
        # before the scores: outliers may be missing
        noise, about = self.noise_and_about(evaluation, self.set)
        scorer, fitted = self.fitted(evaluation)
        inside = self.scores_of(scorer, evaluation, "test", self.data_noise)
        outside = self.outside(scorer, evaluation, noise)
        parts = describe_test_images(len(inside), self.data_noise) | about
        parts |= {"outliers": len(outside), **fitted}
        return self.measurement(evaluation, {"inside": inside, "outside": outside}, parts=parts)

    def outside(self, scorer: OODScore, evaluation: Evaluation, noise: float) -> Array:
        """Return the scores of the outliers with noise, float64 (M,)."""
        return self.scores_of(scorer, evaluation, self.set, noise)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return AUROC, FPR at 95 % TPR and average precision, of test images and outliers."""
        from jembench.stats import ranking

        return as_estimates(ranking.resamplings(arrays["inside"], arrays["outside"]))


_FAR = ("openood:name=mnist", "openood:name=svhn", "openood:name=texture", "openood:name=places365")

OPENOOD = {
    "cifar10": {"near": ("openood:name=cifar100", "openood:name=tin"), "far": _FAR},
    "cifar100": {"near": ("openood:name=cifar10", "openood:name=tin"), "far": _FAR},
    "imagenet": {
        "near": ("openood:name=ssb_hard", "openood:name=ninco"),
        "far": (
            "openood:name=inaturalist",
            "openood:name=textures",
            "openood:name=openimage_o",
        ),
    },
}
"""The sets of each group of OpenOOD v1.5, by the name of the dataset."""

MADE = {"near": ("halves", "interp", "flipped"), "far": ("permuted", "uniform", "constant")}
"""The sets of each group for all other datasets, made from their images or from noise."""


@dataclass(frozen=True, kw_only=True)
class OutOfDistributionGroup(Scored):
    """Out-of-distribution detection of a group of near or far sets.

    Values are means over the sets.

    On CIFAR and on a dataset named imagenet the sets are those of OpenOOD, Zhang et al. (2023),
    arXiv:2306.09301; for other datasets jembench makes them. Values and options are as for
    ``ood``; the values are computed for each set and averaged; intervals draw the test images once
    for all sets. ``fpr95-out`` is OpenOOD's FPR95, and ``aupr-in-trapezoid`` and
    ``aupr-out-trapezoid`` are its AUPR-IN and AUPR-OUT.
    """

    group: Literal["near", "far"]
    name = "ood-group"

    def sets(self, data: DataSpec) -> tuple[str, ...]:
        """Return the sets of the group for a dataset."""
        return OPENOOD.get(data.name, MADE)[self.group]

    def check(self, planned: Planned) -> None:
        """Check that the outliers of every set are available."""
        for name in self.sets(planned.spec):
            planned.check_ood_set(name)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Score the test images and the outliers of every set.

        Raises:
            Unavailable: if outliers are missing.
            Diverged: if a score is not finite.
        """
        # before the scores: outliers may be missing
        sets = {}
        for name in self.sets(evaluation.data.spec):
            sets[name] = self.noise_and_about(evaluation, name)

        scorer, fitted = self.fitted(evaluation)
        arrays = {}
        for name, outliers in sets.items():
            arrays[name] = self.scores_of(scorer, evaluation, name, outliers.noise)
        inside = self.scores_of(scorer, evaluation, "test", self.data_noise)
        arrays["inside"] = inside

        parts = describe_test_images(len(inside), self.data_noise)
        parts |= {"group": self.group, **fitted}
        for key in ("set", "outliers", "content"):
            parts[key] = "+".join(str(outliers.about[key]) for outliers in sets.values())
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the means over sets of AUROC, FPR, average precision and areas.

        FPR is at 95 % TPR; the areas are trapezoidal areas under precision-recall curves.
        """
        from jembench.stats import ranking

        inside = arrays["inside"]
        of_label: dict[str, list[Resampling]] = {}
        for name, outside in arrays.items():
            if name == "inside":
                continue
            of_set = ranking.resamplings(inside, outside) | ranking.trapezoids(inside, outside)
            for label, resampling in of_set.items():
                of_label.setdefault(label, []).append(resampling)
        return as_estimates(
            {label: ranking.mean_over_sets(of_sets) for label, of_sets in of_label.items()}
        )


def as_estimates(resamplings: Mapping[str, Resampling]) -> Estimates:
    """Return values by their labels; a lower FPR is better, and a higher value of all others."""
    estimates = {}
    for label, resampling in resamplings.items():
        better: Better = "lower" if label.startswith("fpr95") else "higher"
        estimates[label] = Estimate(resampling, "", better)
    return estimates
