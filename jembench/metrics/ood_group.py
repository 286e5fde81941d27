"""Out-of-distribution detection on groups of OOD sets, as OpenOOD reports it.

Legend: N test images, M outliers of a set.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jembench.errors import NotApplicable
from jembench.interfaces import DataSpec, Evaluation, Measurement, Planned
from jembench.metrics.base import Arrays, Estimate, describe_test_images
from jembench.metrics.ood import as_estimates
from jembench.metrics.scored import Scored

_FAR = ("openood:name=mnist", "openood:name=svhn", "openood:name=texture", "openood:name=places365")

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"near": ("openood:name=cifar100", "openood:name=tin"), "far": _FAR},
    "cifar100": {"near": ("openood:name=cifar10", "openood:name=tin"), "far": _FAR},
    "digits": {"near": ("halves", "interp", "flipped"), "far": ("permuted", "uniform", "constant")},
}
"""The sets of each group by the name of the dataset: OpenOOD v1.5's for CIFAR, our own for digits."""


@dataclass(frozen=True, kw_only=True)
class OutOfDistributionGroup(Scored):
    """Out-of-distribution detection on the near or the far sets of OpenOOD: means of the values over the sets.

    Zhang et al. (2023), arXiv:2306.09301. Values and options are those of ``ood``, computed for each set and averaged;
    intervals draw the test images once for all sets. ``fpr95-out`` is OpenOOD's FPR95, and ``aupr-in-trapezoid`` and
    ``aupr-out-trapezoid`` are its AUPR-IN and AUPR-OUT. On digits the sets are our own, so that the suite is quick.
    """

    group: Literal["near", "far"]
    name: ClassVar[str] = "ood-group"

    def sets(self, data: DataSpec) -> tuple[str, ...]:
        """Return the sets of the group for a dataset.

        Raises:
            NotApplicable: if the dataset has no groups.
        """
        if data.name not in GROUPS:
            raise NotApplicable(f"There are groups of OOD sets for {', '.join(GROUPS)} alone. Use the metric ood.")
        return GROUPS[data.name][self.group]

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
        found = {name: self.noise_and_about(evaluation, name) for name in self.sets(evaluation.data.spec)}
        scorer, fitted = self.fitted(evaluation)
        arrays = {name: self.scores_of(scorer, evaluation, name, noise) for name, (noise, _) in found.items()}
        arrays["inside"] = self.scores_of(scorer, evaluation, "test", self.data_noise)
        parts = describe_test_images(len(arrays["inside"]), self.data_noise) | {"group": self.group, **fitted}
        parts |= {
            key: "+".join(str(about[key]) for _, about in found.values()) for key in ("set", "outliers", "content")
        }
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the means over sets of AUROC, FPR at 95 % TPR, average precision and the trapezoidal areas."""
        from jembench.stats import ranking

        pairs = [(arrays["inside"], scores) for name, scores in arrays.items() if name != "inside"]
        each = [ranking.resamplings(*pair) | ranking.trapezoids(*pair) for pair in pairs]
        return as_estimates({label: ranking.mean_over_sets([one[label] for one in each]) for label in each[0]})
