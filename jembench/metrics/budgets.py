"""What attacks as metrics share: a budget, a defence, shards, and options, each written once.

``budget`` names what an attack may spend: ``paper`` (300 images, 20 restarts, 40 steps, 5 chains) or ``quick``, for a
look on a CPU. ``images``, ``restarts``, ``steps``, ``eot`` and ``queries`` replace a number of it. ``refine`` is the
steps of the model's own chain from each image before it is classified, and ``eot`` the chains whose mean counts.
``data_noise`` is that of the reference code before each chain (standard deviation on [-1, 1]); ``smooth`` is that of
randomised smoothing (on [0, 1]), with ``eot`` noisy copies in place of chains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from jembench.attacks.eps import Norm
from jembench.catalog.options import added_later
from jembench.catalog.spec import Scalar
from jembench.catalog.validation import Range
from jembench.errors import SpecError
from jembench.interfaces import Capability
from jembench.metrics.base import MOST, Comparable, NotNegative, OptionalCount, check_labels

if TYPE_CHECKING:
    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Planned

SHARD, SHARD_REFINED = 50, 25
"""Images of a shard on a CPU, without and with refinement."""

GPU_SHARD, GPU_SHARD_REFINED = 300, 75
"""The same on a GPU: all of the paper's budget at once, and in four parts. Most images end early, and the others alone
would not fill it."""

# --- a budget ---------------------------------------------------------------------------------------------------------

BudgetName = Literal["paper", "quick"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What is spent on an attack; each number can be set by itself."""

    images: int
    restarts: int
    steps: int
    tolerance: float  # of the smallest eps, relative to it
    eot: int  # chains that a refined model's answer is the mean of
    queries: int  # of a decision-based attack, an image
    copies: int  # with noise, that certify an image

    def but(self, **numbers: Any) -> Budget:
        """The same with those numbers that are given."""
        return replace(self, **{name: number for name, number in numbers.items() if number is not None})


# The numbers behind a name never change, since the name is part of what a result goes by: others get another name.
BUDGETS: Mapping[BudgetName, Budget] = {
    # Grathwohl et al. (2020), arXiv:1912.03263, Appendix G; it does not tell the tolerance. Its boundary attack has
    # foolbox's default settings: 25,000 steps.
    # copies: Cohen et al. (2019), section 4
    "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000, copies=100_000),
    # A look at all of it on a CPU in minutes: distances come out some percent larger, intervals wide.
    "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000, copies=1_000),
}


# --- a defence --------------------------------------------------------------------------------------------------------

SECOND_ORDER = 4
"""Network passes for the gradient through one step of a chain, in place of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Defence:
    """``refine`` steps of the model's chain from the image (JEM-k), the mean over ``eot`` chains, and their gradient.

    Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G. Each chain begins at the image with Gaussian
    noise of standard deviation ``data_noise`` on [-1, 1], new at each answer, as in the authors' code. ``smooth`` is
    that of randomised smoothing on [0, 1], of any classifier: Salman et al. (2019), arXiv:1906.04584.
    """

    refine: int = 0
    eot: int = 5
    grad: Literal["through", "bpda", "none"] = "through"  # none: for attacks that take none
    data_noise: float = 0.0
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if self.smooth and (self.refine or self.data_noise):
            raise SpecError(
                f"An attack has smooth={self.smooth:g}, refine={self.refine} and data_noise={self.data_noise:g}; smooth"
                " stands alone."
            )

    @property
    def requires(self) -> frozenset[Capability]:
        """What a model must give; whether it has chains, its fit alone knows."""
        return frozenset({"logits", "energy", "samples"} if self.refine else {"logits"})

    @property
    def identity(self) -> dict[str, Scalar]:
        """For the protocol."""
        if not self.is_random:
            return {"refine": 0}
        of_chains: dict[str, Scalar] = {} if self.grad == "none" or not self.refine else {"grad": self.grad}
        noise = {"data_noise": f"{self.data_noise:g}"} if self.data_noise else {}
        smooth = {"smooth": f"{self.smooth:g}"} if self.smooth else {}
        return {"refine": self.refine, "eot": self.eot, **of_chains, **noise, **smooth}

    def rule(self, *, searched: bool = True) -> Mapping[str, Scalar]:
        """For the protocol, where answers are random: how many must be wrong for an image to count as broken.

        In the search, and when it is looked at again. An image that is wrong half of the time withstands, so the
        accuracy that is expected of one answer stands beside.
        """
        from jembench.attacks.target import LOOKS
        from jembench.attacks.threat import VERIFICATIONS

        if not self.is_random:
            return {}
        verified: dict[str, Scalar] = {"verified": f"{VERIFICATIONS // 2 + 1}/{VERIFICATIONS}"}
        return {"sure": f"{LOOKS}/{LOOKS}", **verified} if searched else verified

    @property
    def is_random(self) -> bool:
        """Whether the answer to an image is another one each time."""
        return bool(self.refine or self.data_noise or self.smooth)

    @property
    def passes(self) -> int:
        """Through the network, for one gradient."""
        if not self.is_random:
            return 1
        return self.eot * (self.refine * (SECOND_ORDER if self.grad == "through" else 1) + 1)

    def check(self, planned: Planned) -> None:
        """Whether there will be chains to refine by, and gradients for an attack that takes them.

        Raises:
            NotApplicable: if not.
        """
        from jembench.models.capabilities import require_gradients
        from jembench.sampling.chain import require_chains

        if self.grad != "none":
            require_gradients(planned.differentiable)

        if self.refine:
            require_chains(planned.sampler)

    def target(self, evaluation: Evaluation, purpose: str) -> Target:
        """The model as an attack sees it, with random numbers of its own for each purpose.

        Raises:
            NotApplicable: if images are to be refined, and the model was trained without chains.
        """
        from jembench import seeds
        from jembench.attacks.refinement import Refined
        from jembench.attacks.target import Target
        from jembench.data.pixels import noise_to_model
        from jembench.sampling.chain import require_chains

        if not self.is_random:
            return Target(evaluation.model, evaluation.data.spec)
        low, high = evaluation.data.spec.bounds
        noise = self.smooth * (high - low) or noise_to_model(self.data_noise, (low, high))
        sampler = require_chains(evaluation.sampler) if self.refine else None
        seed = evaluation.services.generator(f"refinement {purpose}").initial_seed()
        refined = Refined(
            evaluation.model,
            sampler,
            steps=self.refine,
            chains=self.eot,
            grad="bpda" if self.grad == "none" else self.grad,
            generator=seeds.seeded(seed, evaluation.device),
            noise=noise,
            smooth=bool(self.smooth),
        )
        return Target(refined, evaluation.data.spec)

    def targets(self, evaluation: Evaluation, purpose: str) -> tuple[Target, Target]:
        """The model as an attack sees it, and as what it found is looked at again: with other random numbers."""
        return self.target(evaluation, purpose), self.target(evaluation, f"verify {purpose}")


# --- metrics that have both -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Budgeted(Comparable):
    """A metric with a budget, of which options replace single numbers."""

    budget: BudgetName = "paper"
    images: OptionalCount = None
    decides: ClassVar[tuple[str, ...]]
    """The options and numbers of the budget that decide which images are found, beside the defence."""

    @property
    def spent(self) -> Budget:
        """What may be spent."""
        return BUDGETS[self.budget].but(**{field.name: getattr(self, field.name, None) for field in fields(Budget)})

    @property
    def parts(self) -> int:
        """The number of shards on CPUs, each of which can be attacked by another machine; on GPUs there are fewer."""
        return -(-self.spent.images // self.shard("cpu"))

    def shard(self, device: str) -> int:
        """The number of images that are attacked together on a kind of device, the most work that is lost by a kill.

        Only the randomness of refinement depends on it.
        """
        plain, refined = (SHARD, SHARD_REFINED) if device == "cpu" else (GPU_SHARD, GPU_SHARD_REFINED)
        return refined if self.defence.refine else plain

    @property
    def defence(self) -> Defence:
        """What stands between the attack and the model's answer."""
        return Defence()

    @property
    def options(self) -> dict[str, Scalar]:
        """What decides which images are found, beside the defence: parts of the protocol."""
        spent = self.spent
        return {name: getattr(spent if hasattr(spent, name) else self, name) for name in self.decides}

    @property
    def label(self) -> str:
        """Of the value."""
        return self.name

    def passes(self, images: int) -> int:
        """See :class:`~jembench.interfaces.Costly`."""
        raise NotImplementedError


@added_later(data_noise=0.0)
@dataclass(frozen=True, kw_only=True)
class Attack(Budgeted):
    """An attack on a model, which may refine images by its own chain before it classifies them."""

    refine: Annotated[int, Range(least=0, most=MOST)] = 0
    eot: OptionalCount = None
    data_noise: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.defence  # which checks its options

    @property
    def defence(self) -> Defence:
        """What stands between the attack and the model's answer."""
        grad: Any = getattr(self, "grad", "none")
        smooth: float = getattr(self, "smooth", 0.0)
        return Defence(refine=self.refine, eot=self.spent.eot, grad=grad, data_noise=self.data_noise, smooth=smooth)

    @property
    def requires(self) -> frozenset[Capability]:
        """What the defence needs."""
        return self.defence.requires

    def check(self, planned: Planned) -> None:
        """Whether there will be classes and chains."""
        check_labels(planned)
        self.defence.check(planned)


@added_later(smooth=0.0)
@dataclass(frozen=True, kw_only=True)
class SmoothedAttack(Attack):
    """An attack on a model that may be smoothed."""

    smooth: NotNegative = 0.0


@dataclass(frozen=True, kw_only=True)
class SearchAttack(Attack):
    """An attack whose images are found by PGD."""

    norm: Norm = "linf"
    restarts: OptionalCount = None
    steps: OptionalCount = None
    decides: ClassVar[tuple[str, ...]] = ("norm", "restarts", "steps")
