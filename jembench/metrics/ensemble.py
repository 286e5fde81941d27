"""Robust accuracy as the worst case of several strong attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks import ensemble
from jembench.attacks.ensemble import MEMBERS
from jembench.attacks.threat import Norm, check_eps, parse_eps
from jembench.catalog.spec import Scalar
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.attacked import Attacked, Shard, check_attack, choose, found_details, in_shards, share, verified
from jembench.metrics.decision_robustness import begin
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import protocol_id, require_at_least
from jembench.stats import mean_of


@dataclass(frozen=True, kw_only=True, slots=True)
class EnsembleRobustness:
    """The share of images that withstand every attack of :mod:`jembench.attacks.ensemble` within eps, in %.

    Misclassified images count as broken. The details say how many each attack was the first to break.
    """

    norm: Norm
    eps: str
    defence: Defence = field(default_factory=Defence)
    images: int = 300
    restarts: int = 20
    steps: int = 40
    queries: int = 25_000
    name: ClassVar[str] = "ensemble"

    def __post_init__(self) -> None:
        numbers = {"images": self.images, "restarts": self.restarts, "steps": self.steps, "queries": self.queries}
        require_at_least(1, self.name, **numbers)
        parse_eps(self.eps)

    @property
    def requires(self) -> frozenset[Capability]:
        """What the defence needs."""
        return self.defence.requires

    @property
    def label(self) -> str:
        """Of the value: ``ensemble-linf@8/255``."""
        return f"{self.name}-{self.norm}@{self.eps}"

    @property
    def _options(self) -> dict[str, Scalar]:
        return {
            "norm": self.norm,
            "eps": self.eps,
            "restarts": self.restarts,
            "steps": self.steps,
            "queries": self.queries,
            "members": "+".join(MEMBERS),
        }

    def passes(self, images: int) -> int:
        """At most: automatic PGD asks for the loss of every iterate beside its gradient."""
        return min(images, self.images) * (4 * self.restarts * self.steps + self.queries) * self.defence.passes

    def check(self, planned: Planned) -> None:
        """Whether there will be classes and chains, room for a change of that size, and the toolbox."""
        check_attack(planned, self.defence)
        check_eps(self.eps, self.norm, planned.data.dimensions)
        ensemble.toolbox()

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = self._attack(evaluation)
        standing = ~found.arrays["found"]
        by = found.arrays["by"][found.arrays["found"]]
        first = {f"broken-by-{member}": int((by == place).sum()) for place, member in enumerate(MEMBERS)}
        return Measurement(
            protocol=protocol_id(
                self.name,
                evaluation,
                images=found.images,
                **self._options,
                **self.defence.identity,
                **self.defence.rule(searched=False),
            ),
            values={self.label: share(standing, "higher")},
            arrays=found.arrays,
            details={**found_details(found.arrays), **first, **found.details},
        )

    def _attack(self, evaluation: Evaluation) -> Attacked:
        chosen = choose(evaluation, self.images)

        def attack(shard: Shard) -> Mapping[str, Tensor]:
            target = self.defence.target(evaluation, f"{self.label} {shard.number}")
            broken = ensemble.attack(
                target,
                shard.x,
                shard.y,
                begin(evaluation, target, shard),
                norm=self.norm,
                eps=parse_eps(self.eps),
                steps=self.steps,
                restarts=self.restarts,
                queries=self.queries,
                seed=seeds.derive(0, f"robustness/{self.name} {shard.number}") % 2**31,
            )
            fresh = self.defence.target(evaluation, f"verify {self.label} {shard.number}")
            return {**verified(fresh, shard, broken.adversarial, broken.by > -2), "by": broken.by}

        return in_shards(evaluation, self.name, self._options, self.defence, chosen, attack)

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The share of resampled images."""
        standing = ~arrays["found"]
        return {self.label: Resampling(mean_of(100.0 * standing), (len(standing),), (0.0, 100.0))}
