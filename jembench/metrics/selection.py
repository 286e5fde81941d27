"""The images that a network is most sure of, or finds likeliest.

Confidence is max_y p(y|x). Which network's it is makes the difference between the Inception scores of Grathwohl et
al. (2020), Appendix: the model's own, and those of its reproducibility report, Tables 3 to 5: the Inception network's.

Legend: N images, K classes, n images kept.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jembench.errors import NotApplicable
from jembench.metrics.sample_protocol import SampleProtocol


def log_odds(logits: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """log(p / (1 - p)) of the likeliest class, float64: ordered as p, but distinct even where p rounds to 1."""
    ranked = logits.double().sort(dim=1, descending=True).values
    return ranked[:, 0] - ranked[:, 1:].logsumexp(dim=1)


def selected(
    asked: SampleProtocol, logits: Float[Tensor, "N K"], scores: Float[Tensor, " N"] | None = None
) -> Int[Tensor, " n"]:
    """Which images are kept, in ascending order; of equals the first.

    Args:
        asked: how many, and whether as many of each class.
        logits: those of the selecting network.
        scores: the highest are kept; None: the highest confidence.

    Raises:
        NotApplicable: if there are too few, in total or of some class.
    """
    count = asked.count(len(logits))
    ranking = (log_odds(logits) if scores is None else scores).argsort(descending=True, stable=True)
    if asked.per_class:
        classes = logits.argmax(dim=1)[ranking]
        return _as_many_of_each(ranking, classes, logits.shape[1], count).sort().values
    return ranking[:count].sort().values


def _as_many_of_each(
    ranking: Int[Tensor, " N"], classes: Int[Tensor, " N"], num_classes: int, count: int
) -> Int[Tensor, " n"]:
    each = count // num_classes
    sizes = classes.bincount(minlength=num_classes)
    if each == 0 or int(sizes.min()) < each:
        rarest = int(sizes.argmin())
        raise NotApplicable(
            f"The {count} most confident images, as many of each of {num_classes} classes, are {each} a class, and the "
            f"network that selects sees {int(sizes[rarest])} of class {rarest}. Choose another top, or "
            "per_class=false."
        )
    return torch.cat([ranking[classes == number][:each] for number in range(num_classes)])
