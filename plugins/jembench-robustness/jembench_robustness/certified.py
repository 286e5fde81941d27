"""Certified robustness of a smoothed classifier, by randomised smoothing.

The smoothed classifier predicts the class that is most frequent under Gaussian noise: Cohen et al.
(2019), arXiv:1902.02918; for an adversarially trained classifier Salman et al. (2019),
arXiv:1906.04584.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from jembench.attacks import eps
from jembench.interfaces import Need
from jembench.metrics import attacks
from jembench.plugin import Estimate, Metric, Range, mean, share

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Measurement

COPIES = {"paper": 100_000, "quick": 1_000}
"""The number of noisy copies per image, by budget: as in Cohen et al. (2019), section 4, and for a
first result.
"""

SELECTION = 100
"""The number of predictions that select the class."""

_BLOCK = 1000  # noisy copies per pass; results do not depend on it


@dataclass(frozen=True, kw_only=True)
class Certified(Metric):
    """Randomised smoothing: certified accuracy in % within L2 radii, and the mean radius.

    ``sigma`` is the standard deviation of the noise, on [0, 1], and ``copies`` the number of noisy
    copies per image: 100,000, quick 1,000. The class is the most frequent of 100 predictions; its
    probability is at least p with confidence 1 - ``alpha``, by Clopper and Pearson from ``copies``
    further predictions. The radius is sigma * Phi^-1(p) if p is above one half; else the classifier
    abstains, which counts as wrong. Sizes are in units of a pixel's range. An image whose class is
    wrong counts with the radius 0 in the mean. Cohen et al. (2019), arXiv:1902.02918, Theorem 1 and
    the procedure Certify.
    """

    budget: Literal["paper", "quick"] = "paper"
    images: attacks.OptionalCount = None
    sigma: Annotated[float, Range(above=0)] = 0.25
    copies: attacks.OptionalCount = None
    alpha: Annotated[float, Range(above=0, below=1)] = 0.001
    name: ClassVar[str] = "certified"
    requires: ClassVar[frozenset[Need]] = frozenset({"logits", "labels"})

    @property
    def count(self) -> int:
        """The number of images."""
        return attacks.BUDGETS[self.budget].images if self.images is None else self.images

    @property
    def answers(self) -> int:
        """The number of noisy copies per image."""
        return COPIES[self.budget] if self.copies is None else self.copies

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The parts of the protocol."""
        return {
            "sigma": self.sigma,
            "selection": SELECTION,
            "copies": self.answers,
            "alpha": self.alpha,
            "norm": "l2",
        }

    def shard_size(self, device: str) -> int:
        """Return the number of images per shard, which is the same on every device.

        The noisy copies of one image fill a GPU, so that it needs no larger shards.
        """
        return attacks.SHARD

    @property
    def parts(self) -> int:
        """The number of shards, which different machines can certify."""
        return -(-self.count // self.shard_size("cpu"))

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Certify the images that all attacks use."""
        import torch

        from jembench.attacks.target import Target

        target = Target(evaluation.model, evaluation.data.spec)

        def work(shard: attacks.Shard) -> Mapping[str, Tensor]:
            counted = [
                self._count(target, *image)
                for image in zip(shard.x, shard.index.tolist(), strict=True)
            ]
            predicted, frequent = (torch.tensor(column) for column in zip(*counted, strict=True))
            return {"predicted": predicted, "radius": self.radius(frequent)}

        done = attacks.in_shards(self, evaluation, attacks.choose(evaluation, self.count), work)
        return self.measurement(
            evaluation, done.arrays, parts={"images": done.images}, details=done.details
        )

    def _count(self, target: Target, x: Tensor, index: int) -> tuple[int, int]:
        """Return the most frequent class under noise, and its count in further predictions."""
        from jembench.parts import seeds

        generator = seeds.generator(0, f"robustness/certified {index}")
        predicted = int(self._answers(target, x, SELECTION, generator).argmax())
        return predicted, int(self._answers(target, x, self.answers, generator)[predicted])

    def _answers(self, target: Target, x: Tensor, copies: int, generator: Generator) -> Tensor:
        """Count predictions of each class for noisy copies of an image (C, H, W): int64 (K,)."""
        import torch

        counts = torch.zeros(target.data.num_classes, dtype=torch.int64)
        for begin in range(0, copies, _BLOCK):
            noise = torch.randn(min(_BLOCK, copies - begin), *x.shape, generator=generator)
            classes = target.classes(x + self.sigma * noise.to(x.device))
            counts += torch.bincount(classes.cpu(), minlength=len(counts))
        return counts

    def radius(self, frequent: Tensor) -> Tensor:
        """Return the radii of classes with ``frequent`` (N,) predictions, float64 (N,).

        0: the classifier abstains.
        """
        import torch
        from scipy.stats import beta

        lower = beta.ppf(self.alpha, frequent.numpy(), self.answers - frequent.numpy() + 1)
        normal = NormalDist()
        return torch.tensor(
            [self.sigma * normal.inv_cdf(p) if p > 0.5 else 0.0 for p in lower], dtype=torch.float64
        )

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return certified accuracies, the mean radius and the share of abstentions."""
        correct, radius = arrays["predicted"] == arrays["label"], arrays["radius"]
        return {
            "certified-l2@0/255": share(correct & (radius > 0), "higher"),
            **{
                f"certified-l2@{size}": share(correct & (radius > eps.parse_eps(size)), "higher")
                for size in attacks.CURVE["l2"]
            },
            "certified-radius": mean(
                attacks.LEVELS * correct * radius, "1/255", "higher", (0.0, float("inf"))
            ),
            "abstained": share(radius == 0, "lower"),
        }
