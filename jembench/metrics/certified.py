"""How large a change in L2 a smoothed classifier provably withstands.

Randomised smoothing answers with the class that the model gives most often under Gaussian noise: Cohen et al. (2019),
arXiv:1902.02918; of an adversarially trained classifier Salman et al. (2019), arXiv:1906.04584.

Legend: N images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Generator, Tensor

from jembench import seeds
from jembench.attacks.target import Target
from jembench.catalog.spec import Scalar
from jembench.errors import SpecError
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.attacked import CURVE, LEVELS, Shard, check_attack, choose, in_shards, share
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.stats import mean_of

_BLOCK = 1000  # noisy copies that are drawn together; results do not depend on it


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedRobustness:
    """The accuracy that is certified within sizes of a change in L2, the mean radius, and how often it abstains.

    The class is the most frequent of ``selection`` answers; its probability is at least p with confidence 1 - alpha,
    by Clopper and Pearson from ``copies`` further answers. The radius is sigma * Phi^-1(p) if p is above one half; else
    the classifier abstains, which counts as wrong (Cohen et al., Theorem 1 and the procedure Certify). Sizes are in
    units of a pixel's range. An image whose class is wrong counts with the radius 0 in the mean.
    """

    sigma: float = 0.25  # of the noise, in units of a pixel's range
    images: int = 300
    selection: int = 100
    copies: int = 100_000
    alpha: float = 0.001
    resamples: int = 1000
    name: ClassVar[str] = "certified"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits"})

    def __post_init__(self) -> None:
        require_at_least(1, self.name, images=self.images, selection=self.selection, copies=self.copies)
        require_at_least(0, self.name, resamples=self.resamples)
        if self.sigma <= 0 or not 0 < self.alpha < 1:
            raise SpecError(
                f"{self.name} has sigma={self.sigma:g} and alpha={self.alpha:g}; sigma must be above 0, and alpha "
                "between 0 and 1."
            )

    @property
    def _options(self) -> dict[str, Scalar]:
        return {"sigma": self.sigma, "selection": self.selection, "copies": self.copies, "alpha": self.alpha}

    def passes(self, images: int) -> int:
        """An answer is a pass."""
        return min(images, self.images) * (self.selection + self.copies)

    def check(self, planned: Planned) -> None:
        """Whether there will be classes."""
        check_attack(planned, Defence())

    def compute(self, evaluation: Evaluation) -> Measurement:
        chosen = choose(evaluation, self.images)
        target = Target(evaluation.model, evaluation.data)

        def certify(shard: Shard) -> Mapping[str, Tensor]:
            found = [self._certified(target, x, index) for x, index in zip(shard.x, shard.index.tolist(), strict=True)]
            predicted, frequent = (torch.tensor(column) for column in zip(*found, strict=True))
            return {"predicted": predicted, "radius": self.radius(frequent)}

        found = in_shards(evaluation, self.name, self._options, Defence(), chosen, certify)
        rng = bootstrap_rng(evaluation, self.name)
        resamplings = self.resamplings(found.arrays)
        standing = _standing(found.arrays)
        return Measurement(
            protocol=protocol_id(self.name, evaluation, images=found.images, norm="l2", **self._options),
            values={label: share(which, "higher") for label, which in standing.items()}
            | {
                "certified-radius": bootstrapped(
                    resamplings["certified-radius"], rng, self.resamples, "1/255", "higher"
                ),
                "abstained": share(found.arrays["radius"] == 0, "lower"),
            },
            arrays=found.arrays,
            details=found.details,
        )

    def _certified(self, target: Target, x: Float[Tensor, "C H W"], index: int) -> tuple[int, int]:
        """The class that is most frequent under noise, and how many of the further answers say it."""
        generator = seeds.generator(0, f"robustness/certified {index}")
        predicted = int(_answers(target, x, self.sigma, self.selection, generator).argmax())
        return predicted, int(_answers(target, x, self.sigma, self.copies, generator)[predicted])

    def radius(self, frequent: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """The certified radius of a class that ``frequent`` of the copies vote for; 0: the classifier abstains."""
        lower = beta.ppf(self.alpha, frequent.numpy(), self.copies - frequent.numpy() + 1)
        normal = NormalDist()
        return torch.tensor([self.sigma * normal.inv_cdf(p) if p > 0.5 else 0.0 for p in lower], dtype=torch.float64)

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The statistics behind the values, of images."""
        n = len(arrays["radius"])
        right = np.where(arrays["predicted"] == arrays["label"], arrays["radius"], 0.0)
        shares = {**_standing(arrays), "abstained": arrays["radius"] == 0}
        return {
            **{label: Resampling(mean_of(100.0 * which), (n,), (0.0, 100.0)) for label, which in shares.items()},
            "certified-radius": Resampling(mean_of(LEVELS * right), (n,), (0.0, float("inf"))),
        }


def _answers(
    target: Target, x: Float[Tensor, "C H W"], sigma: float, copies: int, generator: Generator
) -> Int[Tensor, " K"]:
    """How many of the noisy copies of an image get each class."""
    counts = torch.zeros(target.data.num_classes, dtype=torch.int64)
    for begin in range(0, copies, _BLOCK):
        noise = torch.randn(min(_BLOCK, copies - begin), *x.shape, generator=generator)
        classes = target.classes(x + sigma * noise.to(x.device))
        counts += torch.bincount(classes.cpu(), minlength=len(counts))
    return counts


def _standing(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.bool_]]:
    """By label, the images whose class is right and certain within each size of the curve."""
    right = arrays["predicted"] == arrays["label"]
    return {f"certified-l2@{eps}": right & (arrays["radius"] > float(Fraction(eps))) for eps in ("0/255", *CURVE["l2"])}
