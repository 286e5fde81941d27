"""Robustness to projected gradient descent, and transfer of its images to the refined model.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 5; Appendix G, Figure 17: adversarial
images of JEM-0 are classified by JEM-1 and JEM-10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jembench.attacks.eps import check_eps, parse_eps
from jembench.interfaces import Resampling
from jembench.metrics import attacks, shards
from jembench.metrics.base import PERCENT, Count, Resamples, share

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Planned
    from jembench.metrics.base import Array, Arrays, Estimates, Parts
    from jembench.stats.intervals import Indices


@dataclass(frozen=True, kw_only=True)
class PGD(attacks.GradientAttack):
    """Projected gradient descent: the median distance, in levels of 255.

    The distance is to the nearest image of another class.

    The accuracy within several eps is a value too; with ``eps`` (8/255, of a pixel's range) the
    accuracy within this eps is the only value. Misclassified images count as broken at distance 0.
    """

    eps: str = ""  # as the user wrote it; "": search the smallest eps of each image
    grad: attacks.Gradient = "through"
    name = "pgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps:
            parse_eps(self.eps)

    @property
    def label(self) -> str:
        """The label of the value: ``pgd-linf``, ``pgd-linf@8/255``."""
        label = f"{self.name}-{self.norm}"
        if self.eps:
            label += f"@{self.eps}"
        return label

    @property
    def protocol_options(self) -> Parts:
        """The parts of the protocol."""
        options = super().protocol_options
        if self.eps:
            options["eps"] = self.eps
        else:
            options |= {"search": "minimal", "tolerance": self.spent.tolerance}
        return options

    def check(self, planned: Planned) -> None:
        """Check that eps is not larger than the largest distance of two images.

        Raises:
            SpecError: if it is larger.
        """
        if self.eps:
            check_eps(self.eps, self.norm, planned.spec.dimensions)

    @property
    def passes(self) -> int:
        """The network passes at one size of the change."""
        spent = self.spent
        return spent.images * spent.restarts * spent.steps * self.passes_each

    def find(self, evaluation: Evaluation, shard: shards.Shard, target: Target) -> attacks.Found:
        """Attack within eps, or search the smallest eps."""
        from jembench.attacks import pgd

        spent = self.spent
        algorithm = pgd.PGD(norm=self.norm, steps=spent.steps, tolerance=spent.tolerance)
        begin = self.starts(shard)
        if self.eps:
            closest = algorithm.robust(target, shard.x, shard.y, parse_eps(self.eps), begin)
        else:
            sizes = [parse_eps(eps) for eps in attacks.CURVE[self.norm]]
            closest = algorithm.minimal(target, shard.x, shard.y, begin, sizes)
        return attacks.Found(closest.adversarial, closest.distance.isfinite())

    def starts(self, shard: shards.Shard) -> Tensor:
        """Draw the starts of each image, (N, R, C, H, W).

        The starts do not depend on the shard or the model.
        """
        import torch

        from jembench import seeds
        from jembench.attacks.threat import starts

        shape = tuple(shard.x.shape[1:])
        of_images = []
        for index in shard.index.tolist():
            generator = seeds.generator(0, f"robustness/start {index}")
            of_images.append(starts(self.spent.restarts, shape, self.norm, generator))
        return torch.stack(of_images).to(shard.x.device)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the accuracy within eps, or the median distance and the curve."""
        if self.eps:
            robust, wrong = ~arrays["found"], arrays["wrong"]
            return dict(attacks.accuracies(self.label, arrays, robust, wrong))
        return dict(attacks.distance_estimates(self.name, arrays, [self.norm]))


@dataclass(frozen=True, kw_only=True)
class Transfer(attacks.GradientAttack):
    """Transfer of adversarial images to the model with refinement.

    Its value is the share in % of images that still deceive the model.

    The images are those that ``pgd`` finds without refinement. An image that refinement returns to
    its class counts as robust. The share is among images that both models classify correctly before
    the attack; in the accuracies, an image that the refined model misclassifies without an attack
    counts as broken at distance 0. The nearest adversarial images lie just beyond the decision
    boundary, and a small step takes many of them back: a low share says less about robustness than
    an attack on the refined model itself.
    """

    refine: Count = 10
    resamples: Resamples = 0
    name = "transfer"
    searches = False

    @property
    def source(self) -> PGD:
        """The attack that makes the images; stored images of the same budget are used again."""
        return PGD(
            norm=self.norm,
            budget=self.budget,
            images=self.images,
            restarts=self.restarts,
            steps=self.steps,
        )

    @property
    def protocol_options(self) -> Parts:
        """The parts of the protocol."""
        return super().protocol_options | {"tolerance": self.spent.tolerance}

    @property
    def passes(self) -> int:
        """The network passes of the attack that makes the images, at one size of the change."""
        return self.source.passes

    def attack(self, evaluation: Evaluation) -> shards.Attacked:
        """Classify, by the refined model, the images that attack the unrefined model.

        Raises:
            NotApplicable: if the model was trained without chains.
        """
        import torch

        from jembench.attacks.threat import VERIFICATIONS, per_image, verify
        from jembench.sampling.chain import require_chains

        require_chains(evaluation.sampler)  # before the images are made
        source = self.source.attack(evaluation)
        chosen = shards.choose(evaluation, source.images)
        row = {index: place for place, index in enumerate(chosen.index.tolist())}
        distance = f"distance-{self.norm}"

        def show(shard: shards.Shard) -> Mapping[str, Tensor]:
            rows = [row[index] for index in shard.index.tolist()]

            def of_source(name: str) -> Tensor:
                return torch.from_numpy(source.arrays[name][rows]).to(shard.x.device)

            purpose = f"{self.name} {self.norm} {shard.number}"
            target = self.attacked_model(evaluation, f"look {purpose}")
            fresh = self.attacked_model(evaluation, f"verify {purpose}")

            # images that the refined model misclassifies anyway count as broken at 0
            wrong = target.wrong_share(shard.x, shard.y, VERIFICATIONS) > 0.5
            shown = of_source("found") & (of_source(distance) > 0) & ~wrong
            images = torch.where(per_image(shown), of_source("adversarial"), shard.x)
            verified = verify(fresh, shard.x, shard.y, images, shown | wrong)
            return {**verified, "found-source": shown}

        attacked = shards.in_shards(self, evaluation, chosen, show)
        # the robustness without refinement, for comparison
        for name in ("found", distance):
            attacked.arrays[f"{name}-as-it-is"] = source.arrays[name][: attacked.images]
        return attacked._replace(wanted=source.wanted)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the share of images that still deceive, and the accuracies.

        The share is resampled over all images.
        """
        import numpy as np

        label = f"{self.name}-{self.norm}"
        shown = arrays["found-source"]
        deceives = arrays["found"] & shown

        def among_shown(drawn: Indices) -> Array:
            of_shown = np.maximum(shown[drawn].sum(axis=1), 1)
            percent: Array = 100 * deceives[drawn].sum(axis=1) / of_shown
            return percent

        estimates = {}
        if shown.any():
            resampling = Resampling(among_shown, (len(shown),), PERCENT, int(shown.sum()))
            deceived = share(deceives[shown], "lower")
            estimates[label] = deceived._replace(resampling=resampling)
        for eps in attacks.CURVE[self.norm]:
            robust = attacks.is_robust(arrays, self.norm, parse_eps(eps))
            estimates[f"{label}@{eps}"] = share(robust, "higher")
        return estimates
