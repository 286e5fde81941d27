"""Robustness to attackers who see nothing but the class: the boundary and the pointwise attack."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from jembench import seeds
from jembench.attacks import decision
from jembench.attacks.eps import Norm
from jembench.attacks.starts import Start, of_runner_up
from jembench.attacks.target import Target
from jembench.data.pixels import to_float
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.attacked import (
    Attacked,
    Shard,
    choose,
    distance_estimates,
    found_details,
    in_shards,
    measured,
    verified,
)
from jembench.metrics.attacks import Boundary, DecisionAttack
from jembench.metrics.estimates import Arrays, Estimate

NORMS: tuple[Norm, ...] = ("l2", "linf")


def compute(metric: DecisionAttack, evaluation: Evaluation) -> Measurement:
    """Attack the model, and measure how far it had to go."""
    found = attack(metric, evaluation)
    without = {"without-start": int((~found.arrays["started"]).sum())}
    return measured(metric, evaluation, found, {**found_details(found.arrays), **without})


def attack(metric: DecisionAttack, evaluation: Evaluation) -> Attacked:
    """The adversarial images, made now or remembered."""
    queries, defence = metric.spent.queries, metric.defence

    def search(shard: Shard) -> Mapping[str, Tensor]:
        target = defence.target(evaluation, f"{metric.name} {shard.number}")
        closest = decision.attack(
            "boundary" if isinstance(metric, Boundary) else "pointwise",
            target,
            shard.x,
            shard.y,
            begin(evaluation, target, shard),
            queries=queries,
            # the same in all shards, so that the boundary attack on an image does not depend on which it is in
            seed=seeds.derive(0, f"robustness/{metric.name}"),
        )
        fresh = defence.target(evaluation, f"verify {metric.name} {shard.number}")
        started = closest.distance.isfinite()
        return {**verified(fresh, shard, closest.adversarial, started), "started": started}

    chosen = choose(evaluation, metric.spent.images)
    return in_shards(evaluation, metric.name, metric.options, defence, chosen, search)


def estimates(metric: DecisionAttack, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images."""
    return dict(distance_estimates(metric.name, arrays, NORMS))


def begin(evaluation: Evaluation, target: Target, shard: Shard) -> Start:
    """Where an attack on each image begins, among all test images in one seeded order."""
    images, labels = evaluation.data.part("test")
    assert labels is not None  # else no images could have been chosen
    order = torch.randperm(len(images), generator=seeds.generator(0, "robustness/starts"))
    pool = to_float(images[order].to(evaluation.device), (0.0, 1.0))
    return of_runner_up(target, shard.x, shard.y, pool, labels[order].to(evaluation.device))
