"""Selective prediction: errors that are left without the least confident images.

Legend: N images, U distinct confidences, R resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.base import Array, Arrays, describe_test_images
from jembench.metrics.classification import labelled_logits
from jembench.metrics.ood import ScoredClasses
from jembench.plugin import Estimate, Names, Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from jembench.stats.intervals import Indices


@dataclass(frozen=True, kw_only=True)
class Selective(ScoredClasses):
    """Selective prediction by a score: areas under risk-coverage curves, and a risk.

    The risk, in %, is the selective risk at ``coverage``.

    Images are withdrawn in ascending order of ``score``, a name of `jembench list scores`; images
    of equal score together. The coverage is the share of images that are kept. ``aurc`` is the area
    under the selective risk, errors among the kept images (Geifman & El-Yaniv, 2017,
    arXiv:1705.08500); ``augrc`` is the area under the generalised risk, errors kept among all
    images (Traub et al., 2024, arXiv:2407.01032). ``excess-`` is the difference to the area of a
    score that withdraws all errors first. ``selective-risk`` is the selective risk at the smallest
    coverage of at least ``coverage``.
    """

    score: Annotated[str, Names("scores")] = "max-py"
    coverage: Annotated[float, Range(above=0, most=1)] = 0.8
    name: ClassVar[str] = "selective"

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Score and classify the test images."""
        scorer, fitted = self.fitted(evaluation)
        logits, labels = labelled_logits(evaluation, "test", self.data_noise)
        correct = logits.argmax(dim=1) == labels
        score = self.scores_of(scorer, evaluation, "test", self.data_noise)
        arrays = {"score": score, "correct": correct.numpy()}
        parts = describe_test_images(len(labels), self.data_noise)
        parts |= {"coverage": self.coverage, **fitted}
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the areas, excess areas and risk at the coverage, in %."""
        ranks = ranks_of(arrays["score"])
        wrong = ~arrays["correct"].astype(bool)
        n = len(ranks)

        def of(value: Callable[[Curve], float], *, excess: bool = False) -> Estimate:
            def percent(drawn: Indices) -> Array:
                import numpy as np

                values = []
                for row in drawn:
                    risk = value(curve(ranks[row], wrong[row]))
                    least = value(best_curve(wrong[row])) if excess else 0.0
                    values.append(risk - least)
                return 100 * np.array(values)

            resampling = Resampling(percent, (n,), (0.0, 100.0))
            return Estimate(resampling, "%", "lower")

        risk = of(lambda risks: risks.selective_at(self.coverage))
        # trials are the kept images, each of which is an error or not
        trials = math.ceil(self.coverage * n)
        kept = risk.resampling._replace(trials=trials)
        return {
            "aurc": of(Curve.aurc),
            "augrc": of(Curve.augrc),
            "excess-aurc": of(Curve.aurc, excess=True),
            "excess-augrc": of(Curve.augrc, excess=True),
            f"selective-risk@{self.coverage:g}": risk._replace(resampling=kept),
        }


class Curve(NamedTuple):
    """Risks at the coverages of a score's U thresholds, in 0..1.

    At a coverage of 0 the selective risk is that of the smallest coverage above it, and the
    generalised risk is 0.
    """

    coverage: Array  # (U + 1,), from 0 to 1
    selective: Array  # (U + 1,): errors among the kept images
    generalised: Array  # (U + 1,): errors kept among all images

    def aurc(self) -> float:
        """Return the area under the selective risk, by the trapezoidal rule."""
        return _area(self.selective, self.coverage)

    def augrc(self) -> float:
        """Return the area under the generalised risk."""
        return _area(self.generalised, self.coverage)

    def selective_at(self, coverage: float) -> float:
        """Return the selective risk at the smallest coverage of at least ``coverage``."""
        return float(self.selective[self.coverage.searchsorted(coverage)])


def _area(risk: Array, coverage: Array) -> float:
    import numpy as np

    return float(np.trapezoid(risk, coverage))


def ranks_of(score: Array) -> Array:
    """Return the rank of each score (N,), 0 for the highest."""
    import numpy as np

    ranks: Array = np.unique(-score, return_inverse=True)[1]
    return ranks


def curve(ranks: Array, wrong: Array) -> Curve:
    """Return the curve of images withdrawn from the last rank on."""
    import numpy as np

    counts = np.bincount(ranks)
    occurs = counts > 0
    kept = counts[occurs].cumsum()
    errors = np.bincount(ranks, wrong)[occurs].cumsum()
    selective = errors / kept
    coverage = np.r_[0, kept] / kept[-1]
    generalised = np.r_[0, errors] / kept[-1]
    return Curve(coverage, np.r_[selective[0], selective], generalised)


def best_curve(wrong: Array) -> Curve:
    """Return the curve of a score that withdraws all errors first."""
    import numpy as np

    return curve(np.arange(len(wrong)), np.sort(wrong))
