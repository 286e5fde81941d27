"""Robustness to attacks that see only the predicted class.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from jembench.catalog.spec import Scalar
from jembench.metrics.attacks import Attack, Budget, Found, Shard, distance_estimates
from jembench.metrics.base import OptionalCount

if TYPE_CHECKING:
    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation
    from jembench.metrics.base import Arrays, Estimate


@dataclass(frozen=True, kw_only=True)
class DecisionAttack(Attack):
    """An attack that sees classes alone, and the median distances, in L2 and L-inf, of its images.

    It begins at a correctly classified test image of the class ranked second. An image whose start fails counts with
    the largest distance there is.
    """

    queries: OptionalCount = None
    name: ClassVar[Literal["boundary", "pointwise"]]

    @property
    def spent(self) -> Budget:
        """The budget, with the numbers that options replace."""
        return super().spent.but(queries=self.queries)

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The parts of the protocol."""
        return {**super().protocol_options, "queries": self.spent.queries}

    def passes(self, images: int) -> int:
        """Return the largest number of network passes; pointwise may end sooner."""
        return min(images, self.spent.images) * self.spent.queries * self.passes_an_answer

    def find(self, evaluation: Evaluation, shard: Shard, target: Target) -> Found:
        """Attack from starts among all test images, in one seeded order."""
        import torch

        from jembench import seeds
        from jembench.attacks import decision
        from jembench.data.pixels import to_float

        images, labels = evaluation.data.part("test")
        assert labels is not None  # else no images could have been chosen
        order = torch.randperm(len(images), generator=seeds.generator(0, "robustness/starts"))
        pool = to_float(images[order].to(evaluation.device), (0.0, 1.0))
        start = decision.of_runner_up(target, shard.x, shard.y, pool, labels[order].to(evaluation.device))
        # the seed is the same in all shards, so that the boundary attack on an image does not depend on which it is in
        seed = seeds.derive(0, f"robustness/{self.name}")
        closest = decision.attack(self.name, target, shard.x, shard.y, start, queries=self.spent.queries, seed=seed)
        started = closest.distance.isfinite()
        return Found(closest.adversarial, started, {"started": started})

    def details(self, arrays: Arrays) -> dict[str, Any]:
        """Return further information on the result, with the number of images without a start."""
        return {**super().details(arrays), "without-start": int((~arrays["started"]).sum())}

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the median distances and the curves, in both norms."""
        return dict(distance_estimates(self.name, arrays, ("l2", "linf")))


@dataclass(frozen=True, kw_only=True)
class Boundary(DecisionAttack):
    """The boundary attack, which sees classes alone: the median distances to the nearest image of another class.

    It begins at a test image of the class ranked second; ``queries`` is the number of predictions for each image.
    """

    name: ClassVar[Literal["boundary", "pointwise"]] = "boundary"


@dataclass(frozen=True, kw_only=True)
class Pointwise(DecisionAttack):
    """The pointwise attack, which sees classes alone: the median distances to the nearest image of another class.

    It sets pixels back, one after the other, from a test image of the class ranked second.
    """

    name: ClassVar[Literal["boundary", "pointwise"]] = "pointwise"
