"""Robustness to attacks that only use the predicted class.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from jembench.attacks.eps import UNIT
from jembench.metrics.attacks import Attack, Budget, Found, distance_estimates
from jembench.metrics.base import OptionalCount
from jembench.metrics.shards import Shard

if TYPE_CHECKING:
    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation
    from jembench.metrics.base import Arrays, Estimates, Parts


@dataclass(frozen=True, kw_only=True)
class DecisionAttack(Attack):
    """An attack that only uses predicted classes.

    Its values are the median distances of adversarial images in L2 and L-inf.

    An attack starts from a correctly classified test image of the class that is ranked second for
    the attacked image. An image without a start counts with the largest possible distance.
    """

    queries: OptionalCount = None
    name: ClassVar[Literal["boundary", "pointwise"]]

    @property
    def spent(self) -> Budget:
        """The budget, with the queries of the option."""
        return super().spent.replaced(queries=self.queries)

    @property
    def protocol_options(self) -> Parts:
        """The parts of the protocol."""
        return super().protocol_options | {"queries": self.spent.queries}

    @property
    def passes(self) -> int:
        """The network passes of all queries."""
        return self.spent.images * self.spent.queries * self.passes_each

    def find(self, evaluation: Evaluation, shard: Shard, target: Target) -> Found:
        """Attack from starts among all test images in a seeded order."""
        import torch

        from jembench import seeds
        from jembench.attacks import decision
        from jembench.data.pixels import to_float

        images, labels = evaluation.data.part("test")
        assert labels is not None  # since images were chosen, see ``choose``
        generator = seeds.generator(0, "robustness/starts")
        order = torch.randperm(len(images), generator=generator)
        pool = to_float(images[order].to(evaluation.device), UNIT)
        classes = labels[order].to(evaluation.device)
        start = decision.choose_starts(target, shard.x, shard.y, pool, classes)

        # one seed for all shards, so that the boundary attack on an image does not depend on its
        # shard
        seed = seeds.derive(0, f"robustness/{self.name}")
        closest = decision.attack(
            self.name, target, shard.x, shard.y, start, queries=self.spent.queries, seed=seed
        )
        started = closest.distance.isfinite()
        return Found(closest.adversarial, started, {"started": started})

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the median distances and the curves, in both norms."""
        return dict(distance_estimates(self.name, arrays, ("l2", "linf")))


@dataclass(frozen=True, kw_only=True)
class Boundary(DecisionAttack):
    """The boundary attack, which only uses predicted classes.

    Its values are the median distances to images of another class.

    It starts from a test image of the class ranked second; ``queries`` is the number of predictions
    per image.
    """

    name = "boundary"


@dataclass(frozen=True, kw_only=True)
class Pointwise(DecisionAttack):
    """The pointwise attack, which only uses predicted classes.

    Its values are the median distances to images of another class.

    It starts from a test image of the class ranked second and resets pixels one by one.
    """

    name = "pointwise"
