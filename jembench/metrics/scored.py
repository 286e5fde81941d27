"""The base class of metrics of a score of images, such as log p(x) or max p(y|x).

Legend: N images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, cast

from jembench.catalog import registry
from jembench.catalog.options import Names
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.interfaces import Evaluation, Need, OODScore, Quantity
from jembench.interfaces.metrics import FittedScore
from jembench.metrics.base import Array, Metric, NotNegative
from jembench.metrics.classification import require_finite


@dataclass(frozen=True, kw_only=True)
class Scored(Metric):
    """A metric of a score of each image: ``score`` is a name of `jembench list scores` with its options."""

    score: Annotated[str, Names("scores")] = "log-px"
    data_noise: NotNegative = 0.0

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score."""
        return self.scorer.requires

    @property
    def reads(self) -> frozenset[Quantity]:
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
    def protocol_options(self) -> dict[str, Scalar]:
        """The score with all of its options."""
        score = self._resolved
        options = ((option, format_value(value)) for option, value in sorted(score.arguments.items()))
        return {"score": str(Spec(score.name, tuple(options)))}

    def fitted(self, evaluation: Evaluation) -> tuple[OODScore, Mapping[str, str | int]]:
        """Return the score of the model, and the parts of the protocol that say which images it was fitted on."""
        scorer = self.scorer
        return scorer.fit(evaluation, self.data_noise) if isinstance(scorer, FittedScore) else (scorer, {})

    def scores_of(self, scorer: OODScore, evaluation: Evaluation, images: str, noise: float) -> Array:
        """Return the score of each image, float64 (N,).

        Raises:
            Diverged: if a score is not finite.
        """
        scores = scorer.scores(evaluation, images, noise).cpu().double()
        require_finite(
            scores,
            f"scores {self.score}",
            f"images of {images}",
            "they cannot be ranked. Train the model again if it has diverged; choose another score if the gradient "
            "of its density overflows in float32.",
        )
        return scores.numpy()

    def noise_and_about(self, evaluation: Evaluation, name: str) -> tuple[float, dict[str, Scalar]]:
        """Return the noise on the images of an OOD set, and its description for the protocol.

        Raises:
            Unavailable: if its images are missing.
        """
        from jembench.data.ood_sets.resolve import resolve
        from jembench.data.pixels import content_hash

        images, found = evaluation.data.images(name), resolve(name)
        about: dict[str, Scalar] = {"set": str(found), "outliers": len(images), "content": content_hash(images)[:10]}
        return self.data_noise * getattr(found.make(), "noise", 1.0), about


@dataclass(frozen=True, kw_only=True)
class ScoredClasses(Scored):
    """A metric of a score and of predicted classes."""

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score, and labelled logits."""
        return super().requires | {"logits", "labels"}

    @property
    def reads(self) -> frozenset[Quantity]:
        """The logits, and what the score reads."""
        return super().reads | {"logits"}
