"""Robustness to projected gradient descent: how far the nearest image of another class is.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 5.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from jembench import seeds
from jembench.attacks import pgd
from jembench.attacks.eps import parse_eps
from jembench.attacks.threat import starts
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.attacked import (
    CURVE,
    Attacked,
    Shard,
    accuracies,
    choose,
    distance_estimates,
    found_details,
    in_shards,
    measured,
    verified,
)
from jembench.metrics.attacks import PGD
from jembench.metrics.estimates import Arrays, Estimate


def compute(metric: PGD, evaluation: Evaluation) -> Measurement:
    """Attack the model, and measure how far it had to go."""
    found = attack(metric, evaluation)
    return measured(metric, evaluation, found, found_details(found.arrays))


def attack(metric: PGD, evaluation: Evaluation) -> Attacked:
    """The adversarial images, made now or remembered."""
    spent, defence = metric.spent, metric.defence

    def search(shard: Shard) -> Mapping[str, Tensor]:
        algorithm = pgd.PGD(norm=metric.norm, steps=spent.steps, tolerance=spent.tolerance)
        target = defence.target(evaluation, f"{metric.label} {shard.number}")
        begin = starts_of(metric, shard)
        if metric.eps:
            closest = algorithm.robust(target, shard.x, shard.y, parse_eps(metric.eps), begin)
        else:
            sizes = [parse_eps(eps) for eps in CURVE[metric.norm]]
            closest = algorithm.minimal(target, shard.x, shard.y, begin, sizes)
        fresh = defence.target(evaluation, f"verify {metric.label} {shard.number}")
        return verified(fresh, shard, closest.adversarial, closest.distance.isfinite())

    chosen = choose(evaluation, spent.images)
    return in_shards(evaluation, metric.name, metric.options, defence, chosen, search)


def estimates(metric: PGD, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images."""
    if metric.eps:
        return dict(accuracies(metric.label, arrays, ~arrays["found"], arrays["wrong"]))
    return dict(distance_estimates(metric.name, arrays, [metric.norm]))


def starts_of(metric: PGD, shard: Shard) -> Tensor:
    """The starts of each image, whatever shard it is in and whichever model is attacked: (N, R, C, H, W)."""
    shape = tuple(shard.x.shape[1:])
    drawn = [
        starts(metric.spent.restarts, shape, metric.norm, seeds.generator(0, f"robustness/start {index}"))
        for index in shard.index.tolist()
    ]
    return torch.stack(drawn).to(shard.x.device)
