"""Attacks as metrics: their budgets, the model under attack, shards, verification and curves.

An attack is a class with a method ``find``. Heavy modules are imported inside methods and
functions.

Legend: N attacked images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from jembench.attacks.eps import Norm, largest_distance, parse_eps, rounding
from jembench.catalog.validation import Range
from jembench.errors import SpecError
from jembench.interfaces import Need
from jembench.metrics.base import (
    MOST,
    PERCENT,
    Metric,
    NotNegative,
    OptionalCount,
    mean,
    median,
    share,
)
from jembench.metrics.shards import Attacked, Shard, choose, in_shards

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Measurement
    from jembench.metrics.base import Array, Arrays, Estimate, Needs, Parts

SHARD, SHARD_REFINED = 50, 25
"""Images per shard on a CPU, without and with refinement. A kill loses at most the work on one
shard.
"""

GPU_SHARD, GPU_SHARD_REFINED = 300, 75
"""The same on a GPU: the paper's 300 images are one shard, or four. Most attacks end early, and
smaller shards would leave the GPU idle.
"""

LEVELS = 255
"""The levels of 8-bit images per pixel range, the unit of distances in both norms, as in the
paper's figures.
"""

CURVE: Mapping[Norm, tuple[str, ...]] = {
    "linf": ("4/255", "8/255", "16/255"),
    "l2": ("64/255", "128/255", "255/255"),
}
"""The points of the curve of accuracy over eps that tables show; figures show the whole curve."""


# --- a budget -------------------------------------------------------------------------------------

BudgetName = Literal["paper", "quick"]
Gradient = Literal["through", "bpda"]


class Budget(NamedTuple):
    """The limits of an attack; each number can be set separately."""

    images: int
    restarts: int
    steps: int
    tolerance: float  # relative error of the smallest eps
    eot: int  # chains averaged into the prediction of a refined model
    queries: int  # per image, of a decision-based attack

    def replaced(self, **options: int | None) -> Budget:
        """Return the budget with other numbers; None: unchanged."""
        numbers = {name: number for name, number in options.items() if number is not None}
        return self._replace(**numbers)


# A budget's numbers never change, since its name is part of the identity of results; other numbers
# need a new name.
BUDGETS: Mapping[BudgetName, Budget] = {
    # Grathwohl et al. (2020), arXiv:1912.03263, Appendix G, which does not give the tolerance. Its
    # boundary attack has foolbox's default settings: 25,000 steps.
    "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000),
    # For a first result on a CPU in minutes: distances are a few percent larger, and intervals
    # wide.
    "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000),
}

# --- the base -------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The result of an attack on a shard."""

    adversarial: Tensor  # (N, C, H, W)
    claimed: Tensor  # bool (N,): the attack reports a success
    others: Mapping[str, Tensor] = {}  # additional arrays


@dataclass(frozen=True, kw_only=True)
class Attack(Metric):
    """An attack on a model that may refine images by its chain.

    ``budget`` names the limits of an attack: ``paper`` (300 images, 20 restarts, 40 steps, 5
    chains) or ``quick``, for a first result on a CPU. Other options replace single numbers of the
    budget. Before an image is classified, the model's own chain takes ``refine`` steps from it
    (JEM-k); predictions are averaged over ``eot`` chains. ``data_noise`` is the noise that the
    reference code adds before each chain (standard deviation on [-1, 1]). Grathwohl et al. (2020),
    arXiv:1912.03263, section 5.4 and Appendix G. ``smooth`` is the noise of randomised smoothing
    (on [0, 1]), with ``eot`` noisy copies in place of chains. Salman et al. (2019),
    arXiv:1906.04584.

    A subclass defines :meth:`find`, :meth:`estimates` and the parts of its protocol.

    Raises:
        SpecError: if an option is out of its range, or ``smooth`` is combined with ``refine`` or
            ``data_noise``.
    """

    budget: BudgetName = "paper"
    images: OptionalCount = None
    refine: Annotated[int, Range(least=0, most=MOST)] = 0
    eot: OptionalCount = None
    data_noise: NotNegative = 0.0
    smooth: NotNegative = 0.0
    searches = True
    """True if successes against random predictions are confirmed during the attack too, not only by
    verification.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smooth and (self.refine or self.data_noise):
            raise SpecError(
                f"An attack has smooth={self.smooth:g}, refine={self.refine} and "
                f"data_noise={self.data_noise:g}; smooth cannot be combined with the others. "
                "Leave out smooth, or refine and data_noise."
            )

    @property
    def spent(self) -> Budget:
        """The budget, with the numbers of options.

        A subclass adds the numbers of its own options.
        """
        return BUDGETS[self.budget].replaced(images=self.images, eot=self.eot)

    @property
    def grad(self) -> Gradient | None:
        """The treatment of the chain by gradients; None: the attack uses no gradients."""
        return None

    @property
    def is_random(self) -> bool:
        """True if predictions are random: with refinement, data noise or smoothing."""
        return bool(self.refine or self.data_noise or self.smooth)

    @property
    def requires(self) -> Needs:
        """The needs of the metric."""
        needs: set[Need] = {"logits", "labels"}
        if self.refine:
            needs |= {"energy", "samples", "chains"}
        if self.grad:
            needs.add("gradients")
        return frozenset(needs)

    @property
    def model_options(self) -> Parts:
        """The parts of the protocol that describe the model under attack."""
        options: Parts = {"refine": self.refine}
        if self.is_random:
            options["eot"] = self.spent.eot
        if self.refine and self.grad:
            options["grad"] = self.grad
        if self.data_noise:
            options["data_noise"] = self.data_noise
        if self.smooth:
            options["smooth"] = self.smooth
        return options

    @property
    def protocol_options(self) -> Parts:
        """The parts of the protocol that describe the model under attack.

        For random predictions, ``verified`` says how many must be wrong for an image to count as
        broken. An image that is misclassified half of the time counts as robust, so the expected
        accuracy of one prediction is a value too.
        """
        from jembench.attacks.target import LOOKS
        from jembench.attacks.threat import VERIFICATIONS

        options = self.model_options
        if self.is_random:
            options["verified"] = f"{VERIFICATIONS // 2 + 1}/{VERIFICATIONS}"
            if self.searches:
                options["sure"] = f"{LOOKS}/{LOOKS}"
        return options

    @property
    def label(self) -> str:
        """The label of the value."""
        return self.name

    def shard_size(self, device: str) -> int:
        """Return the number of images per shard on a type of device.

        Only the random numbers of refinement depend on this number.
        """
        if device == "cpu":
            return SHARD_REFINED if self.refine else SHARD
        return GPU_SHARD_REFINED if self.refine else GPU_SHARD

    @property
    def parts(self) -> int:
        """The number of shards on CPUs, which different machines can attack.

        On GPUs there are fewer.
        """
        return -(-self.spent.images // self.shard_size("cpu"))

    @property
    def passes_each(self) -> int:
        """The network passes of a prediction: one, or n (k + 1) for n chains of k steps."""
        if not self.is_random:
            return 1
        return self.spent.eot * (self.refine + 1)

    @property
    def passes(self) -> int:
        """The network passes at one size of the change; 0: not known.

        A search tries several sizes.
        """
        return 0

    def attacked_model(self, evaluation: Evaluation, purpose: str) -> Target:
        """Return the target of an attack, with independent random numbers for each purpose.

        Raises:
            NotApplicable: if the metric refines images and the model was trained without chains.
        """
        from jembench import seeds
        from jembench.attacks.refinement import Refined
        from jembench.attacks.target import Target
        from jembench.data.pixels import noise_to_model
        from jembench.sampling.chain import require_chains

        data = evaluation.data.spec
        if not self.is_random:
            return Target(evaluation.model, data)

        sampler = None
        if self.refine:
            sampler = require_chains(evaluation.sampler)
        noise = noise_to_model(self.data_noise, data.bounds)
        if self.smooth:
            low, high = data.bounds
            noise = self.smooth * (high - low)

        # each purpose has random numbers of its own
        seed = evaluation.services.generator(f"refinement {purpose}").initial_seed()
        refined = Refined(
            evaluation.model,
            sampler,
            steps=self.refine,
            chains=self.spent.eot,
            grad=self.grad or "bpda",
            generator=seeds.seeded(seed, evaluation.device),
            noise=noise,
            smooth=bool(self.smooth),
        )
        return Target(refined, data)

    def find(self, evaluation: Evaluation, shard: Shard, target: Target) -> Found:
        """Attack the images of a shard."""
        raise NotImplementedError

    def attack(self, evaluation: Evaluation) -> Attacked:
        """Attack the model, and verify the images with fresh random numbers."""
        from jembench.attacks.threat import verify

        def work(shard: Shard) -> Mapping[str, Tensor]:
            purpose = f"{self.label} {shard.number}"
            target = self.attacked_model(evaluation, purpose)
            result = self.find(evaluation, shard, target)

            fresh = self.attacked_model(evaluation, f"verify {purpose}")
            verified = verify(fresh, shard.x, shard.y, result.adversarial, result.claimed)
            return {**verified, **result.others}

        chosen = choose(evaluation, self.spent.images)
        return in_shards(self, evaluation, chosen, work)

    def details(self, arrays: Arrays) -> dict[str, Any]:
        """Return information on the result that the arrays do not hold, in JSON types."""
        return {}

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Attack the model, and measure its robustness."""
        attacked = self.attack(evaluation)
        arrays = attacked.arrays
        parts = {"images": attacked.images}
        details = self.details(arrays) | attacked.details
        return self.measurement(evaluation, arrays, parts=parts, details=details)


@dataclass(frozen=True, kw_only=True)
class GradientAttack(Attack):
    """An attack that follows gradients from several starts."""

    norm: Norm = "linf"
    restarts: OptionalCount = None
    steps: OptionalCount = None

    @property
    def spent(self) -> Budget:
        """The budget, with the restarts and the steps of options."""
        return super().spent.replaced(restarts=self.restarts, steps=self.steps)

    @property
    def protocol_options(self) -> Parts:
        """The parts of the protocol."""
        spent = self.spent
        options = super().protocol_options
        options |= {"norm": self.norm, "restarts": spent.restarts, "steps": spent.steps}
        return options


# --- numbers --------------------------------------------------------------------------------------


def distance_estimates(
    name: str, arrays: Arrays, norms: Sequence[Norm]
) -> Iterator[tuple[str, Estimate]]:
    """Yield the median distance in levels and the accuracy in % at each eps, by label.

    ``CURVE`` has the sizes eps. An image without an adversarial image counts with the largest
    possible distance.
    """
    import numpy as np

    for norm in norms:
        farthest = LEVELS * largest_distance(norm, arrays["image"][0].size)
        distances = LEVELS * arrays[f"distance-{norm}"]
        yield f"{name}-{norm}", median(distances, "1/255", "higher", (0.0, farthest))

        for eps in CURVE[norm]:
            robust = is_robust(arrays, norm, parse_eps(eps))
            wrong = np.where(robust, arrays.get("wrong-as-it-is", 0.0), arrays["wrong"])
            yield from accuracies(f"{name}-{norm}@{eps}", arrays, robust, wrong)


def accuracies(
    label: str, arrays: Arrays, robust: Array, wrong: Array
) -> Iterator[tuple[str, Estimate]]:
    """Yield the share of robust images; for random predictions, the expected accuracy too.

    Args:
        label: of the share.
        arrays: of each image.
        robust: bool (N,), True if the attack on the image failed.
        wrong: (N,) the share of wrong predictions for the attacked image, 0 to 1.
    """
    yield label, share(robust, "higher")
    if "wrong-as-it-is" in arrays:
        yield f"{label}-expected", mean(100 * (1 - wrong), "%", "higher", PERCENT)


def is_robust(arrays: Arrays, norm: Norm, eps: float) -> Array:
    """Return whether each image has no adversarial image within eps, bool (N,).

    Rounding is allowed for: a change of 8 levels by the pointwise attack may measure 8.00001/255.
    """
    reach = eps + rounding(norm, arrays["image"][0].size)
    return ~arrays["found"] | (arrays[f"distance-{norm}"] > reach)
