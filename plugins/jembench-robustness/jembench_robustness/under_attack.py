"""Metrics of attacked images: calibration, and detection of attacked outliers.

An attack on an outlier ascends the score.

Legend: N images, M outliers, K classes, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from jembench.attacks.eps import parse_eps
from jembench.catalog.spec import Scalar, Spec
from jembench.interfaces import Evaluation, Measurement, Need, OODScore, Planned, Quantity
from jembench.interfaces.metrics import DifferentiableScore
from jembench.metrics import attacks, shards
from jembench.metrics.base import Array, Arrays, protocol_id
from jembench.metrics.classification import Classification, require_finite
from jembench.metrics.ood import OutOfDistribution
from jembench.metrics.pgd import PGD
from jembench.plugin import Estimate, Metric, Names, NotApplicable, SpecError, resolve

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class UnderAttack(Metric):
    """A metric of attacked images.

    ``attack`` is the spec of an attack with its eps after ``@``: pgd@8/255, pgd:norm=l2@0.5.

    Raises:
        SpecError: if there is no such attack.
    """

    attack: str = "pgd@8/255"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.attacker  # checks the option

    @cached_property
    def attacker(self) -> attacks.Attack:
        """The attack."""
        spec, _, eps = self.attack.rpartition("@")
        if not spec:
            raise SpecError(
                f"attack of {self.name} is {self.attack!r}; write an attack with its eps: "
                "pgd@8/255."
            )
        attacker = resolve("metrics", Spec(spec).with_(eps=eps))
        return cast(attacks.Attack, attacker.make())

    @property
    def described(self) -> str:
        """The spec of the attack with all parts of its protocol."""
        parts = self.attacker.protocol_options.items()
        return str(Spec.of(self.attacker.name, dict(parts)))

    def check(self, planned: Planned) -> None:
        """Check that the attack is defined for the dataset."""
        if check := getattr(self.attacker, "check", None):
            check(planned)

    def labelled(self, estimates: dict[str, Any]) -> dict[str, Any]:
        """Return values by labels that end with the attack: ``ece-under-pgd-linf@8/255``."""
        return {f"{label}-under-{self.attacker.label}": value for label, value in estimates.items()}


@dataclass(frozen=True, kw_only=True)
class Attacked(UnderAttack):
    """Accuracy or calibration on images of an attack.

    Images on which the attack fails count unattacked.

    ``metric`` is a metric of classification or calibration with its options, and ``attack`` an
    attack with its eps: pgd@8/255, or pgd:norm=l2@0.5. The attack runs once for all metrics,
    including the metric of its own name.

    Raises:
        SpecError: if there is no such attack, or ``metric`` is of another kind or has
            ``data_noise``.
    """

    metric: Annotated[str, Names("metrics")] = "accuracy"
    name: ClassVar[str] = "attacked"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.measured  # checks the option

    @cached_property
    def measured(self) -> Classification:
        """The metric of the attacked images."""
        made = resolve("metrics", self.metric).make()
        if not isinstance(made, Classification) or made.data_noise:
            raise SpecError(
                f"metric of {self.name} is {self.metric!r}; it must be a metric of classification "
                "or calibration, without data_noise, which is an option of the attack."
            )
        return replace(made, resamples=self.resamples)

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the metric, and of the attack."""
        return self.measured.requires | self.attacker.requires

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Attack the model, and measure the images.

        Raises:
            OutOfTime: if the time limit passed before all images were attacked.
        """
        import torch

        attacked = self.attacker.attack(evaluation).whole()
        target = self.attacker.attacked_model(evaluation, f"under {self.attacker.label}")
        images = torch.from_numpy(attacked["adversarial"])
        logits = target.logits(images.to(evaluation.device)).detach().cpu()
        labels = torch.from_numpy(attacked["label"])
        measurement = self.measured.of_logits(evaluation, logits.double(), labels)
        of = measurement.protocol
        protocol = protocol_id(self.name, evaluation, of=of, attack=self.described)
        values = self.labelled(dict(measurement.values))
        return replace(measurement, protocol=protocol, values=values)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values of the metric, by labels with the attack."""
        return self.labelled(dict(self.measured.estimates(arrays)))


@dataclass(frozen=True, kw_only=True)
class OutliersUnderAttack(UnderAttack, OutOfDistribution):
    """OOD detection of outliers that an attack moves within eps.

    The attack ascends the score, so that outliers look in-distribution.

    The values and other options are those of ``ood``. ``attack``, such as pgd@8/255 or
    pgd:norm=l2,restarts=1@0.5, is projected gradient ascent on the score from each outlier; the
    highest score on the way counts. Test images are not attacked. The attack's ``images`` is the
    number of outliers, which are drawn with a seed.

    Raises:
        SpecError: if ``attack`` is not pgd, or has refine, data_noise or smooth.
    """

    name: ClassVar[str] = "ood-attacked"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.attacker, PGD) or self.attacker.is_random:
            raise SpecError(
                f"attack of {self.name} is {self.attack!r}; it must be pgd, without refine, "
                "data_noise and smooth."
            )

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score, and gradients."""
        return super().requires | {"gradients"}

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The score with all of its options, and the attack."""
        return {**super().protocol_options, "attack": self.described}

    def check(self, planned: Planned) -> None:
        """Check that the outliers are available and the score can be attacked.

        Raises:
            NotApplicable: if the score has no gradient.
        """
        super().check(planned)
        OutOfDistribution.check(self, planned)
        if not isinstance(self.scorer, DifferentiableScore):
            raise NotApplicable(
                f"The score {self.score} is not a differentiable function that outliers can ascend."
            )

    def shard_size(self, device: str) -> int:
        """Return the number of outliers attacked together, equal on every device."""
        return attacks.SHARD

    def outside(self, scorer: OODScore, evaluation: Evaluation, noise: float) -> Array:
        """Return the highest score within eps of each attacked outlier, float64 (M,)."""
        import torch

        from jembench.attacks.gradient import settled
        from jembench.models.predictions import one_pass
        from jembench.parts import seeds

        attack = cast(PGD, self.attacker)
        outliers = evaluation.data.images(self.set)
        low, high = evaluation.data.spec.bounds

        def scores(x: Tensor) -> tuple[Tensor, Tensor]:
            at = x * (high - low) + low

            def read(quantity: Quantity) -> Tensor:
                return one_pass(evaluation.model, at, {quantity}, graph=True)[quantity]

            reached = cast(DifferentiableScore, scorer).of(read)
            return reached.sum(), reached

        def work(shard: shards.Shard) -> dict[str, Tensor]:
            with settled(evaluation.model, shard.x.device):
                return {"score": highest(attack, scores, shard.x, attack.starts(shard))}

        generator = seeds.generator(0, "robustness/outliers")
        index = torch.randperm(len(outliers), generator=generator)[: attack.spent.images]
        chosen = shards.Chosen(index, outliers[index], torch.zeros_like(index))
        worst: Array = shards.in_shards(self, evaluation, chosen, work).whole()["score"]
        require_finite(torch.from_numpy(worst), f"scores {self.score}", "attacked outliers")
        return worst

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values of ``ood``, by labels with the attack."""
        return self.labelled(super().estimates(arrays))


def highest(
    attack: PGD, scores: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor, starts: Tensor
) -> Tensor:
    """Return the highest score within eps of each image, (M,).

    The scores of the starts count too.

    Args:
        attack: gives the norm, the steps and eps.
        scores: the function from images (M, C, H, W) in [0, 1] to the sum of their scores, and the
            scores (M,).
        x: images in [0, 1].
        starts: one per restart, relative to each image in units of eps, (M, R, C, H, W).
    """
    import torch

    from jembench.attacks.gradient import gradient_of
    from jembench.attacks.pgd import STRIDE
    from jembench.attacks.threat import project, steepest

    eps = parse_eps(attack.eps)
    norm = attack.norm
    steps = attack.spent.steps
    reached_scores = []
    radius = torch.full((len(x),), eps, dtype=x.dtype, device=x.device)
    for start in starts.unbind(dim=1):
        moved = project(x + eps * start, x, radius, norm)
        for _ in range(steps + 1):
            gradient, reached = gradient_of(scores, moved)
            reached_scores.append(reached)
            step = STRIDE / steps * eps * steepest(gradient, norm)
            moved = project(moved + step, x, radius, norm)
    return torch.stack(reached_scores).amax(dim=0)
