"""Whether an attack by gradients can be believed: what must hold unless a model hides its gradients.

The checks are those of Athalye et al. (2018), arXiv:1802.00420, section 3.1, and Carlini et al. (2019),
arXiv:1902.06705.

Legend: N images, S settings of an attack, R resamples.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.attacks.pgd import PGD
from jembench.attacks.target import Target
from jembench.attacks.threat import Norm, distance, largest_distance, steepest
from jembench.attacks.verify import verify
from jembench.catalog.spec import Scalar
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling, Value
from jembench.metrics.attacked import Arrays, Attacked, Shard, check_attack, choose, in_shards, share
from jembench.metrics.decision_robustness import DecisionRobustness
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.metrics.robustness import PGDRobustness, starts_of
from jembench.stats import Statistic, mean_of, wilson
from jembench.stats.paired import holm, mcnemar

UNBROKEN, FLAT = 0.01, 0.01
"""The shares of images that may withstand any change, and that may have no gradient."""

LEVEL = 0.05
"""The chance of a false alarm among all the pairs of settings whose accuracies are compared."""

NEARER, OUTDONE = 0.95, 0.05
"""The black box outdoes PGD where it comes nearer than ``NEARER`` times as far; for ``OUTDONE`` of images it may."""

BY_STEPS, BY_EPS = (0, 1, 2, 3), (4, 2, 5)
"""Which of the settings of :meth:`GradientChecks.settings` differ in steps alone, and in eps alone; ascending."""


class Setting(NamedTuple):
    """Of PGD."""

    eps: float
    steps: int


class Rise(NamedTuple):
    """In accuracy from one setting to a stronger one."""

    weaker: int
    stronger: int
    points: float  # of accuracy, in %
    p: float  # McNemar's, after Holm's correction for the number of pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientChecks:
    """Five checks of an attack by gradients, each a share of the images in %, or a rise in points, that should be 0.

    - ``unlimited``: images that PGD does not break though it may go any distance, where there are images of all
      classes. It starts at the image alone: anywhere else in so large a ball is noise, of another class by itself.
      Suspicious if that is surely (by Wilson's 95 % interval) above 1 %.
    - ``steps`` and ``larger-eps``: the largest rise in accuracy when PGD makes more steps, or may go farther, from the
      same starts; eps is about the median distance at which it succeeds. Suspicious if a rise is beyond chance.
    - ``white-box``: images to which the boundary attack, which sees no gradient, comes more than 5 % nearer in L2 than
      PGD. Suspicious if that is surely above 5 %, as neither search is perfect.
    - ``zero-gradients``: images at which the gradient of the loss is 0, or not finite. Suspicious above 1 %.

    ``details["suspicious"]`` has a sentence for each check that fails.
    """

    norm: Norm = "linf"
    defence: Defence = field(default_factory=Defence)
    images: int = 100
    restarts: int = 20
    steps: int = 40
    tolerance: float = 0.01
    queries: int = 25_000
    resamples: int = 1000
    name: ClassVar[str] = "gradient-checks"

    def __post_init__(self) -> None:
        require_at_least(1, self.name, images=self.images, restarts=self.restarts, queries=self.queries)
        require_at_least(4, self.name, steps=self.steps)
        require_at_least(0, self.name, resamples=self.resamples)

    @property
    def requires(self) -> frozenset[Capability]:
        """What the defence needs."""
        return self.defence.requires

    @property
    def _options(self) -> dict[str, Scalar]:
        return {
            "norm": self.norm,
            "restarts": self.restarts,
            "steps": self.steps,
            "tolerance": self.tolerance,
            "queries": self.queries,
        }

    def settings(self, eps: float, largest: float) -> list[Setting]:
        """Those of PGD whose accuracies are compared, about an eps; none goes farther than the largest distance."""
        by_steps = [self.steps // 4, self.steps // 2, self.steps, 2 * self.steps]
        by_eps = [eps / 2, min(2 * eps, largest)]
        return [Setting(eps, steps) for steps in by_steps] + [Setting(eps, self.steps) for eps in by_eps]

    def passes(self, images: int) -> int:
        """About: images that withstand an attack meet all its restarts, the others few."""
        count = min(images, self.images)
        searches = sum(self._search(norm).passes(images) for norm in {self.norm, "l2"})
        steps = self.restarts * sum(setting.steps + 1 for setting in self.settings(1, 1)) // 2 + self.steps + 2
        return searches + count * steps * self.defence.passes + self._asked().passes(images)

    def check(self, planned: Planned) -> None:
        """Whether there will be classes and chains."""
        check_attack(planned, self.defence)

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = self.attack(evaluation)
        return Measurement(
            protocol=protocol_id(
                self.name,
                evaluation,
                images=found.images,
                **self._options,
                **self.defence.identity,
                **self.defence.rule(),
            ),
            values=self._values(found.arrays, bootstrap_rng(evaluation, self.name)),
            arrays=found.arrays,
            details={"suspicious": self.suspicions(found.arrays), **self._accuracies(found.arrays), **found.details},
        )

    # --- looking at images --------------------------------------------------------------------------------------------

    def attack(self, evaluation: Evaluation) -> Attacked:
        """What each check finds of each image, now or remembered."""
        chosen = choose(evaluation, self.images)
        searched = self._search(self.norm).attack(evaluation)
        white = searched if self.norm == "l2" else self._search("l2").attack(evaluation)
        black = self._asked().attack(evaluation)
        largest = largest_distance(self.norm, evaluation.data.dimensions)
        eps = _median(searched.arrays, self.norm, largest)

        def attack(shard: Shard) -> Mapping[str, Tensor]:
            purpose = f"{self.name} {self.norm} {shard.number}"
            target, fresh = (self.defence.target(evaluation, look + purpose) for look in ("", "verify "))
            begin = starts_of(self._search(self.norm), shard)
            standing = [
                _standing(PGD(norm=self.norm, steps=setting.steps), target, fresh, shard, setting.eps, begin)
                for setting in self.settings(eps, largest)
            ]
            pgd = PGD(norm=self.norm, steps=self.steps)
            return {
                "standing": torch.stack(standing, dim=1),
                "unbroken": _standing(pgd, target, fresh, shard, largest, begin[:, :1]),
                "flat": flat(target, shard, self.norm),
            }

        ready = choose(evaluation, min(searched.images, white.images, black.images))
        found = in_shards(evaluation, self.name, {**self._options, "eps": eps}, self.defence, ready, attack)
        nearest = {"white-box": white, "black-box": black}
        arrays = {name: attacked.arrays["distance-l2"][: found.images] for name, attacked in nearest.items()}
        arrays |= {**found.arrays, "eps": np.array([eps])}
        partial = {"partial": f"{found.images} of {len(chosen.images)} images"}
        return Attacked(arrays, partial if found.images < len(chosen.images) else {})

    def _search(self, norm: Norm) -> PGDRobustness:
        return PGDRobustness(
            norm=norm,
            defence=self.defence,
            images=self.images,
            restarts=self.restarts,
            steps=self.steps,
            tolerance=self.tolerance,
        )

    def _asked(self) -> DecisionRobustness:
        defence = dataclasses.replace(self.defence, grad="none")
        return DecisionRobustness(name="boundary", defence=defence, images=self.images, queries=self.queries)

    # --- numbers ------------------------------------------------------------------------------------------------------

    def _values(self, arrays: Arrays, rng: np.random.Generator) -> dict[str, Value]:
        resamplings = self.resamplings(arrays)
        shares = {label: share(which, "lower") for label, which in _failing(arrays).items()}
        rises = {
            label: bootstrapped(resamplings[label], rng, self.resamples, "%", "lower")
            for label in ("steps", "larger-eps")
        }
        return shares | rises

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of images."""
        n = len(arrays["standing"])
        found = {
            label: Resampling(mean_of(100.0 * which), (n,), (0.0, 100.0)) for label, which in _failing(arrays).items()
        }
        for label, columns in (("steps", BY_STEPS), ("larger-eps", BY_EPS)):
            found[label] = Resampling(_largest_rise(arrays["standing"][:, columns]), (n,), (0.0, 100.0))
        return found

    def suspicions(self, arrays: Arrays) -> list[str]:
        """What speaks against believing the attack; nothing if all checks pass."""
        n = len(arrays["standing"])
        settings = self.settings(float(arrays["eps"][0]), largest_distance(self.norm, arrays["image"][0].size))
        hits = {label: int(which.sum()) for label, which in _failing(arrays).items()}
        found = []
        if wilson(hits["unlimited"], n).low > UNBROKEN:
            found.append(
                f"{hits['unlimited']} of {n} images withstand PGD at any distance, where there are all classes."
            )
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

    def _accuracies(self, arrays: Arrays) -> dict[str, Any]:
        settings = self.settings(float(arrays["eps"][0]), largest_distance(self.norm, arrays["image"][0].size))
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
    step = distance(torch.zeros_like(gradient), steepest(gradient, norm), norm)
    return ~gradient.flatten(1).isfinite().all(dim=1) | ((step - 1).abs() > 1e-3)
