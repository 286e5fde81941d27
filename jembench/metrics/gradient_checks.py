"""Whether an attack by gradients can be believed: what must hold unless a model hides its gradients.

The checks are those of Athalye et al. (2018), arXiv:1802.00420, section 3.1, and Carlini et al. (2019),
arXiv:1902.06705.

Legend: N images, S settings of an attack, R resamples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.attacks.eps import Norm, largest_distance
from jembench.attacks.pgd import PGD
from jembench.attacks.target import Target
from jembench.attacks.threat import distance, steepest, verify
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics import robustness
from jembench.metrics.attacked import Attacked, Shard, choose, in_shards, measured
from jembench.metrics.attacks import GradientChecks
from jembench.metrics.estimates import Arrays, Estimate, share
from jembench.stats import Statistic, wilson
from jembench.stats.paired import holm, mcnemar

UNBROKEN, FLAT = 0.01, 0.01
"""The largest unsuspicious shares of images that no change breaks, and of images without a gradient."""

LEVEL = 0.05
"""The probability of a false alarm among all the pairs of settings whose accuracies are compared."""

NEARER, OUTDONE = 0.95, 0.05
"""The black box outdoes PGD where it comes nearer than ``NEARER`` times as far; for ``OUTDONE`` of images it may."""

BY_STEPS, BY_EPS = (0, 1, 2, 3), (4, 2, 5)
"""Which of the settings of :meth:`GradientChecks.settings` differ in steps alone, and in eps alone; ascending."""


class Rise(NamedTuple):
    """In accuracy from one setting to a stronger one."""

    weaker: int
    stronger: int
    points: float  # of accuracy, in %
    p: float  # McNemar's, after Holm's correction for the number of pairs


def gradient_checks(metric: GradientChecks, evaluation: Evaluation) -> Measurement:
    """Check the attacks on a model; ``details["suspicious"]`` has a sentence for each check that fails."""
    found = attack(metric, evaluation)
    suspicious = {"suspicious": suspicions(metric, found.arrays)}
    return measured(metric, evaluation, found, suspicious | _accuracies(metric, found.arrays))


def attack(metric: GradientChecks, evaluation: Evaluation) -> Attacked:
    """What each check finds of each image, now or remembered."""
    norm = metric.norm
    searched = robustness.descend(metric.search(norm), evaluation)
    white = searched if norm == "l2" else robustness.descend(metric.search("l2"), evaluation)
    black = robustness.decide(metric.black_box, evaluation)
    largest = largest_distance(norm, evaluation.data.spec.dimensions)
    eps = _median(searched.arrays, norm, largest)

    def check(shard: Shard) -> Mapping[str, Tensor]:
        target, fresh = metric.defence.targets(evaluation, f"{metric.name} {norm} {shard.number}")
        begin = robustness.starts_of(metric.search(norm), shard)
        standing = [
            _standing(PGD(norm=norm, steps=setting.steps), target, fresh, shard, setting.eps, begin)
            for setting in metric.settings(eps, largest)
        ]
        pgd = PGD(norm=norm, steps=metric.spent.steps)
        return {
            "standing": torch.stack(standing, dim=1),
            "unbroken": _standing(pgd, target, fresh, shard, largest, begin[:, :1]),
            "flat": flat(target, shard, norm),
        }

    ready = choose(evaluation, min(searched.images, white.images, black.images))
    found = in_shards(metric, evaluation, ready, check, eps=eps)
    nearest = {"white-box": white, "black-box": black}
    arrays = {name: attacked.arrays["distance-l2"][: found.images] for name, attacked in nearest.items()}
    arrays |= {**found.arrays, "eps": np.array([eps])}
    return Attacked(arrays, searched.wanted)


def gradient_checks_estimates(metric: GradientChecks, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images."""
    n = len(arrays["standing"])
    found = {label: share(which, "lower") for label, which in _failing(arrays).items()}
    for label, columns in (("steps", BY_STEPS), ("larger-eps", BY_EPS)):
        rise = Resampling(_largest_rise(arrays["standing"][:, columns]), (n,), (0.0, 100.0))
        found[label] = Estimate(rise, "%", "lower")
    return found


def suspicions(metric: GradientChecks, arrays: Arrays) -> list[str]:
    """What speaks against believing the attack; nothing if all checks pass."""
    n = len(arrays["standing"])
    settings = metric.settings(float(arrays["eps"][0]), largest_distance(metric.norm, arrays["image"][0].size))
    hits = {label: int(which.sum()) for label, which in _failing(arrays).items()}
    found = []
    if wilson(hits["unlimited"], n).low > UNBROKEN:
        found.append(f"{hits['unlimited']} of {n} images withstand PGD at any distance, where there are all classes.")
    for columns, what in ((BY_STEPS, "{0.steps} to {1.steps} steps"), (BY_EPS, "eps {0.eps:.3g} to {1.eps:.3g}")):
        rise = max(rises(arrays["standing"], columns), key=lambda rise: (rise.p < LEVEL, rise.points))
        if rise.p < LEVEL and rise.points > 0:
            change = what.format(settings[rise.weaker], settings[rise.stronger])
            found.append(f"Accuracy rises by {rise.points:.1f} points from {change} (p = {rise.p:.2g}).")
    if wilson(hits["white-box"], n).low > OUTDONE:
        found.append(
            f"To {hits['white-box']} of {n} images the boundary attack, which sees no gradient, comes more than "
            f"{100 * (1 - NEARER):.0f} % nearer than PGD."
        )
    if hits["zero-gradients"] / n > FLAT:
        found.append(f"The gradient at {hits['zero-gradients']} of {n} images is 0 or not finite.")
    return found


def _accuracies(metric: GradientChecks, arrays: Arrays) -> dict[str, Any]:
    settings = metric.settings(float(arrays["eps"][0]), largest_distance(metric.norm, arrays["image"][0].size))
    accuracy = 100 * arrays["standing"].sum(axis=0) / len(arrays["standing"])
    return {
        "accuracy-by-steps": {str(settings[column].steps): float(accuracy[column]) for column in BY_STEPS},
        "accuracy-by-eps": {f"{settings[column].eps:.6g}": float(accuracy[column]) for column in BY_EPS},
    }


def rises(standing: NDArray[np.bool_], columns: tuple[int, ...]) -> list[Rise]:
    """From each setting to each that is stronger.

    Args:
        standing: whether each image withstands the attack, (N, S).
        columns: the settings that are compared, from the weakest.
    """
    pairs = list(itertools.combinations(columns, 2))
    corrected = holm([mcnemar(standing[:, weaker], standing[:, stronger]).p for weaker, stronger in pairs])
    accuracy = 100 * standing.mean(axis=0)
    return [
        Rise(weaker, stronger, float(accuracy[stronger] - accuracy[weaker]), p)
        for (weaker, stronger), p in zip(pairs, corrected, strict=True)
    ]


def _largest_rise(standing: NDArray[np.bool_]) -> Statistic:
    """From any setting to any later one, in points; 0 if there is none."""
    weaker, stronger = np.triu_indices(standing.shape[1], 1)

    def largest(indices: NDArray[np.int64]) -> NDArray[np.float64]:
        accuracy = 100 * standing[indices].mean(axis=1)
        rise: NDArray[np.float64] = (accuracy[:, stronger] - accuracy[:, weaker]).max(axis=1, initial=0)
        return rise

    return largest


def _failing(arrays: Arrays) -> dict[str, NDArray[np.bool_]]:
    """By label the images that a check should find none of."""
    return {
        "unlimited": arrays["unbroken"],
        "white-box": arrays["black-box"] < NEARER * arrays["white-box"],
        "zero-gradients": arrays["flat"],
    }


def _median(arrays: Arrays, norm: Norm, largest: float) -> float:
    """The median distance of what an attack found and had to look for; the largest, if it found nothing."""
    far = arrays[f"distance-{norm}"][arrays["found"]]
    return float(np.median(far[far > 0])) if (far > 0).any() else largest


def _standing(
    pgd: PGD, target: Target, fresh: Target, shard: Shard, eps: float, starts: Float[Tensor, "N R C H W"]
) -> Bool[Tensor, " N"]:
    """Which images PGD does not break; what it claims is looked at again."""
    closest = pgd.robust(target, shard.x, shard.y, eps, starts)
    return ~verify(fresh, shard.x, shard.y, closest.adversarial, closest.distance.isfinite()).found


def flat(target: Target, shard: Shard, norm: Norm) -> Bool[Tensor, " N"]:
    """At which images a step along the gradient leads nowhere: it is 0, so small that float32 loses it, or infinite."""
    gradient = target.slope(shard.x, shard.y).gradient
    target.check()
    step = distance(torch.zeros_like(gradient), steepest(gradient, norm), norm)
    return ~gradient.flatten(1).isfinite().all(dim=1) | ((step - 1).abs() > 1e-3)
