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
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jembench.attacks.eps import Norm
from jembench.catalog.options import added_later
from jembench.catalog.spec import Scalar
from jembench.catalog.validation import Range
from jembench.interfaces import Capability
from jembench.metrics.base import MOST, Comparable, NotNegative, OptionalCount, check_labels
from jembench.metrics.defence import Defence

if TYPE_CHECKING:
    from jembench.interfaces import Planned

SHARD, SHARD_REFINED = 50, 25
"""Images of a shard on a CPU, without and with refinement."""

GPU_SHARD, GPU_SHARD_REFINED = 300, 75
"""The same on a GPU: all of the paper's budget at once, and in four parts. Most images end early, and the others alone
would not fill it."""

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
    # Grathwohl et al. (2020), arXiv:1912.03263, Appendix G; it does not tell the tolerance and the queries.
    # copies: Cohen et al. (2019), section 4
    "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000, copies=100_000),
    # A look at all of it on a CPU in minutes: distances come out some percent larger, intervals wide.
    "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000, copies=1_000),
}


@dataclass(frozen=True, kw_only=True)
class Budgeted(Comparable):
    """A metric with a budget, of which options replace single numbers."""

    budget: BudgetName = "paper"
    images: OptionalCount = None

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
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Of the value."""
        return self.name


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

    @property
    def options(self) -> dict[str, Scalar]:
        """The norm, restarts and steps."""
        return {"norm": self.norm, "restarts": self.spent.restarts, "steps": self.spent.steps}
