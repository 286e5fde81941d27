"""Attacks as metrics: their budgets, the model under attack, shards, verification and curves.

An attack is a class with a method ``find``. Heavy modules are imported inside methods and
functions.

Legend: N attacked images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from jembench.attacks.eps import Norm, largest_distance, parse_eps, rounding
from jembench.catalog.spec import Scalar, stable_hash
from jembench.catalog.validation import Range
from jembench.errors import OutOfTime, PartDone, SpecError
from jembench.interfaces import Need
from jembench.metrics.base import MOST, Metric, NotNegative, OptionalCount, mean, median, share

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Measurement
    from jembench.metrics.base import Array, Arrays, Estimate

SHARD, SHARD_REFINED = 50, 25
"""Images per shard on a CPU, without and with refinement. A kill loses at most the work on one
shard.
"""

GPU_SHARD, GPU_SHARD_REFINED = 300, 75
"""The same on a GPU: the paper's 300 images in one shard, and in four. Most images end early, and
smaller shards would leave the GPU idle.
"""

LEVELS = 255
"""The unit of distances in both norms, as in the paper's figures: levels of 8-bit images per pixel
range.
"""

CURVE: Mapping[Norm, tuple[str, ...]] = {
    "linf": ("4/255", "8/255", "16/255"),
    "l2": ("64/255", "128/255", "255/255"),
}
"""The points of the curve of accuracy over eps that tables show; figures show the whole curve."""

_VERSION = 3  # of the attacks; stored shards of another version are not used
_RANGE = (0.0, 1.0)

# --- a budget -------------------------------------------------------------------------------------

BudgetName = Literal["paper", "quick"]
Gradient = Literal["through", "bpda"]


class Budget(NamedTuple):
    """The limits of an attack; each number can be set by itself."""

    images: int
    restarts: int
    steps: int
    tolerance: float  # relative error of the smallest eps
    eot: int  # chains whose mean is the prediction of a refined model
    queries: int  # per image, of a decision-based attack


# The numbers of a name never change, since the name is part of the identity of results; other
# numbers need a new name.
BUDGETS: Mapping[BudgetName, Budget] = {
    # Grathwohl et al. (2020), arXiv:1912.03263, Appendix G, which does not give the tolerance. Its
    # boundary attack has foolbox's default settings: 25,000 steps.
    "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000),
    # For a first result on a CPU in minutes: distances are a few percent larger, and intervals
    # wide.
    "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000),
}

# --- images and results ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """The images that every model is attacked with."""

    index: Tensor  # int64 (N,) in the test images
    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor  # int64 (N,)


@dataclass(frozen=True, slots=True)
class Shard:
    """Images that are attacked together, on the device."""

    number: int
    index: Tensor  # int64 (N,) in the test images; each image's random numbers are seeded by it
    x: Tensor  # float32 (N, C, H, W) in [0, 1]
    y: Tensor  # int64 (N,)


class Found(NamedTuple):
    """The result of an attack on a shard."""

    adversarial: Tensor  # (N, C, H, W)
    claimed: Tensor  # bool (N,): the attack reports a success
    others: Mapping[str, Tensor] = {}  # additional arrays


class Attacked(NamedTuple):
    """The result of an attack so far."""

    arrays: dict[str, Array]
    wanted: int  # images

    @property
    def images(self) -> int:
        """The number of images that were attacked within the time limit."""
        return len(self.arrays["index"])

    @property
    def details(self) -> dict[str, Any]:
        """``partial``, unless all images were attacked."""
        return (
            {"partial": f"{self.images} of {self.wanted} images"}
            if self.images < self.wanted
            else {}
        )

    def whole(self) -> dict[str, Array]:
        """Return the arrays of all images.

        Raises:
            OutOfTime: if the time limit passed before.
        """
        if self.details:
            raise OutOfTime(
                f"The time is up after {self.details['partial']}. The same command goes on from "
                "here."
            )
        return self.arrays


# --- the base -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attack(Metric):
    """An attack on a model, which may refine images by its own chain before it classifies them.

    ``budget`` names the limits of an attack: ``paper`` (300 images, 20 restarts, 40 steps, 5
    chains) or ``quick``, for a first result on a CPU. Other options replace single numbers of it.
    ``refine`` is the number of steps of the model's own chain from each image before it is
    classified (JEM-k), and ``eot`` the number of chains that predictions are averaged over.
    ``data_noise`` is that of the reference code before each chain (standard deviation on [-1, 1]).
    Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G. ``smooth`` is the noise
    of randomised smoothing (on [0, 1]), with ``eot`` noisy copies in place of chains. Salman et al.
    (2019), arXiv:1906.04584.

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
    searches: ClassVar[bool] = True
    """True if successes against random predictions are confirmed during the attack too, not only by
    verification.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smooth and (self.refine or self.data_noise):
            raise SpecError(
                f"An attack has smooth={self.smooth:g}, refine={self.refine} and "
                f"data_noise={self.data_noise:g}; smooth cannot be combined with the others. "
                "Leave it or them out."
            )

    @property
    def spent(self) -> Budget:
        """The budget, with the numbers that options of the same names replace."""
        options: dict[str, Any] = {name: getattr(self, name, None) for name in Budget._fields}
        return BUDGETS[self.budget]._replace(
            **{name: value for name, value in options.items() if value is not None}
        )

    @property
    def grad(self) -> Gradient | None:
        """The treatment of the chain by gradients; None: the attack takes none."""
        return None

    @property
    def is_random(self) -> bool:
        """True if predictions are random: with refinement, data noise or smoothing."""
        return bool(self.refine or self.data_noise or self.smooth)

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the metric."""
        needs: set[Need] = {"logits", "labels"}
        needs |= {"energy", "samples", "chains"} if self.refine else set()
        return frozenset(needs | ({"gradients"} if self.grad else set()))

    @property
    def model_options(self) -> dict[str, Scalar]:
        """The parts of the protocol that describe the model under attack."""
        chains: dict[str, Scalar] = {"eot": self.spent.eot if self.is_random else 0}
        chains |= {"grad": self.grad or "" if self.refine else ""}
        chains |= {"data_noise": self.data_noise, "smooth": self.smooth}
        return {"refine": self.refine, **{name: value for name, value in chains.items() if value}}

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The model under attack, as parts of the protocol.

        For random predictions they say how many must be wrong for an image to count as broken.

        An image that is misclassified half of the time counts as robust, so the expected accuracy
        of one prediction is given as well.
        """
        from jembench.attacks.target import LOOKS
        from jembench.attacks.threat import VERIFICATIONS

        if not self.is_random:
            return self.model_options
        verified = {"verified": f"{VERIFICATIONS // 2 + 1}/{VERIFICATIONS}"}
        return {
            **self.model_options,
            **verified,
            **({"sure": f"{LOOKS}/{LOOKS}"} if self.searches else {}),
        }

    @property
    def label(self) -> str:
        """The label of the value."""
        return self.name

    def shard_size(self, device: str) -> int:
        """Return the number of images per shard on a type of device.

        Only the random numbers of refinement depend on it.
        """
        plain, refined = (
            (SHARD, SHARD_REFINED) if device == "cpu" else (GPU_SHARD, GPU_SHARD_REFINED)
        )
        return refined if self.refine else plain

    @property
    def parts(self) -> int:
        """The number of shards, which different machines can attack.

        There are fewer on GPUs than on CPUs.
        """
        return -(-self.spent.images // self.shard_size("cpu"))

    @property
    def passes_each(self) -> int:
        """The network passes of a prediction: one, or n (k + 1) for n chains of k steps."""
        return self.spent.eot * (self.refine + 1) if self.is_random else 1

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
        low, high = data.bounds
        seed = evaluation.services.generator(f"refinement {purpose}").initial_seed()
        refined = Refined(
            evaluation.model,
            require_chains(evaluation.sampler) if self.refine else None,
            steps=self.refine,
            chains=self.spent.eot,
            grad=self.grad or "bpda",
            generator=seeds.seeded(seed, evaluation.device),
            noise=self.smooth * (high - low) or noise_to_model(self.data_noise, (low, high)),
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
            result = self.find(evaluation, shard, self.attacked_model(evaluation, purpose))
            fresh = self.attacked_model(evaluation, f"verify {purpose}")
            return {
                **verify(fresh, shard.x, shard.y, result.adversarial, result.claimed),
                **result.others,
            }

        return in_shards(self, evaluation, choose(evaluation, self.spent.images), work)

    def details(self, arrays: Arrays) -> dict[str, Any]:
        """Return information on the result that its arrays do not hold, in JSON types."""
        return {}

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Attack the model, and measure its robustness."""
        attacked = self.attack(evaluation)
        details = {**self.details(attacked.arrays), **attacked.details}
        return self.measurement(
            evaluation, attacked.arrays, parts={"images": attacked.images}, details=details
        )


@dataclass(frozen=True, kw_only=True)
class GradientAttack(Attack):
    """An attack that follows gradients from several starts."""

    norm: Norm = "linf"
    restarts: OptionalCount = None
    steps: OptionalCount = None

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The parts of the protocol."""
        spent = self.spent
        return {
            **super().protocol_options,
            "norm": self.norm,
            "restarts": spent.restarts,
            "steps": spent.steps,
        }


# --- shards ---------------------------------------------------------------------------------------


def choose(evaluation: Evaluation, count: int) -> Chosen:
    """Choose ``count`` test images at random, the same for all models.

    A smaller count chooses the first of these.
    """
    import torch

    from jembench import seeds

    images, labels = evaluation.data.part("test")
    assert labels is not None, "the metric requires labels"
    index = torch.randperm(len(images), generator=seeds.generator(0, "robustness/images"))[:count]
    return Chosen(index, images[index], labels[index])


def in_shards(
    metric: Any,
    evaluation: Evaluation,
    chosen: Chosen,
    work: Callable[[Shard], Mapping[str, Tensor]],
) -> Attacked:
    """Do the work of a metric shard by shard.

    After a kill or at the time limit the next call continues.

    With ``services.share`` (number, count), every count-th shard is computed here, and other
    machines do the others.

    Args:
        metric: an attack, or another metric with ``shard_size`` and ``protocol_options``. A stored
            shard is used again for the same model, images and ``protocol_options``.
        evaluation: of the model.
        chosen: the images.
        work: the function from a shard to arrays with a row for each of its images.

    Raises:
        OutOfTime: if the time limit passed before the end of the first shard, or of a share.
        PartDone: if only a share was asked for, and all of its shards are stored.
    """
    import torch

    from jembench import progress
    from jembench.data.pixels import content_hash, to_float
    from jembench.stopping import Stopped

    own, of = evaluation.services.share
    parts: list[dict[str, Tensor]] = []
    done, total, device = 0, len(chosen.images), evaluation.device
    size = metric.shard_size(device.type)
    for start in progress.track(
        range(0, total, size)[own::of], "", "images", lambda start: min(size, total - start)
    ):
        if evaluation.services.out_of_time():
            break
        index, images, labels = (
            each[start : start + size] for each in (chosen.index, chosen.images, chosen.labels)
        )
        shard = Shard(start // size, index, to_float(images.to(device), _RANGE), labels.to(device))

        def computed(shard: Shard = shard) -> dict[str, Tensor]:
            return {key: value.cpu() for key, value in work(shard).items()}

        key = {
            **metric.protocol_options,
            "version": _VERSION,
            "shard": shard.number,
            "content": content_hash(images),
        }
        try:
            parts.append(
                evaluation.services.remembered(
                    f"{metric.name}-{shard.number}-{stable_hash(key, 16)}", computed
                )
            )
        except Stopped:
            if of > 1 or not parts:
                raise
            break  # the shards so far are a partial outcome
        done = start + len(images)
    if of > 1 and not evaluation.services.out_of_time():
        raise PartDone
    if of > 1 or not parts:
        raise OutOfTime(
            "The time is up before an image was attacked. The same command goes on from here."
        )
    arrays = {key: torch.cat([part[key] for part in parts]).numpy() for key in parts[0]}
    chosen_arrays = {"index": chosen.index, "label": chosen.labels, "image": chosen.images}
    return Attacked(
        arrays | {key: value[:done].numpy() for key, value in chosen_arrays.items()}, total
    )


# --- numbers --------------------------------------------------------------------------------------


def distance_estimates(
    name: str, arrays: Arrays, norms: Sequence[Norm]
) -> Iterator[tuple[str, Estimate]]:
    """Yield the median distance in levels and the accuracy in % at each eps, by label.

    The sizes eps are those of the curve.

    An image without an adversarial one counts with the largest possible distance.
    """
    import numpy as np

    for norm in norms:
        highest = LEVELS * largest_distance(norm, arrays["image"][0].size)
        yield (
            f"{name}-{norm}",
            median(LEVELS * arrays[f"distance-{norm}"], "1/255", "higher", (0.0, highest)),
        )
        for eps in CURVE[norm]:
            robust = is_robust(arrays, norm, parse_eps(eps))
            wrong = np.where(robust, arrays.get("wrong-as-it-is", 0.0), arrays["wrong"])
            yield from accuracies(f"{name}-{norm}@{eps}", arrays, robust, wrong)


def accuracies(
    label: str, arrays: Arrays, robust: Array, wrong: Array
) -> Iterator[tuple[str, Estimate]]:
    """Yield the share of robust images; for random predictions, the expected accuracy as well.

    Args:
        label: of the share.
        arrays: of each image.
        robust: bool (N,), True if the attack on the image failed.
        wrong: (N,) the share of wrong predictions for the attacked image, 0 to 1.
    """
    yield label, share(robust, "higher")
    if "wrong-as-it-is" in arrays:
        yield f"{label}-expected", mean(100 * (1 - wrong), "%", "higher", (0.0, 100.0))


def is_robust(arrays: Arrays, norm: Norm, eps: float) -> Array:
    """Return whether each image has no adversarial one within eps, bool (N,).

    Rounding is allowed for: a change of 8 levels by the pointwise attack may measure 8.00001/255.
    """
    reach = eps + rounding(norm, arrays["image"][0].size)
    return ~arrays["found"] | (arrays[f"distance-{norm}"] > reach)
