"""Attacks as metrics: their budgets, the model under attack, shards, verification and curves.

An attack is a class with a method ``find``; what is heavy is imported inside methods and functions.

Legend: N attacked images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from jembench.attacks.eps import Norm, largest_distance, parse_eps, rounding
from jembench.catalog.spec import Scalar, stable_hash
from jembench.catalog.validation import Range
from jembench.errors import NotApplicable, OutOfTime, PartDone, SpecError
from jembench.interfaces import Need
from jembench.metrics.base import MOST, Metric, NotNegative, OptionalCount, mean, median, share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Measurement
    from jembench.metrics.base import Arrays, Estimate

SHARD, SHARD_REFINED = 50, 25
"""Images of a shard on a CPU, without and with refinement: the most work that is lost by a kill."""

GPU_SHARD, GPU_SHARD_REFINED = 300, 75
"""The same on a GPU: all of the paper's budget at once, and in four parts. Most images end early, and the others alone
would not fill it."""

LEVELS = 255
"""Distances are shown in levels of 8-bit images, as the paper's figures have them, in both norms."""

CURVE: Mapping[Norm, tuple[str, ...]] = {
    "linf": ("4/255", "8/255", "16/255"),
    "l2": ("64/255", "128/255", "255/255"),
}
"""The eps at which tables show the curve of accuracy over eps; figures show all of it."""

SECOND_ORDER = 4
"""Network passes for the gradient through one step of a chain, in place of one."""

_VERSION = 3  # of the attacks: a higher one makes what was remembered unknown
_RANGE = (0.0, 1.0)

# --- a budget ---------------------------------------------------------------------------------------------------------

BudgetName = Literal["paper", "quick"]
Gradient = Literal["through", "bpda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The limits of an attack; each number can be set by itself."""

    images: int
    restarts: int
    steps: int
    tolerance: float  # of the smallest eps, relative to it
    eot: int  # chains that a refined model's answer is the mean of
    queries: int  # of a decision-based attack, for each image

    def but(self, **numbers: int | None) -> Budget:
        """Return the budget with other numbers; None: as it is."""
        given: Any = {name: number for name, number in numbers.items() if number is not None}
        return replace(self, **given)


# The numbers behind a name never change, since the name is part of the identity of results: others get another name.
BUDGETS: Mapping[BudgetName, Budget] = {
    # Grathwohl et al. (2020), arXiv:1912.03263, Appendix G; it does not tell the tolerance. Its boundary attack has
    # foolbox's default settings: 25,000 steps.
    "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000),
    # A look at all of it on a CPU in minutes: distances come out some percent larger, intervals wide.
    "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000),
}

# --- images and results -----------------------------------------------------------------------------------------------


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
    index: Tensor  # int64 (N,) in the test images; seeds the randomness of each image
    x: Tensor  # float32 (N, C, H, W) in [0, 1]
    y: Tensor  # int64 (N,)


class Found(NamedTuple):
    """The result of an attack on a shard."""

    adversarial: Tensor  # (N, C, H, W)
    claimed: Tensor  # bool (N,): the attack reports a success
    others: Mapping[str, Tensor] = {}  # further arrays


class Attacked(NamedTuple):
    """The result of an attack so far."""

    arrays: dict[str, NDArray[Any]]
    wanted: int  # images

    @property
    def images(self) -> int:
        """The number of images that were attacked before the time was over."""
        return len(self.arrays["index"])

    @property
    def details(self) -> dict[str, Any]:
        """``partial``, unless all images were attacked."""
        return {"partial": f"{self.images} of {self.wanted} images"} if self.images < self.wanted else {}


# --- the base ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attack(Metric):
    """An attack on a model, which may refine images by its own chain before it classifies them.

    ``budget`` names the limits of an attack: ``paper`` (300 images, 20 restarts, 40 steps, 5 chains) or ``quick``, for
    a look on a CPU. Options replace single numbers of it. ``refine`` is the number of steps of the model's own chain
    from each image before it is classified (JEM-k), and ``eot`` the number of chains whose mean counts. ``data_noise``
    is that of the reference code before each chain (standard deviation on [-1, 1]). Grathwohl et al. (2020),
    arXiv:1912.03263, section 5.4 and Appendix G. ``smooth`` is the noise of randomised smoothing (on [0, 1]), with
    ``eot`` noisy copies in place of chains. Salman et al. (2019), arXiv:1906.04584.

    A subclass defines :meth:`find`, :meth:`estimates`, :meth:`passes` and the parts of its protocol.

    Raises:
        SpecError: if an option is out of its range, or ``smooth`` does not stand alone.
    """

    budget: BudgetName = "paper"
    images: OptionalCount = None
    refine: Annotated[int, Range(least=0, most=MOST)] = 0
    eot: OptionalCount = None
    data_noise: NotNegative = 0.0
    smooth: NotNegative = 0.0
    searches: ClassVar[bool] = True
    """Whether a success against random predictions is confirmed during the attack, and not by verification alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smooth and (self.refine or self.data_noise):
            raise SpecError(
                f"An attack has smooth={self.smooth:g}, refine={self.refine} and data_noise={self.data_noise:g}; smooth"
                " stands alone."
            )

    @property
    def spent(self) -> Budget:
        """The budget, with the numbers that options replace."""
        return BUDGETS[self.budget].but(images=self.images, eot=self.eot)

    @property
    def chain_gradient(self) -> Gradient | None:
        """The way of gradients past the refinement chain; None: the attack takes no gradients."""
        return None

    @property
    def is_random(self) -> bool:
        """True if the predictions for an image differ from one to the next."""
        return bool(self.refine or self.data_noise or self.smooth)

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the metric: what a fit must give."""
        needs: set[Need] = {"logits", "labels"}
        needs |= {"energy", "samples", "chains"} if self.refine else set()
        return frozenset(needs | ({"gradients"} if self.chain_gradient else set()))

    @property
    def model_options(self) -> dict[str, Scalar]:
        """The parts of the protocol that describe the model under attack."""
        chains: dict[str, Scalar] = {"eot": self.spent.eot if self.is_random else 0}
        chains |= {"grad": self.chain_gradient or "" if self.refine else ""}
        chains |= {"data_noise": self.data_noise, "smooth": self.smooth}
        return {"refine": self.refine, **{name: value for name, value in chains.items() if value}}

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The model under attack and, of random predictions, how many must be wrong for an image to count as broken.

        An image that is wrong half of the time withstands, so the expected accuracy of one prediction stands beside.
        """
        from jembench.attacks.target import LOOKS
        from jembench.attacks.threat import VERIFICATIONS

        if not self.is_random:
            return self.model_options
        verified = {"verified": f"{VERIFICATIONS // 2 + 1}/{VERIFICATIONS}"}
        return {**self.model_options, **verified, **({"sure": f"{LOOKS}/{LOOKS}"} if self.searches else {})}

    @property
    def label(self) -> str:
        """The label of the value."""
        return self.name

    @property
    def passes_an_answer(self) -> int:
        """Network passes for one gradient, or for one prediction."""
        if not self.is_random:
            return 1
        return self.spent.eot * (self.refine * (SECOND_ORDER if self.chain_gradient == "through" else 1) + 1)

    def passes(self, images: int) -> int:
        """See :class:`~jembench.interfaces.metrics.Costly`."""
        raise NotImplementedError

    def shard_size(self, device: str) -> int:
        """Return the number of images that are attacked together on a kind of device.

        Only the randomness of refinement depends on it.
        """
        plain, refined = (SHARD, SHARD_REFINED) if device == "cpu" else (GPU_SHARD, GPU_SHARD_REFINED)
        return refined if self.refine else plain

    @property
    def parts(self) -> int:
        """The number of shards on CPUs, each of which can be attacked by another machine; on GPUs there are fewer."""
        return -(-self.spent.images // self.shard_size("cpu"))

    def attacked_model(self, evaluation: Evaluation, purpose: str) -> Target:
        """Return the model as an attack sees it, with random numbers of its own for each purpose.

        Raises:
            NotApplicable: if images are to be refined, and the model was trained without chains.
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
            grad=self.chain_gradient or "bpda",
            generator=seeds.seeded(seed, evaluation.device),
            noise=self.smooth * (high - low) or noise_to_model(self.data_noise, (low, high)),
            smooth=bool(self.smooth),
        )
        return Target(refined, data)

    def find(self, evaluation: Evaluation, shard: Shard, target: Target) -> Found:
        """Attack the images of a shard."""
        raise NotImplementedError

    def attack(self, evaluation: Evaluation) -> Attacked:
        """Attack the model, and verify the images with random numbers that the attack did not see."""
        from jembench.attacks.threat import verify

        def work(shard: Shard) -> Mapping[str, Tensor]:
            purpose = f"{self.label} {shard.number}"
            found = self.find(evaluation, shard, self.attacked_model(evaluation, purpose))
            fresh = self.attacked_model(evaluation, f"verify {purpose}")
            return {**verify(fresh, shard.x, shard.y, found.adversarial, found.claimed), **found.others}

        return in_shards(self, evaluation, choose(evaluation, self.spent.images), work)

    def details(self, arrays: Arrays) -> dict[str, Any]:
        """Return further information on the result, in JSON types."""
        at_0 = arrays["found"] & (arrays["distance-linf"] == 0)
        return {
            "misclassified": int(at_0.sum()),
            "not-found": int((~arrays["found"]).sum()),
            "unverified": int(arrays["unverified"].sum()),
        }

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Attack the model, and measure how it withstands."""
        found = self.attack(evaluation)
        details = {**self.details(found.arrays), **found.details}
        return self.measurement(evaluation, found.arrays, parts={"images": found.images}, details=details)


@dataclass(frozen=True, kw_only=True)
class GradientAttack(Attack):
    """An attack whose images are found by gradients, from several starts."""

    norm: Norm = "linf"
    restarts: OptionalCount = None
    steps: OptionalCount = None

    @property
    def spent(self) -> Budget:
        """The budget, with the numbers that options replace."""
        return super().spent.but(restarts=self.restarts, steps=self.steps)

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The parts of the protocol."""
        spent = self.spent
        return {**super().protocol_options, "norm": self.norm, "restarts": spent.restarts, "steps": spent.steps}


# --- shards -----------------------------------------------------------------------------------------------------------


def choose(evaluation: Evaluation, count: int) -> Chosen:
    """Choose ``count`` of the test images: one seeded draw, the same for all models, of which fewer are the first ones.

    Raises:
        NotApplicable: if the dataset has no labels.
    """
    import torch

    from jembench import seeds

    images, labels = evaluation.data.part("test")
    if labels is None:
        name = evaluation.data.spec.name
        raise NotApplicable(f"The dataset {name} has no labels, so there is nothing to classify.")
    index = torch.randperm(len(images), generator=seeds.generator(0, "robustness/images"))[:count]
    return Chosen(index, images[index], labels[index])


def in_shards(
    metric: Any, evaluation: Evaluation, chosen: Chosen, work: Callable[[Shard], Mapping[str, Tensor]]
) -> Attacked:
    """Do the work of a metric shard by shard. Each is remembered: after a kill, or out of time, the work goes on there.

    Of ``services.share`` (number, count), every count-th shard is its own: machines share the images of one model.

    Args:
        metric: an attack, or another metric with its ``shard_size``, ``passes`` and ``protocol_options``. The latter
            decide the result, beside the model and the images.
        evaluation: the model.
        chosen: the images.
        work: gives arrays with a row for each image of a shard.

    Raises:
        OutOfTime: if the time was over before the first shard.
        PartDone: if not all shards were asked for, and those that were are remembered.
    """
    import torch

    from jembench import progress
    from jembench.data.pixels import content_hash, to_float
    from jembench.stopping import Stopped

    own, of = evaluation.services.share
    parts: list[dict[str, Tensor]] = []
    done, total = 0, len(chosen.images)
    size, passes = metric.shard_size(evaluation.device.type), metric.passes(total)
    starts = range(0, total, size)[own::of]
    for start in progress.track(starts, "", "images", lambda start: min(size, total - start)):
        if evaluation.services.out_of_time():
            break
        which = slice(start, start + size)
        index, images, labels = chosen.index[which], chosen.images[which], chosen.labels[which]
        number, device = start // size, evaluation.device
        shard = Shard(number, index, to_float(images.to(device), _RANGE), labels.to(device))

        def computed(shard: Shard = shard) -> dict[str, Tensor]:
            with progress.phase("", passes * len(shard.x) // total, progress.PASSES):
                return {key: value.cpu() for key, value in work(shard).items()}

        key = {**metric.protocol_options, "version": _VERSION, "shard": number, "content": content_hash(images)}
        try:
            parts.append(evaluation.services.remembered(f"{metric.name}-{number}-{stable_hash(key, 16)}", computed))
        except Stopped:
            if of > 1 or not parts:
                raise
            break  # those before are an outcome
        done = start + len(images)
    if of > 1 and not evaluation.services.out_of_time():
        raise PartDone
    if of > 1 or not parts:
        raise OutOfTime("The time is up before an image was attacked. The same command goes on from here.")
    arrays = {key: torch.cat([part[key] for part in parts]).numpy() for key in parts[0]}
    chosen_arrays = {"index": chosen.index, "label": chosen.labels, "image": chosen.images}
    return Attacked(arrays | {key: value[:done].numpy() for key, value in chosen_arrays.items()}, total)


# --- numbers ----------------------------------------------------------------------------------------------------------


def distance_estimates(name: str, arrays: Arrays, norms: Sequence[Norm]) -> Iterator[tuple[str, Estimate]]:
    """Yield, by label, the median distance in levels and the accuracy in % at each eps of the curve.

    An image of which nothing was found counts with the largest distance that there is.
    """
    import numpy as np

    for norm in norms:
        highest = LEVELS * largest_distance(norm, arrays["image"][0].size)
        yield f"{name}-{norm}", median(LEVELS * arrays[f"distance-{norm}"], "1/255", "higher", (0.0, highest))
        for eps in CURVE[norm]:
            standing = withstands(arrays, norm, parse_eps(eps))
            wrong = np.where(standing, arrays.get("wrong-as-it-is", 0.0), arrays["wrong"])
            yield from accuracies(f"{name}-{norm}@{eps}", arrays, standing, wrong)


def accuracies(
    label: str, arrays: Arrays, standing: NDArray[np.bool_], wrong: NDArray[np.float64]
) -> Iterator[tuple[str, Estimate]]:
    """Yield the share of images that withstand an attack; for random predictions, the expected accuracy too.

    Args:
        label: of the share, which follows the rule for random predictions.
        arrays: of each image.
        standing: (N,) whether it withstands the attack.
        wrong: (N,) the share of its predictions that are wrong, 0 to 1.
    """
    yield label, share(standing, "higher")
    if "wrong-as-it-is" in arrays:
        yield f"{label}-expected", mean(100 * (1 - wrong), "%", "higher", (0.0, 100.0))


def withstands(arrays: Arrays, norm: Norm, eps: float) -> NDArray[np.bool_]:
    """Return whether nothing was found within eps of each image.

    Attacks of a size stay within it; a change by whole levels, as pointwise makes it, may measure 8.00001/255 for 8.
    """
    reach = eps + rounding(norm, arrays["image"][0].size)
    standing: NDArray[np.bool_] = ~arrays["found"] | (arrays[f"distance-{norm}"] > reach)
    return standing
