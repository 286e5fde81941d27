"""Out-of-distribution detection: the metric's options, and the score that they name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

from jembench.catalog import registry
from jembench.catalog.options import added_later
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Scalar
from jembench.interfaces import Checked, Need, OODScore, Quantity
from jembench.metrics.base import Bootstrapped, Comparable, Count, NotNegative

if TYPE_CHECKING:
    from jembench.interfaces import Planned

STEPS = 10
"""The value of ``steps`` that leaves a score's own as it is."""


@added_later(data_noise=0.0)
@dataclass(frozen=True, kw_only=True)
class OutOfDistribution(Bootstrapped, Comparable):
    """Out-of-distribution detection: AUROC, FPR at 95 % TPR and average precision of a score against other images.

    ``set`` is an OOD set (`jembench list ood_sets`) or a dataset: interp, svhn, celeba:root=/data. ``score`` is
    a name of `jembench list scores` or an import path; ``steps`` changes that option of a score that has it.
    ``data_noise`` is on both kinds of images, on ``interp`` sqrt(1.5) times, as in the code of JEM.

    All values are by scikit-learn, in float64, in 0..1. ``-in``: test images are the positive class; ``fpr95-in`` is
    the share of outliers that score above the threshold which 95 % of the test images pass. ``-out``: outliers are;
    ``fpr95-out`` is the share of test images that are taken for outliers where 95 % of the outliers are found, as in
    OpenOOD (Yang et al. (2022), arXiv:2210.07242). ``aupr`` is average precision; OpenOOD's AUPR is the trapezoidal
    area under the precision-recall curve, which differs, most under ties. AUROC is the same either way.
    """

    set: str
    score: str = "log-px"
    steps: Count = STEPS
    data_noise: NotNegative = 0.0
    name: ClassVar[str] = "ood"
    computed_by: ClassVar[str] = "jembench.metrics.detection:detection"

    @property
    def requires(self) -> frozenset[Need]:
        """What the score needs."""
        return self.scorer.requires

    @property
    def reads(self) -> frozenset[Quantity]:
        """What the score reads of test images and outliers."""
        return self.scorer.reads

    @cached_property
    def _score(self) -> Resolved:
        return registry.resolve("scores", self.score)

    @property
    def _options(self) -> dict[str, Scalar]:
        """``steps``, if the score has such an option that its spec leaves as it is."""
        bound = self._score.bound
        default = bound.defaults.get("steps")
        if "steps" not in bound.arguments or bound.arguments["steps"] != default:
            return {}
        return {"steps": default if self.steps == STEPS else self.steps}

    @cached_property
    def scorer(self) -> OODScore:
        """The score.

        Raises:
            SpecError: if there is none of that name.
        """
        return cast(OODScore, self._score.factory(**{**self._score.bound.arguments, **self._options}))

    @property
    def protocol_parts(self) -> dict[str, Scalar]:
        """What a protocol says of the score."""
        return {"score": str(self._score), **self._options}

    def check(self, planned: Planned) -> None:
        """Whether the other images can be had, and what the score needs."""
        planned.check_ood_set(self.set)
        if isinstance(self.scorer, Checked):
            self.scorer.check(planned)
