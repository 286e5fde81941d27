"""Robustness to PGD, to attacks that see nothing but the class, and to the worst of several strong attacks.

PGD and the decision-based attacks measure how far the nearest image of another class is: Grathwohl et al. (2020),
arXiv:1912.03263, section 5.4, Figure 5. Transfer tells whether images made against a model without refinement deceive
the same model with it: Appendix G, Figure 17, where they are made against JEM-0, and shown to JEM-1 and JEM-10.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks import decision
from jembench.attacks import ensemble as members
from jembench.attacks import pgd as descent
from jembench.attacks.decision import Start, of_runner_up
from jembench.attacks.eps import Norm, parse_eps
from jembench.attacks.target import Target
from jembench.attacks.threat import VERIFICATIONS, starts
from jembench.data.pixels import to_float
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.attacked import (
    CURVE,
    Attacked,
    Found,
    Shard,
    accuracies,
    attacked,
    choose,
    distance_estimates,
    found_details,
    in_shards,
    measured,
    verified,
    withstands,
)
from jembench.metrics.attacks import PGD, Boundary, DecisionAttack, Ensemble, Transfer
from jembench.metrics.estimates import Arrays, Estimate, share
from jembench.sampling.chain import require_chains
from jembench.stats import Statistic

NORMS: tuple[Norm, ...] = ("l2", "linf")


# --- PGD --------------------------------------------------------------------------------------------------------------


def pgd(metric: PGD, evaluation: Evaluation) -> Measurement:
    """Attack the model, and measure how far it had to go."""
    found = descend(metric, evaluation)
    return measured(metric, evaluation, found, found_details(found.arrays))


def descend(metric: PGD, evaluation: Evaluation) -> Attacked:
    """The adversarial images, made now or remembered."""

    def search(shard: Shard, target: Target) -> Found:
        algorithm = descent.PGD(norm=metric.norm, steps=metric.spent.steps, tolerance=metric.spent.tolerance)
        begin = starts_of(metric, shard)
        if metric.eps:
            closest = algorithm.robust(target, shard.x, shard.y, parse_eps(metric.eps), begin)
        else:
            sizes = [parse_eps(eps) for eps in CURVE[metric.norm]]
            closest = algorithm.minimal(target, shard.x, shard.y, begin, sizes)
        return Found(closest.adversarial, closest.distance.isfinite())

    return attacked(metric, evaluation, search)


def pgd_estimates(metric: PGD, arrays: Arrays) -> dict[str, Estimate]:
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


# --- decision-based attacks -------------------------------------------------------------------------------------------


def decision_attack(metric: DecisionAttack, evaluation: Evaluation) -> Measurement:
    """Attack the model, and measure how far it had to go."""
    found = decide(metric, evaluation)
    without = {"without-start": int((~found.arrays["started"]).sum())}
    return measured(metric, evaluation, found, {**found_details(found.arrays), **without})


def decide(metric: DecisionAttack, evaluation: Evaluation) -> Attacked:
    """The adversarial images, made now or remembered."""

    def search(shard: Shard, target: Target) -> Found:
        closest = decision.attack(
            "boundary" if isinstance(metric, Boundary) else "pointwise",
            target,
            shard.x,
            shard.y,
            begin(evaluation, target, shard),
            queries=metric.spent.queries,
            # the same in all shards, so that the boundary attack on an image does not depend on which it is in
            seed=seeds.derive(0, f"robustness/{metric.name}"),
        )
        started = closest.distance.isfinite()
        return Found(closest.adversarial, started, {"started": started})

    return attacked(metric, evaluation, search)


def decision_attack_estimates(metric: DecisionAttack, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images."""
    return dict(distance_estimates(metric.name, arrays, NORMS))


def begin(evaluation: Evaluation, target: Target, shard: Shard) -> Start:
    """Where an attack on each image begins, among all test images in one seeded order."""
    images, labels = evaluation.data.part("test")
    assert labels is not None  # else no images could have been chosen
    order = torch.randperm(len(images), generator=seeds.generator(0, "robustness/starts"))
    pool = to_float(images[order].to(evaluation.device), (0.0, 1.0))
    return of_runner_up(target, shard.x, shard.y, pool, labels[order].to(evaluation.device))


# --- transfer to the refined model ------------------------------------------------------------------------------------


def transfer(metric: Transfer, evaluation: Evaluation) -> Measurement:
    """Show the refined model what was made against the unrefined one."""
    found = _shown(metric, evaluation)
    shown, deceived = found.arrays["found-source"], found.arrays["found"]
    details = {
        "misclassified": int((deceived & ~shown).sum()),
        "shown": int(shown.sum()),
        "refined-back": int((shown & ~deceived).sum()),
    }
    return measured(metric, evaluation, found, details, searched=False)


def _shown(metric: Transfer, evaluation: Evaluation) -> Attacked:
    """The answers of the refined model, given now or at an earlier time.

    Raises:
        NotApplicable: if the model was trained without chains.
    """
    require_chains(evaluation.sampler)  # before the images are made
    defence = metric.defence
    source = descend(metric.source, evaluation)
    done = choose(evaluation, source.images)
    row = {index: place for place, index in enumerate(done.index.tolist())}

    def show(shard: Shard) -> Mapping[str, Tensor]:
        rows = [row[index] for index in shard.index.tolist()]
        made, distance = (
            torch.from_numpy(source.arrays[key][rows]).to(shard.x.device)
            for key in ("adversarial", f"distance-{metric.norm}")
        )
        claimed = torch.from_numpy(source.arrays["found"][rows]).to(shard.x.device)
        target, fresh = (
            defence.target(evaluation, f"{look} {metric.name} {metric.norm} {shard.number}")
            for look in ("look", "verify")
        )
        wrong = target.wrong_share(shard.x, shard.y, VERIFICATIONS) > 0.5
        shown = claimed & (distance > 0) & ~wrong
        images = torch.where(shown[:, None, None, None], made, shard.x)
        return {**verified(fresh, shard, images, shown | wrong), "found-source": shown}

    found = in_shards(metric, evaluation, done, show)
    as_it_is = {  # what the model withstands without refinement, to be shown beside
        f"{key}-as-it-is": source.arrays[key][: found.images] for key in ("found", f"distance-{metric.norm}")
    }
    return Attacked({**found.arrays, **as_it_is}, source.wanted)


def transfer_estimates(metric: Transfer, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images; of two models' images the same may be shown or not."""
    label, shown, found = f"{metric.name}-{metric.norm}", arrays["found-source"], arrays["found"]
    deceived: dict[str, Estimate] = {}
    if shown.any():
        among = Resampling(_share_among(found, shown), (len(shown),), (0.0, 100.0), int(shown.sum()))
        deceived[label] = share(found[shown], "lower")._replace(resampling=among)
    return deceived | {
        f"{label}@{eps}": share(withstands(arrays, metric.norm, parse_eps(eps)), "higher") for eps in CURVE[metric.norm]
    }


def _share_among(which: NDArray[np.bool_], among: NDArray[np.bool_]) -> Statistic:
    """The share in % of some images among others, as a statistic of all; 0 where none of the others was drawn."""
    return lambda indices: 100 * (which & among)[indices].sum(axis=1) / np.maximum(among[indices].sum(axis=1), 1)


# --- several attacks --------------------------------------------------------------------------------------------------


def ensemble(metric: Ensemble, evaluation: Evaluation) -> Measurement:
    """Attack the model, and count the images that withstand all attacks."""
    spent = metric.spent

    def search(shard: Shard, target: Target) -> Found:
        broken = members.attack(
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
        return Found(broken.adversarial, broken.by > -2, {"by": broken.by})

    found = attacked(metric, evaluation, search)
    by = found.arrays["by"][found.arrays["found"]]
    first = {f"broken-by-{member}": int((by == place).sum()) for place, member in enumerate(members.MEMBERS)}
    return measured(metric, evaluation, found, {**found_details(found.arrays), **first}, searched=False)


def ensemble_estimates(metric: Ensemble, arrays: Arrays) -> dict[str, Estimate]:
    """The share of images that withstand all attacks."""
    return {metric.label: share(~arrays["found"], "higher")}
