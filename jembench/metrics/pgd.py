"""Robustness to projected gradient descent, and transfer of its images to the refined model.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 5; Appendix G, Figure 17, where images are made against
JEM-0, and shown to JEM-1 and JEM-10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jembench.attacks.eps import check_eps, parse_eps
from jembench.catalog.spec import Scalar
from jembench.interfaces import Resampling
from jembench.metrics.attacks import (
    CURVE,
    Attacked,
    Found,
    Gradient,
    GradientAttack,
    Shard,
    accuracies,
    choose,
    distance_estimates,
    in_shards,
    withstands,
)
from jembench.metrics.base import Count, Resamples, share

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Planned
    from jembench.metrics.base import Arrays, Estimate


@dataclass(frozen=True, kw_only=True)
class PGD(GradientAttack):
    """Projected gradient descent: the median distance, in levels of 255, to the nearest image of another class.

    Beside it the accuracy within some eps; with ``eps`` (8/255, of a pixel's range) the accuracy within it alone.
    Misclassified images count as broken at 0.
    """

    eps: str = ""  # as the user wrote it; "": the smallest of each image is searched
    grad: Gradient = "through"
    name: ClassVar[str] = "pgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps:
            parse_eps(self.eps)

    @property
    def chain_gradient(self) -> Gradient:
        """The way of gradients past the refinement chain."""
        return self.grad

    @property
    def label(self) -> str:
        """The label of the value: ``pgd-linf``, ``pgd-linf@8/255``."""
        return f"{self.name}-{self.norm}" + (f"@{self.eps}" if self.eps else "")

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The parts of the protocol."""
        minimal: dict[str, Scalar] = {"search": "minimal", "tolerance": self.spent.tolerance}
        return {**super().protocol_options, **({"eps": self.eps} if self.eps else minimal)}

    def check(self, planned: Planned) -> None:
        """Check that images can be as far apart as eps.

        Raises:
            SpecError: if not.
        """
        if self.eps:
            check_eps(self.eps, self.norm, planned.spec.dimensions)

    def passes(self, images: int) -> int:
        """Estimate the network passes; how often an attack succeeds at once decides them."""
        spent = self.spent
        attempts = spent.restarts if self.eps else math.log2(2 / spent.tolerance) + 1.4 * spent.restarts
        return round(min(images, spent.images) * attempts * (spent.steps + 1) * self.passes_an_answer)

    def find(self, evaluation: Evaluation, shard: Shard, target: Target) -> Found:
        """Attack within eps, or search the smallest."""
        from jembench.attacks import pgd

        algorithm = pgd.PGD(norm=self.norm, steps=self.spent.steps, tolerance=self.spent.tolerance)
        begin = self.starts(shard)
        if self.eps:
            closest = algorithm.robust(target, shard.x, shard.y, parse_eps(self.eps), begin)
        else:
            sizes = [parse_eps(eps) for eps in CURVE[self.norm]]
            closest = algorithm.minimal(target, shard.x, shard.y, begin, sizes)
        return Found(closest.adversarial, closest.distance.isfinite())

    def starts(self, shard: Shard) -> Tensor:
        """Draw the starts of each image, whatever shard it is in and whichever model is attacked: (N, R, C, H, W)."""
        import torch

        from jembench import seeds
        from jembench.attacks.threat import starts

        shape, restarts = tuple(shard.x.shape[1:]), self.spent.restarts
        generators = [seeds.generator(0, f"robustness/start {index}") for index in shard.index.tolist()]
        return torch.stack([starts(restarts, shape, self.norm, each) for each in generators]).to(shard.x.device)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the accuracy within eps, or the median distance and the curve."""
        if self.eps:
            return dict(accuracies(self.label, arrays, ~arrays["found"], arrays["wrong"]))
        return dict(distance_estimates(self.name, arrays, [self.norm]))


@dataclass(frozen=True, kw_only=True)
class Transfer(GradientAttack):
    """Adversarial images of the model as it is, shown to it with refinement: the share in % that deceives it still.

    The images are those that ``pgd`` finds without refinement. One that is refined back to its class is at distance
    infinity. The share is of images that both models classify rightly as they are, since no other can be deceived; in
    the accuracies an image that the refined model misclassifies as it is counts as broken at 0. The images are the
    nearest that were found, so they lie just beyond where the class changes, and a small step takes many back: a low
    share says less of robustness than an attack on the refined model itself.
    """

    refine: Count = 10
    resamples: Resamples = 0
    name: ClassVar[str] = "transfer"
    searches: ClassVar[bool] = False

    @property
    def source(self) -> PGD:
        """The attack that makes the images; those of the same budget are remembered."""
        return PGD(norm=self.norm, budget=self.budget, images=self.images, restarts=self.restarts, steps=self.steps)

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The parts of the protocol."""
        return {**super().protocol_options, "tolerance": self.spent.tolerance}

    def passes(self, images: int) -> int:
        """Estimate the passes that make the images, and those of the answers to them and to what they were made of."""
        from jembench.attacks.threat import VERIFICATIONS

        answers = min(images, self.spent.images) * (2 * VERIFICATIONS + 1) * self.passes_an_answer
        return self.source.passes(images) + answers

    def attack(self, evaluation: Evaluation) -> Attacked:
        """Show the refined model the images that were made against the unrefined one.

        Raises:
            NotApplicable: if the model was trained without chains.
        """
        import torch

        from jembench.attacks.threat import VERIFICATIONS, verify
        from jembench.sampling.chain import require_chains

        require_chains(evaluation.sampler)  # before the images are made
        source = self.source.attack(evaluation)
        done = choose(evaluation, source.images)
        row = {index: place for place, index in enumerate(done.index.tolist())}

        def show(shard: Shard) -> Mapping[str, Tensor]:
            rows = [row[index] for index in shard.index.tolist()]
            made, distance, claimed = (
                torch.from_numpy(source.arrays[key][rows]).to(shard.x.device)
                for key in ("adversarial", f"distance-{self.norm}", "found")
            )
            purpose = f"{self.name} {self.norm} {shard.number}"
            target, fresh = (self.attacked_model(evaluation, f"{look} {purpose}") for look in ("look", "verify"))
            wrong = target.wrong_share(shard.x, shard.y, VERIFICATIONS) > 0.5
            shown = claimed & (distance > 0) & ~wrong
            images = torch.where(shown[:, None, None, None], made, shard.x)
            return {**verify(fresh, shard.x, shard.y, images, shown | wrong), "found-source": shown}

        found = in_shards(self, evaluation, done, show)
        as_it_is = {  # what the model withstands without refinement, to be shown beside
            f"{key}-as-it-is": source.arrays[key][: found.images] for key in ("found", f"distance-{self.norm}")
        }
        return Attacked({**found.arrays, **as_it_is}, source.wanted)

    def details(self, arrays: Arrays) -> dict[str, Any]:
        """Return how many images were shown, and how many were refined back."""
        shown, deceived = arrays["found-source"], arrays["found"]
        return {
            "misclassified": int((deceived & ~shown).sum()),
            "shown": int(shown.sum()),
            "refined-back": int((shown & ~deceived).sum()),
        }

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the share that deceives still, which is a statistic of all images, and the accuracies."""
        import numpy as np

        label, shown, found = f"{self.name}-{self.norm}", arrays["found-source"], arrays["found"]
        deceived: dict[str, Estimate] = {}
        if shown.any():
            among = Resampling(
                lambda drawn: 100 * (found & shown)[drawn].sum(axis=1) / np.maximum(shown[drawn].sum(axis=1), 1),
                (len(shown),),
                (0.0, 100.0),
                int(shown.sum()),
            )
            deceived[label] = share(found[shown], "lower")._replace(resampling=among)
        return deceived | {
            f"{label}@{eps}": share(withstands(arrays, self.norm, parse_eps(eps)), "higher") for eps in CURVE[self.norm]
        }
