"""How large a change in L2 a smoothed classifier provably withstands.

Randomised smoothing answers with the class that the model gives most often under Gaussian noise: Cohen et al. (2019),
arXiv:1902.02918; of an adversarially trained classifier Salman et al. (2019), arXiv:1906.04584.

Legend: N images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import beta
from torch import Generator, Tensor

from jembench import progress, seeds
from jembench.attacks.eps import parse_eps
from jembench.attacks.target import Target
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.attacked import CURVE, LEVELS, Shard, choose, in_shards
from jembench.metrics.attacks import Certified
from jembench.metrics.estimates import Arrays, Estimate, mean, measurement, share

_BLOCK = 1000  # noisy copies that are drawn together; results do not depend on it


def certified(metric: Certified, evaluation: Evaluation) -> Measurement:
    """Certify the images that every attack takes."""
    target = Target(evaluation.model, evaluation.data.spec)

    def certify(shard: Shard) -> Mapping[str, Tensor]:
        images = progress.track(list(zip(shard.x, shard.index.tolist(), strict=True)), "", "images")
        counted = [_count(metric, target, x, index) for x, index in images]
        predicted, frequent = (torch.tensor(column) for column in zip(*counted, strict=True))
        return {"predicted": predicted, "radius": radius(metric, frequent)}

    chosen = choose(evaluation, metric.spent.images)
    found = in_shards(metric, evaluation, chosen, certify)
    parts = {"images": found.images, "norm": "l2", **metric.options}
    return measurement(metric, evaluation, parts, metric.estimates(found.arrays), found.arrays, found.details)


def _count(metric: Certified, target: Target, x: Float[Tensor, "C H W"], index: int) -> tuple[int, int]:
    """The class that is most frequent under noise, and how many of the further answers say it."""
    generator = seeds.generator(0, f"robustness/certified {index}")
    predicted = int(_answers(target, x, metric.sigma, metric.selection, generator).argmax())
    return predicted, int(_answers(target, x, metric.sigma, metric.spent.copies, generator)[predicted])


def radius(metric: Certified, frequent: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The certified radius of a class that ``frequent`` of the copies vote for; 0: the classifier abstains."""
    lower = beta.ppf(metric.alpha, frequent.numpy(), metric.spent.copies - frequent.numpy() + 1)
    normal = NormalDist()
    return torch.tensor([metric.sigma * normal.inv_cdf(p) if p > 0.5 else 0.0 for p in lower], dtype=torch.float64)


def certified_estimates(metric: Certified, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of images: certain of their class within each size of the curve, mean radius, abstentions."""
    right, certain = arrays["predicted"] == arrays["label"], arrays["radius"]
    return {
        "certified-l2@0/255": share(right & (certain > 0), "higher"),
        **{f"certified-l2@{eps}": share(right & (certain > parse_eps(eps)), "higher") for eps in CURVE["l2"]},
        "certified-radius": mean(LEVELS * np.where(right, certain, 0.0), "1/255", "higher", (0.0, float("inf"))),
        "abstained": share(certain == 0, "lower"),
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
