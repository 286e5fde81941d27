"""Attacks as metrics. What they share is in :mod:`jembench.metrics.budgets`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from jembench.attacks.eps import Norm, check_eps, parse_eps
from jembench.catalog.spec import Scalar
from jembench.catalog.validation import Range
from jembench.errors import SpecError
from jembench.interfaces import Capability
from jembench.metrics.base import Bootstrapped, Count, OptionalCount, Resamples, check_labels
from jembench.metrics.budgets import Attack, Budget, Budgeted, SearchAttack, SmoothedAttack

if TYPE_CHECKING:
    from jembench.interfaces import Planned

Gradient = Literal["through", "bpda"]
Kind = TypeVar("Kind", bound="Attack")

ALL = "all"

CHECKED = 100
"""Images of a budget on which the gradients are checked."""


@dataclass(frozen=True, kw_only=True)
class PGD(SearchAttack, SmoothedAttack, Bootstrapped):
    """Projected gradient descent: the median distance, in levels of 255, to the nearest image of another class.

    Beside it the accuracy within some eps; with ``eps`` (8/255, of a pixel's range) the accuracy within it alone.
    Misclassified images count as broken at 0.
    """

    eps: str = ""  # as the user wrote it; "": the smallest of each image is searched
    grad: Gradient = "through"
    name: ClassVar[str] = "pgd"
    computed_by: ClassVar[str] = "jembench.metrics.robustness:pgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps:
            parse_eps(self.eps)

    @property
    def label(self) -> str:
        """Of the value: ``pgd-linf``, ``pgd-linf@8/255``."""
        return f"{self.name}-{self.norm}" + (f"@{self.eps}" if self.eps else "")

    @property
    def options(self) -> dict[str, Scalar]:
        """Those of a search, and how far it goes."""
        minimal: dict[str, Scalar] = {"search": "minimal", "tolerance": self.spent.tolerance}
        return {**super().options, **({"eps": self.eps} if self.eps else minimal)}

    def passes(self, images: int) -> int:
        """About: how often an attack succeeds at once decides it."""
        spent = self.spent
        attempts = spent.restarts if self.eps else math.log2(2 / spent.tolerance) + 1.4 * spent.restarts
        return round(min(images, spent.images) * attempts * (spent.steps + 1) * self.defence.passes)

    def check(self, planned: Planned) -> None:
        """Whether there will be classes, chains, and room for a change of that size."""
        super().check(planned)
        if self.eps:
            check_eps(self.eps, self.norm, planned.spec.dimensions)


@dataclass(frozen=True, kw_only=True)
class DecisionAttack(SmoothedAttack, Bootstrapped):
    """An attack that sees classes alone, and the median distances, in L2 and L-inf, of what it finds.

    It begins at a correctly classified test image of the class ranked second. An image whose start fails counts with
    the largest distance there is. Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G.
    """

    queries: OptionalCount = None
    decides: ClassVar[tuple[str, ...]] = ("queries",)
    computed_by: ClassVar[str] = "jembench.metrics.robustness:decision_attack"

    def passes(self, images: int) -> int:
        """At most: pointwise comes to its end by itself."""
        return min(images, self.spent.images) * self.spent.queries * self.defence.passes


@dataclass(frozen=True, kw_only=True)
class Boundary(DecisionAttack):
    """The boundary attack, which sees classes alone: the median distances to the nearest image of another class.

    It begins at a test image of the class ranked second; ``queries`` are the answers that it may ask for, an image.
    """

    name: ClassVar[str] = "boundary"


@dataclass(frozen=True, kw_only=True)
class Pointwise(DecisionAttack):
    """The pointwise attack, which sees classes alone: the median distances to the nearest image of another class.

    It sets pixels back, one after the other, from a test image of the class ranked second.
    """

    name: ClassVar[str] = "pointwise"


@dataclass(frozen=True, kw_only=True)
class Ensemble(SearchAttack, SmoothedAttack):
    """Accuracy in % under the worst of automatic PGD, on two losses, and the boundary attack, all within ``eps``.

    In the spirit of AutoAttack. Needs the Adversarial Robustness Toolbox: `pip install 'jembench[ensemble]'`.
    Misclassified images count as broken. The details say how many each attack was the first to break.
    """

    eps: str
    grad: Gradient = "through"
    queries: OptionalCount = None
    decides: ClassVar[tuple[str, ...]] = (*SearchAttack.decides, "eps", "queries")
    resamples: Resamples = 0
    name: ClassVar[str] = "ensemble"
    computed_by: ClassVar[str] = "jembench.metrics.robustness:ensemble"

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_eps(self.eps)

    @property
    def label(self) -> str:
        """Of the value: ``ensemble-linf@8/255``."""
        return f"{self.name}-{self.norm}@{self.eps}"

    @property
    def options(self) -> dict[str, Scalar]:
        """Those of a search, and the attacks."""
        from jembench.attacks.ensemble import MEMBERS

        return {**super().options, "members": "+".join(MEMBERS)}

    def passes(self, images: int) -> int:
        """At most: automatic PGD asks for the loss of every iterate beside its gradient."""
        spent = self.spent
        return min(images, spent.images) * (4 * spent.restarts * spent.steps + spent.queries) * self.defence.passes

    def check(self, planned: Planned) -> None:
        """Whether there will be classes and chains, room for a change of that size, and the toolbox."""
        from jembench.attacks.ensemble import toolbox

        super().check(planned)
        check_eps(self.eps, self.norm, planned.spec.dimensions)
        toolbox()


@dataclass(frozen=True, kw_only=True)
class Transfer(SearchAttack):
    """Adversarial images of the model as it is, shown to it with refinement: the share in % that deceives it still.

    The images are those that ``pgd`` finds without refinement. One that is refined back to its class is at distance
    infinity. The share is of images that both models classify rightly as they are, since no other can be deceived; in
    the accuracies an image that the refined model misclassifies as it is counts as broken at 0. The images are the
    nearest that were found, so they lie just beyond where the class changes, and a small step takes many back: a low
    share says less of robustness than an attack on the refined model itself.
    """

    refine: Count = 10
    decides: ClassVar[tuple[str, ...]] = (*SearchAttack.decides, "tolerance")
    resamples: Resamples = 0
    name: ClassVar[str] = "transfer"
    computed_by: ClassVar[str] = "jembench.metrics.robustness:transfer"

    @property
    def source(self) -> PGD:
        """What makes the images; those of the same budget are remembered."""
        return PGD(norm=self.norm, budget=self.budget, images=self.images, restarts=self.restarts, steps=self.steps)

    def passes(self, images: int) -> int:
        """About: making the images, and the answers to them and to what they were made of."""
        from jembench.attacks.threat import VERIFICATIONS

        return (
            self.source.passes(images) + min(images, self.spent.images) * (2 * VERIFICATIONS + 1) * self.defence.passes
        )


@dataclass(frozen=True, kw_only=True)
class Distal(Attack, Bootstrapped):
    """Noise made into images of a class: the share in % of which the model becomes sure, and in how many steps.

    ``target`` is a class by its name, or ``all``, each as often. A budget says the number of chains alone. A share of
    100 % is what gradient ascent should come to; the steps, and the images, tell models apart. So does
    ``distal-log-px``: how far log p(x) has come on these ways from that of the noise (0 %) to that of the test images
    (100 %). Ends that look like their class are likely, those that still look like noise are not; as a share of the
    way it depends neither on the unknown constant of log p(x) nor on its scale, which both differ from model to model.
    It says what the model takes its ends for, not what they are. A model without an energy, or to which noise is as
    likely as the test images, leaves it out.
    """

    target: str = ALL
    images: Count = 100
    steps: Count = 200
    threshold: Annotated[float, Range(above=0, below=1)] = 0.9
    grad: Gradient = "through"
    decides: ClassVar[tuple[str, ...]] = ("target", "steps", "threshold")
    name: ClassVar[str] = "distal"
    computed_by: ClassVar[str] = "jembench.metrics.distal:distal"

    def passes(self, images: int) -> int:
        """At most, as if no ascent ended; the number of test images does not matter."""
        return self.images * (self.steps + 1) * self.defence.passes

    def check(self, planned: Planned) -> None:
        """Whether there will be the classes, and chains."""
        from jembench.metrics.distal import classes_of

        classes_of(planned.spec, self.target)
        self.defence.check(planned)


class Setting(NamedTuple):
    """Of PGD."""

    eps: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class GradientChecks(SearchAttack, SmoothedAttack, Bootstrapped):
    """Whether attacks by gradients can be believed: sanity checks in %, all of them 0 at best.

    A failed check is reported as suspicious, with the reason. The first 100 of the paper's 300 images are used.
    Each is a share of the images in %, or a rise in points:

    - ``unlimited``: images that PGD does not break though it may go any distance, where there are images of all
      classes. It starts at the image alone: anywhere else in so large a ball is noise, of another class by itself.
      Suspicious if that is surely (by Wilson's 95 % interval) above 1 %.
    - ``steps`` and ``larger-eps``: the largest rise in accuracy when PGD makes more steps, or may go farther, from the
      same starts; eps is about the median distance at which it succeeds. Suspicious if a rise is beyond chance.
    - ``white-box``: images to which the boundary attack, which sees no gradient, comes more than 5 % nearer in L2 than
      PGD. Suspicious if that is surely above 5 %, as neither search is perfect.
    - ``zero-gradients``: images at which the gradient of the loss is 0, or not finite. Suspicious above 1 %.
    """

    grad: Gradient = "through"
    queries: OptionalCount = None
    decides: ClassVar[tuple[str, ...]] = (*SearchAttack.decides, "tolerance", "queries")
    name: ClassVar[str] = "gradient-checks"
    computed_by: ClassVar[str] = "jembench.metrics.gradient_checks:gradient_checks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spent.steps < 4:
            raise SpecError(f"steps of {self.name} is {self.spent.steps}; it must be at least 4.")

    @property
    def spent(self) -> Budget:
        """What may be spent, on fewer images than an attack's."""
        spent = super().spent
        return spent if self.images else spent.but(images=min(CHECKED, spent.images))

    def settings(self, eps: float, largest: float) -> list[Setting]:
        """The settings of PGD whose accuracies are compared; none goes farther than the largest distance."""
        steps = self.spent.steps
        by_steps = [steps // 4, steps // 2, steps, 2 * steps]
        by_eps = [eps / 2, min(2 * eps, largest)]
        return [Setting(eps, steps) for steps in by_steps] + [Setting(eps, steps) for eps in by_eps]

    def passes(self, images: int) -> int:
        """About: images that withstand an attack meet all its restarts, the others few."""
        spent = self.spent
        searches = sum(self.search(norm).passes(images) for norm in {self.norm, "l2"})
        per_restart = sum(steps + 1 for _, steps in self.settings(1, 1))
        steps = spent.restarts * per_restart // 2 + spent.steps + 2
        return searches + min(images, spent.images) * steps * self.defence.passes + self.black_box.passes(images)

    def search(self, norm: Norm) -> PGD:
        """The attack that is checked."""
        return self._with_these_options(PGD, norm=norm)

    @property
    def black_box(self) -> Boundary:
        """The attack that sees no gradient."""
        return self._with_these_options(Boundary)

    def _with_these_options(self, kind: type[Kind], **others: Any) -> Kind:
        """An attack with the options of these checks that it has, on the same images."""
        shared = {field.name: getattr(self, field.name) for field in fields(kind) if hasattr(self, field.name)}
        return kind(**{**shared, "images": self.spent.images, **others})


@dataclass(frozen=True, kw_only=True)
class Certified(Budgeted, Bootstrapped):
    """Randomised smoothing: the accuracy in % that is certified within sizes of a change in L2, and the mean radius.

    ``sigma`` is that of the noise, on [0, 1]; ``copies`` are the noisy images that certify one: 100,000, quick 1,000.
    The class is the most frequent of 100 answers; its probability is at least p with confidence 1 - ``alpha``, by
    Clopper and Pearson from ``copies`` further answers. The radius is sigma * Phi^-1(p) if p is above one half; else
    the classifier abstains, which counts as wrong. Sizes are in units of a pixel's range. An image whose class is wrong
    counts with the radius 0 in the mean. Cohen et al. (2019), arXiv:1902.02918, Theorem 1 and the procedure Certify.
    """

    sigma: Annotated[float, Range(above=0)] = 0.25
    copies: OptionalCount = None
    alpha: Annotated[float, Range(above=0, below=1)] = 0.001
    decides: ClassVar[tuple[str, ...]] = ("sigma", "selection", "copies", "alpha")
    name: ClassVar[str] = "certified"
    computed_by: ClassVar[str] = "jembench.metrics.certified:certified"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})
    selection: ClassVar[int] = 100

    def shard(self, device: str) -> int:
        """The same everywhere: one image fills a GPU."""
        return super().shard("cpu")

    def passes(self, images: int) -> int:
        """An answer is a pass."""
        return min(images, self.spent.images) * (self.selection + self.spent.copies)

    def check(self, planned: Planned) -> None:
        """Whether there will be classes."""
        check_labels(planned)
