"""Robust accuracy as the worst case of several strong attacks, those of :mod:`jembench.attacks.ensemble`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from jembench import seeds
from jembench.attacks import ensemble
from jembench.attacks.eps import parse_eps
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.attacked import Attacked, Shard, choose, found_details, in_shards, measured, verified
from jembench.metrics.attacks import Ensemble
from jembench.metrics.decision_robustness import begin
from jembench.metrics.estimates import Arrays, Estimate, share


def compute(metric: Ensemble, evaluation: Evaluation) -> Measurement:
    """Attack the model, and count the images that withstand all attacks."""
    found = _attack(metric, evaluation)
    by = found.arrays["by"][found.arrays["found"]]
    first = {f"broken-by-{member}": int((by == place).sum()) for place, member in enumerate(ensemble.MEMBERS)}
    return measured(metric, evaluation, found, {**found_details(found.arrays), **first}, searched=False)


def _attack(metric: Ensemble, evaluation: Evaluation) -> Attacked:
    spent, defence = metric.spent, metric.defence

    def search(shard: Shard) -> Mapping[str, Tensor]:
        target = defence.target(evaluation, f"{metric.label} {shard.number}")
        broken = ensemble.attack(
            target,
            shard.x,
            shard.y,
            begin(evaluation, target, shard),
            norm=metric.norm,
            eps=parse_eps(metric.eps),
            steps=spent.steps,
            restarts=spent.restarts,
            queries=spent.queries,
            seed=seeds.derive(0, f"robustness/{metric.name} {shard.number}") % 2**31,
        )
        fresh = defence.target(evaluation, f"verify {metric.label} {shard.number}")
        return {**verified(fresh, shard, broken.adversarial, broken.by > -2), "by": broken.by}

    return in_shards(evaluation, metric.name, metric.options, defence, choose(evaluation, spent.images), search)


def estimates(metric: Ensemble, arrays: Arrays) -> dict[str, Estimate]:
    """The share of images that withstand all attacks."""
    return {metric.label: share(~arrays["found"], "higher")}
