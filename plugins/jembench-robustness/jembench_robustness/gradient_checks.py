"""Checks of attacks by gradients, which fail for models with masked gradients.

The checks are those of Athalye et al. (2018), arXiv:1802.00420, section 3.1, and Carlini et al.
(2019), arXiv:1902.06705.

Legend: N images, S settings of an attack, R resamples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jembench.attacks import eps
from jembench.interfaces import Resampling
from jembench.metrics import attacks, shards
from jembench.metrics.decisions import Boundary
from jembench.metrics.pgd import PGD
from jembench.plugin import Estimate, SpecError, share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation

CHECKED = 100
"""The number of images of the paper's budget on which gradients are checked."""

UNBROKEN, FLAT = 0.01, 0.01
"""The shares of images that no change breaks, and of images without a gradient, above which a check
fails.
"""

LEVEL = 0.05
"""The probability of a false alarm among all pairs of settings whose accuracies are compared."""

NEARER, OUTDONE = 0.95, 0.05
"""The boundary attack outdoes PGD at less than ``NEARER`` times PGD's distance; up to a share
``OUTDONE`` of such images is no failure.
"""

BY_STEPS, BY_EPS = (0, 1, 2, 3), (4, 2, 5)
"""The indices in :meth:`GradientChecks.settings` of settings that differ only in steps, and only in
eps, ascending.
"""


class Setting(NamedTuple):
    """PGD's eps and number of steps."""

    eps: float
    steps: int


class Rise(NamedTuple):
    """A rise in accuracy from one setting to a stronger one."""

    weaker: int
    stronger: int
    points: float  # of accuracy, in %
    p: float  # of McNemar's test, after Holm's correction for the number of pairs


@dataclass(frozen=True, kw_only=True)
class GradientChecks(attacks.GradientAttack):
    """Checks that gradients do not mislead attacks: failures in %, best 0.

    A failed check is reported as suspicious, with the reason. The first 100 of the paper's 300
    images are used. Each value is a share of the images in %, or a rise in points:

    - ``unlimited``: images that PGD does not break within the largest distance, where there are
      images of all classes. PGD starts from the image only, since other points of so large a ball
      are noise. Suspicious if the lower end of Wilson's 95 % interval is above 1 %.
    - ``steps`` and ``larger-eps``: the largest rise in accuracy with more steps, or a larger eps,
      from the same starts; eps is about the median distance of PGD's images. Suspicious if a rise
      is significant.
    - ``white-box``: images to which the boundary attack, without gradients, comes more than 5 %
      nearer in L2 than PGD. Suspicious if the lower end of the interval is above 5 %, since neither
      search is exact.
    - ``zero-gradients``: images at which the gradient of the loss is 0, or not finite. Suspicious
      above 1 %.
    """

    grad: attacks.Gradient = "through"
    queries: attacks.OptionalCount = None
    name: ClassVar[str] = "gradient-checks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spent.steps < 4:
            raise SpecError(f"steps of {self.name} is {self.spent.steps}; it must be at least 4.")

    @property
    def spent(self) -> attacks.Budget:
        """The budget, by default with at most ``CHECKED`` images."""
        spent = super().spent
        if self.images:
            return spent
        return spent._replace(images=min(CHECKED, spent.images))

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The parts of the protocol."""
        queries = self.black_box.spent.queries
        own = {"tolerance": self.spent.tolerance, "queries": queries}
        return {**super().protocol_options, **own}

    def pgd(self, norm: eps.Norm, setting: Setting | None = None, **changed: Any) -> PGD:
        """Return the checked attack: a search, or PGD in one setting."""
        if setting:
            of_setting = {"eps": repr(setting.eps), "steps": setting.steps}
        else:
            of_setting = {"steps": self.steps}
        options = {"norm": norm, "restarts": self.restarts, "grad": self.grad, **of_setting}
        return PGD(**{**self._shared, **options, **changed})

    @property
    def black_box(self) -> Boundary:
        """The attack without gradients."""
        return Boundary(**self._shared, queries=self.queries)

    @property
    def _shared(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "images": self.spent.images,
            "resamples": self.resamples,
            "refine": self.refine,
            "eot": self.eot,
            "data_noise": self.data_noise,
            "smooth": self.smooth,
        }

    def settings(self, size: float, largest: float) -> list[Setting]:
        """Return the settings of PGD up to the largest distance."""
        steps = self.spent.steps
        by_steps = [steps // 4, steps // 2, steps, 2 * steps]
        settings = [Setting(size, number) for number in by_steps]
        for other_size in (size / 2, min(2 * size, largest)):
            settings.append(Setting(other_size, steps))
        return settings

    def attack(self, evaluation: Evaluation) -> shards.Attacked:
        """Run the attacks of each check, or read stored ones."""
        import numpy as np

        norm = self.norm
        # searches, and attacks whose steps and eps vary about the median distance
        largest = eps.largest_distance(self.norm, evaluation.data.spec.dimensions)
        searched = self.pgd(norm).attack(evaluation)
        white = searched if norm == "l2" else self.pgd("l2").attack(evaluation)
        black = self.black_box.attack(evaluation)
        size = _median(searched.arrays, norm, largest)
        fixed = []
        for setting in self.settings(size, largest):
            fixed.append(self.pgd(norm, setting).attack(evaluation))
        farthest = Setting(largest, self.spent.steps)
        unlimited = self.pgd(norm, farthest, restarts=1).attack(evaluation)

        def work(shard: shards.Shard) -> Mapping[str, Tensor]:
            target = self.attacked_model(evaluation, f"{self.name} {norm} {shard.number}")
            return {"flat": flat(target, shard, norm)}

        # a run may have ended early: keep only images that all attacks reached
        results = (searched, white, black, *fixed, unlimited)
        done = min(attacked.images for attacked in results)
        chosen = shards.choose(evaluation, done)
        attacked = shards.in_shards(self, evaluation, chosen, work)
        rows = slice(attacked.images)
        standing = [~setting.arrays["found"][rows] for setting in fixed]
        arrays = {
            **attacked.arrays,
            "standing": np.stack(standing, axis=1),
            "unbroken": ~unlimited.arrays["found"][rows],
            "white-box": white.arrays["distance-l2"][rows],
            "black-box": black.arrays["distance-l2"][rows],
            "eps": np.array([size]),
        }
        return shards.Attacked(arrays, searched.wanted)

    def details(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return a sentence per failed check, and all accuracies."""
        settings = self._settings_of(arrays)
        standing = arrays["standing"]
        accuracy = (100 * standing.sum(axis=0) / len(standing)).tolist()
        by_steps = {str(settings[column].steps): accuracy[column] for column in BY_STEPS}
        by_eps = {f"{settings[column].eps:.6g}": accuracy[column] for column in BY_EPS}
        return {
            "suspicious": self.suspicions(arrays),
            "accuracy-by-steps": by_steps,
            "accuracy-by-eps": by_eps,
        }

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return the values over images."""
        n = len(arrays["standing"])
        failing = _failing(arrays)
        estimates = {label: share(fails, "lower") for label, fails in failing.items()}
        for label, columns in (("steps", BY_STEPS), ("larger-eps", BY_EPS)):
            largest = _largest_rise(arrays["standing"][:, columns])
            rise = Resampling(largest, (n,), (0.0, 100.0))
            estimates[label] = Estimate(rise, "%", "lower")
        return estimates

    def suspicions(self, arrays: Mapping[str, Any]) -> list[str]:
        """Return a sentence for each failed check."""
        n = len(arrays["standing"])
        settings = self._settings_of(arrays)
        failing = _failing(arrays)
        hits = {label: int(fails.sum()) for label, fails in failing.items()}
        sentences = []
        if _low(hits["unlimited"], n) > UNBROKEN:
            sentences.append(
                f"{hits['unlimited']} of {n} images withstand PGD at any distance, even where "
                "there are all classes."
            )
        for columns, text in (
            (BY_STEPS, "{0.steps} to {1.steps} steps"),
            (BY_EPS, "eps {0.eps:.3g} to {1.eps:.3g}"),
        ):
            between = rises(arrays["standing"], columns)
            rise = max(between, key=lambda rise: (rise.p < LEVEL, rise.points))
            if rise.p < LEVEL and rise.points > 0:
                change = text.format(settings[rise.weaker], settings[rise.stronger])
                sentences.append(
                    f"Accuracy rises by {rise.points:.1f} points from {change} (p = {rise.p:.2g})."
                )
        if _low(hits["white-box"], n) > OUTDONE:
            sentences.append(
                f"To {hits['white-box']} of {n} images the boundary attack, which uses no "
                f"gradient, comes more than {100 * (1 - NEARER):.0f} % nearer than PGD."
            )
        if hits["zero-gradients"] / n > FLAT:
            sentences.append(
                f"The gradient at {hits['zero-gradients']} of {n} images is 0 or not finite."
            )
        return sentences

    def _settings_of(self, arrays: Mapping[str, Any]) -> list[Setting]:
        size = float(arrays["eps"][0])
        largest = eps.largest_distance(self.norm, arrays["image"][0].size)
        return self.settings(size, largest)


def rises(standing: NDArray[np.bool_], columns: tuple[int, ...]) -> list[Rise]:
    """Return the rises in accuracy from each setting to each stronger one.

    Args:
        standing: bool (N, S), True if the attack on an image fails.
        columns: the settings that are compared, from the weakest.
    """
    from jembench.stats.paired import holm, mcnemar

    pairs = list(itertools.combinations(columns, 2))
    tests = [mcnemar(standing[:, weaker], standing[:, stronger]) for weaker, stronger in pairs]
    accuracy = 100 * standing.mean(axis=0)
    differences = []
    for (weaker, stronger), p in zip(pairs, holm(tests), strict=True):
        points = float(accuracy[stronger] - accuracy[weaker])
        differences.append(Rise(weaker, stronger, points, p))
    return differences


def _low(hits: int, n: int) -> float:
    """Return the lower end of Wilson's 95 % interval of a share."""
    from scipy.stats import binomtest

    return float(binomtest(hits, n).proportion_ci(method="wilson").low)


def _largest_rise(standing: NDArray[np.bool_]) -> Any:
    """Return the largest rise to a later setting, in points."""
    import numpy as np

    weaker, stronger = np.triu_indices(standing.shape[1], 1)

    def largest(indices: NDArray[np.int64]) -> NDArray[np.float64]:
        accuracy = 100 * standing[indices].mean(axis=1)
        rises: NDArray[np.float64] = accuracy[:, stronger] - accuracy[:, weaker]
        return rises.max(axis=1, initial=0)

    return largest


def _failing(arrays: Mapping[str, Any]) -> dict[str, NDArray[np.bool_]]:
    """Return, by label, whether each image fails a check."""
    return {
        "unlimited": arrays["unbroken"],
        "white-box": arrays["black-box"] < NEARER * arrays["white-box"],
        "zero-gradients": arrays["flat"],
    }


def _median(arrays: Mapping[str, Any], norm: eps.Norm, largest: float) -> float:
    """Return the median distance of adversarial images that differ from the image.

    Without any such image it is ``largest``.
    """
    import numpy as np

    far = arrays[f"distance-{norm}"][arrays["found"]]
    if (far > 0).any():
        return float(np.median(far[far > 0]))
    return largest


def flat(target: Target, shard: shards.Shard, norm: eps.Norm) -> Tensor:
    """Return whether each image's gradient vanishes or is infinite, bool (N,).

    The steepest direction then does not have length 1.
    """
    import torch

    from jembench.parts import threat

    gradient = target.slope(shard.x, shard.y).gradient
    target.check()
    direction = threat.steepest(gradient, norm)
    step = threat.distance(torch.zeros_like(gradient), direction, norm)
    finite = gradient.flatten(1).isfinite().all(dim=1)
    return ~finite | ((step - 1).abs() > 1e-3)
