"""Robustness to projected gradient descent: how far the nearest image of another class is.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks.pgd import PGD
from jembench.attacks.threat import Norm, check_eps, parse_eps, starts
from jembench.catalog.spec import Scalar
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.attacked import (
    CURVE,
    Attacked,
    Shard,
    check_attack,
    choose,
    distance_resamplings,
    distance_values,
    expected,
    found_details,
    in_shards,
    share,
    verified,
)
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.stats import mean_of


@dataclass(frozen=True, kw_only=True, slots=True)
class PGDRobustness:
    """The median distance to the nearest image of another class that PGD finds, and the curve of accuracy over eps.

    With ``eps``, the accuracy under attacks of that size alone. Misclassified images count as broken at 0.
    """

    norm: Norm = "linf"
    eps: str = ""  # as the user wrote it; "": the smallest of each image is searched
    defence: Defence = field(default_factory=Defence)
    images: int = 300
    restarts: int = 20
    steps: int = 40
    tolerance: float = 0.01
    resamples: int = 1000
    name: ClassVar[str] = "pgd"

    def __post_init__(self) -> None:
        require_at_least(1, self.name, images=self.images, restarts=self.restarts, steps=self.steps)
        require_at_least(0, self.name, resamples=self.resamples)
        if self.eps:
            parse_eps(self.eps)

    @property
    def requires(self) -> frozenset[Capability]:
        """What the defence needs."""
        return self.defence.requires

    @property
    def label(self) -> str:
        """Of the value: ``pgd-linf``, ``pgd-linf@8/255``."""
        return f"{self.name}-{self.norm}" + (f"@{self.eps}" if self.eps else "")

    @property
    def _options(self) -> dict[str, Scalar]:
        minimal: dict[str, Scalar] = {"search": "minimal", "tolerance": self.tolerance}
        search: dict[str, Scalar] = {"eps": self.eps} if self.eps else minimal
        return {"norm": self.norm, "restarts": self.restarts, "steps": self.steps, **search}

    def passes(self, images: int) -> int:
        """About: how often an attack succeeds at once decides it."""
        attempts = self.restarts if self.eps else math.log2(2 / self.tolerance) + 1.4 * self.restarts
        return round(min(images, self.images) * attempts * (self.steps + 1) * self.defence.passes)

    def check(self, planned: Planned) -> None:
        """Whether there will be classes, chains, and room for a change of that size."""
        check_attack(planned, self.defence)
        if self.eps:
            check_eps(self.eps, self.norm, planned.data.dimensions)

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = self.attack(evaluation)
        resamplings = self.resamplings(found.arrays)
        rng = bootstrap_rng(evaluation, self.name)
        if self.eps:
            values = {
                label: share(~found.arrays["found"], "higher")
                if label == self.label
                else bootstrapped(resampling, rng, self.resamples, "%", "higher")
                for label, resampling in resamplings.items()
            }
        else:
            values = distance_values(self.name, found.arrays, [self.norm], rng, self.resamples)
        assert values.keys() == resamplings.keys()
        return Measurement(
            protocol=protocol_id(
                self.name,
                evaluation,
                images=found.images,
                **self._options,
                **self.defence.identity,
                **self.defence.rule(),
            ),
            values=values,
            arrays=found.arrays,
            details={**found_details(found.arrays), **found.details},
        )

    def attack(self, evaluation: Evaluation) -> Attacked:
        """The adversarial images, made now or remembered."""
        chosen = choose(evaluation, self.images)

        def attack(shard: Shard) -> Mapping[str, Tensor]:
            pgd = PGD(norm=self.norm, steps=self.steps, tolerance=self.tolerance)
            target = self.defence.target(evaluation, f"{self.label} {shard.number}")
            begin = starts_of(self, shard)
            if self.eps:
                closest = pgd.robust(target, shard.x, shard.y, parse_eps(self.eps), begin)
            else:
                sizes = [parse_eps(eps) for eps in CURVE[self.norm]]
                closest = pgd.minimal(target, shard.x, shard.y, begin, sizes)
            fresh = self.defence.target(evaluation, f"verify {self.label} {shard.number}")
            return verified(fresh, shard, closest.adversarial, closest.distance.isfinite())

        return in_shards(evaluation, self.name, self._options, self.defence, chosen, attack)

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The statistics behind the values, of images."""
        if self.eps:
            standing = ~arrays["found"]
            found = {self.label: Resampling(mean_of(100.0 * standing), (len(standing),), (0.0, 100.0))}
            return found | dict([expected(self.label, arrays["wrong"])] if "wrong-as-it-is" in arrays else [])
        return dict(distance_resamplings(self.name, arrays, [self.norm]))


def starts_of(attack: PGDRobustness, shard: Shard) -> Tensor:
    """Of each image its own, whatever shard it is in and whichever model is attacked: (N, R, C, H, W)."""
    drawn = [
        starts(attack.restarts, tuple(shard.x.shape[1:]), attack.norm, seeds.generator(0, f"robustness/start {index}"))
        for index in shard.index.tolist()
    ]
    return torch.stack(drawn).to(shard.x.device)
