"""Whether images made against a model without refinement deceive the same model with it.

Grathwohl et al. (2020), arXiv:1912.03263, Appendix G, Figure 17: made against JEM-0, shown to JEM-1 and JEM-10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench.attacks import verify
from jembench.attacks.threat import Norm
from jembench.catalog.spec import Scalar
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling, Value
from jembench.metrics.attacked import (
    CURVE,
    Arrays,
    Attacked,
    Shard,
    check_attack,
    choose,
    in_shards,
    share,
    verified,
    withstands,
)
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import protocol_id, require_at_least
from jembench.metrics.robustness import PGDRobustness
from jembench.sampling.chain import require_chains
from jembench.stats import Statistic, mean_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """The share of the unrefined model's adversarial images that deceive the refined one, and its accuracy under them.

    The images are those that :class:`PGDRobustness` finds without refinement. One that is refined back to its class is
    at distance infinity. The share is of images that both models classify rightly as they are, since no other can be
    deceived; in the accuracies an image that the refined model misclassifies as it is counts as broken at 0. The images
    are the nearest that were found, so they lie just beyond where the class changes, and a small step takes many back:
    a low share says less of robustness than an attack on the refined model itself.
    """

    norm: Norm = "linf"
    refine: int = 10
    eot: int = 5
    images: int = 300
    restarts: int = 20
    steps: int = 40
    tolerance: float = 0.01
    data_noise: float = 0.0
    name: ClassVar[str] = "transfer"

    def __post_init__(self) -> None:
        require_at_least(1, self.name, refine=self.refine, eot=self.eot)
        require_at_least(1, self.name, images=self.images, restarts=self.restarts, steps=self.steps)

    @property
    def requires(self) -> frozenset[Capability]:
        """What refinement needs."""
        return self.defence.requires

    @property
    def defence(self) -> Defence:
        """Nobody asks for its gradient."""
        return Defence(refine=self.refine, eot=self.eot, grad="none", data_noise=self.data_noise)

    @property
    def source(self) -> PGDRobustness:
        """What makes the images; those of the same budget are remembered."""
        return PGDRobustness(
            norm=self.norm,
            images=self.images,
            restarts=self.restarts,
            steps=self.steps,
            tolerance=self.tolerance,
        )

    @property
    def _options(self) -> dict[str, Scalar]:
        return {"norm": self.norm, "restarts": self.restarts, "steps": self.steps, "tolerance": self.tolerance}

    def passes(self, images: int) -> int:
        """About: making the images, and the answers to them and to what they were made of."""
        answers = 2 * verify.LOOKS + 1
        return self.source.passes(images) + min(images, self.images) * answers * self.defence.passes

    def check(self, planned: Planned) -> None:
        """Whether there will be classes and chains."""
        check_attack(planned, self.defence)

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = self.attack(evaluation)
        return Measurement(
            protocol=protocol_id(
                self.name,
                evaluation,
                images=found.images,
                **self._options,
                **self.defence.identity,
                **self.defence.rule(searched=False),
            ),
            values=self._values(found.arrays),
            arrays=found.arrays,
            details={**_details(found.arrays), **found.details},
        )

    def attack(self, evaluation: Evaluation) -> Attacked:
        """Show the refined model what was made against the unrefined one, now or at an earlier time.

        Raises:
            NotApplicable: if the model was trained without chains.
        """
        require_chains(evaluation.sampler)  # before the images are made
        chosen = choose(evaluation, self.images)
        source = self.source.attack(evaluation)
        done = choose(evaluation, source.images)
        row = {index: place for place, index in enumerate(done.index.tolist())}

        def attack(shard: Shard) -> Mapping[str, Tensor]:
            rows = [row[index] for index in shard.index.tolist()]
            made, distance = (
                torch.from_numpy(source.arrays[key][rows]).to(shard.x.device)
                for key in ("adversarial", f"distance-{self.norm}")
            )
            claimed = torch.from_numpy(source.arrays["found"][rows]).to(shard.x.device)
            target, fresh = (
                self.defence.target(evaluation, f"{look} {self.name} {self.norm} {shard.number}")
                for look in ("look", "verify")
            )
            wrong = target.wrong_share(shard.x, shard.y, verify.LOOKS) > 0.5
            shown = claimed & (distance > 0) & ~wrong
            images = torch.where(shown[:, None, None, None], made, shard.x)
            return {**verified(fresh, shard, images, shown | wrong), "found-source": shown}

        found = in_shards(evaluation, self.name, self._options, self.defence, done, attack)
        partial = {"partial": f"{found.images} of {len(chosen.images)} images"}
        as_it_is = {  # what the model withstands without refinement, to be shown beside
            f"{key}-as-it-is": source.arrays[key][: found.images] for key in ("found", f"distance-{self.norm}")
        }
        return Attacked({**found.arrays, **as_it_is}, partial if found.images < len(chosen.images) else {})

    def _values(self, arrays: Arrays) -> dict[str, Value]:
        shown = arrays["found-source"]
        misclassified = {f"{self.name}-{self.norm}": share(arrays["found"][shown], "lower")} if shown.any() else {}
        return misclassified | {
            f"{self.name}-{self.norm}@{eps}": share(withstands(arrays, self.norm, float(Fraction(eps))), "higher")
            for eps in CURVE[self.norm]
        }

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of images; of two models' images the same may be shown or not."""
        found: dict[str, Resampling] = {}
        shown = arrays["found-source"]
        if shown.any():
            found[f"{self.name}-{self.norm}"] = Resampling(
                _share_among(arrays["found"], shown), (len(shown),), (0.0, 100.0)
            )
        for eps in CURVE[self.norm]:
            standing = withstands(arrays, self.norm, float(Fraction(eps)))
            found[f"{self.name}-{self.norm}@{eps}"] = Resampling(
                mean_of(100.0 * standing), (len(standing),), (0.0, 100.0)
            )
        return found


def _details(arrays: Arrays) -> dict[str, Any]:
    shown = arrays["found-source"]
    return {
        "misclassified": int((arrays["found"] & ~shown).sum()),
        "shown": int(shown.sum()),
        "refined-back": int((shown & ~arrays["found"]).sum()),
    }


def _share_among(which: NDArray[np.bool_], among: NDArray[np.bool_]) -> Statistic:
    """The share in % of some images among others, as a statistic of all; 0 where none of the others was drawn."""
    return lambda indices: 100 * (which & among)[indices].sum(axis=1) / np.maximum(among[indices].sum(axis=1), 1)
