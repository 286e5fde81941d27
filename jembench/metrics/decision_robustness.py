"""Robustness to attackers who see nothing but the class: the boundary and the pointwise attack.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks import decision
from jembench.attacks.starts import Start, of_runner_up
from jembench.attacks.target import Target
from jembench.attacks.threat import Norm
from jembench.data.pixels import to_float
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.attacked import (
    Attacked,
    Shard,
    check_attack,
    choose,
    distance_resamplings,
    distance_values,
    found_details,
    in_shards,
    verified,
)
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least

NORMS: tuple[Norm, ...] = ("l2", "linf")


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionRobustness:
    """The median distances, in L2 and L-inf, to the nearest image in L2 of another class that is found by asking.

    Each attack begins at a correctly classified test image of the class ranked second. An image whose start fails
    counts with the largest distance there is.
    """

    name: decision.Attack
    defence: Defence = field(default_factory=Defence)
    images: int = 300
    queries: int = 25_000
    resamples: int = 1000

    def __post_init__(self) -> None:
        require_at_least(1, self.name, images=self.images, queries=self.queries)
        require_at_least(0, self.name, resamples=self.resamples)

    @property
    def requires(self) -> frozenset[Capability]:
        """What the defence needs."""
        return self.defence.requires

    def passes(self, images: int) -> int:
        """At most: pointwise comes to its end by itself."""
        return min(images, self.images) * self.queries * self.defence.passes

    def check(self, planned: Planned) -> None:
        """Whether there will be classes and chains."""
        check_attack(planned, self.defence)

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = self.attack(evaluation)
        rng = bootstrap_rng(evaluation, self.name)
        return Measurement(
            protocol=protocol_id(
                self.name,
                evaluation,
                images=found.images,
                queries=self.queries,
                **self.defence.identity,
                **self.defence.rule(),
            ),
            values=distance_values(self.name, found.arrays, NORMS, rng, self.resamples),
            arrays=found.arrays,
            details={
                **found_details(found.arrays),
                "without-start": int((~found.arrays["started"]).sum()),
                **found.details,
            },
        )

    def attack(self, evaluation: Evaluation) -> Attacked:
        """The adversarial images, made now or remembered."""
        chosen = choose(evaluation, self.images)

        def attack(shard: Shard) -> Mapping[str, Tensor]:
            target = self.defence.target(evaluation, f"{self.name} {shard.number}")
            closest = decision.attack(
                self.name,
                target,
                shard.x,
                shard.y,
                begin(evaluation, target, shard),
                queries=self.queries,
                # the same in all shards, so that the boundary attack on an image does not depend on which it is in
                seed=seeds.derive(0, f"robustness/{self.name}"),
            )
            fresh = self.defence.target(evaluation, f"verify {self.name} {shard.number}")
            arrays = verified(fresh, shard, closest.adversarial, closest.distance.isfinite())
            return {**arrays, "started": closest.distance.isfinite()}

        return in_shards(evaluation, self.name, {"queries": self.queries}, self.defence, chosen, attack)

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The statistics behind the values, of images."""
        return dict(distance_resamplings(self.name, arrays, NORMS))


def begin(evaluation: Evaluation, target: Target, shard: Shard) -> Start:
    """Where an attack on each image begins, among all test images in one seeded order."""
    images, labels = evaluation.test()
    assert labels is not None  # else no images could have been chosen
    order = torch.randperm(len(images), generator=seeds.generator(0, "robustness/starts"))
    pool = to_float(images[order].to(evaluation.device), (0.0, 1.0))
    return of_runner_up(target, shard.x, shard.y, pool, labels[order].to(evaluation.device))
