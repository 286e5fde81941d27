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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from jembench.attacks import eps
from jembench.interfaces import Need
from jembench.metrics import attacks, shards
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


class Counted(NamedTuple):
    """The selected class of an image, and its count among noisy copies."""

    predicted: int
    frequent: int


@dataclass(frozen=True, kw_only=True)
class Certified(Metric):
    """Randomised smoothing: certified accuracy in % within L2 radii, and the mean radius.

    ``sigma`` is the standard deviation of the noise, on [0, 1], and ``copies`` the number of noisy
    copies per image: 100,000, or 1,000 with ``budget=quick``. The class is the most frequent of 100
    predictions; its probability is at least p with confidence 1 - ``alpha``, by Clopper and Pearson
    from ``copies`` further predictions. The radius is sigma * Phi^-1(p) if p is above one half;
    else the classifier abstains, which counts as wrong. Sizes are in units of a pixel's range. An
    image whose class is wrong counts with the radius 0 in the mean. Cohen et al. (2019),
    arXiv:1902.02918, Theorem 1 and the procedure Certify.
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
        if self.images is None:
            return attacks.BUDGETS[self.budget].images
        return self.images

    @property
    def answers(self) -> int:
        """The number of noisy copies per image."""
        if self.copies is None:
            return COPIES[self.budget]
        return self.copies

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
        """Return the number of images per shard, equal on every device.

        The noisy copies of one image fill a GPU, so that a GPU needs no larger shards.
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

        def work(shard: shards.Shard) -> Mapping[str, Tensor]:
            predicted = []
            frequent = []
            for x, index in zip(shard.x, shard.index.tolist(), strict=True):
                counted = self._count(target, x, index)
                predicted.append(counted.predicted)
                frequent.append(counted.frequent)
            radius = self.radius(torch.tensor(frequent))
            return {"predicted": torch.tensor(predicted), "radius": radius}

        chosen = shards.choose(evaluation, self.count)
        done = shards.in_shards(self, evaluation, chosen, work)
        parts = {"images": done.images}
        return self.measurement(evaluation, done.arrays, parts=parts, details=done.details)

    def _count(self, target: Target, x: Tensor, index: int) -> Counted:
        """Return the selected class, and its count among the noisy copies."""
        from jembench.parts import seeds

        generator = seeds.generator(0, f"robustness/certified {index}")
        selection = self._answers(target, x, SELECTION, generator)
        predicted = int(selection.argmax())
        answers = self._answers(target, x, self.answers, generator)
        return Counted(predicted, int(answers[predicted]))

    def _answers(self, target: Target, x: Tensor, copies: int, generator: Generator) -> Tensor:
        """Count the predictions of each class for noisy copies: int64 (K,)."""
        import torch

        counts = torch.zeros(target.data.num_classes, dtype=torch.int64)
        for begin in range(0, copies, _BLOCK):
            block = min(_BLOCK, copies - begin)
            noise = torch.randn(block, *x.shape, generator=generator).to(x.device)
            classes = target.classes(x + self.sigma * noise)
            counts += torch.bincount(classes.cpu(), minlength=len(counts))
        return counts

    def radius(self, frequent: Tensor) -> Tensor:
        """Return the radii of classes predicted ``frequent`` times, float64 (N,).

        A radius of 0 means that the classifier abstains.
        """
        import torch
        from scipy.stats import beta

        hits = frequent.numpy()
        lower = beta.ppf(self.alpha, hits, self.answers - hits + 1)
        normal = NormalDist()
        radii = [self.sigma * normal.inv_cdf(p) if p > 0.5 else 0.0 for p in lower]
        return torch.tensor(radii, dtype=torch.float64)

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return certified accuracies, the mean radius and the share of abstentions."""
        correct = arrays["predicted"] == arrays["label"]
        radius = arrays["radius"]
        estimates = {"certified-l2@0/255": share(correct & (radius > 0), "higher")}
        for size in attacks.CURVE["l2"]:
            certified = correct & (radius > eps.parse_eps(size))
            estimates[f"certified-l2@{size}"] = share(certified, "higher")
        levels = attacks.LEVELS * correct * radius
        estimates["certified-radius"] = mean(levels, "1/255", "higher", (0.0, float("inf")))
        estimates["abstained"] = share(radius == 0, "lower")
        return estimates
