"""From log p(x|y) of every class to log p(x), p(y|x) and samples.

    log p(x) = logsumexp_y log p(x|y) - log K,   p(y|x) = softmax_y log p(x|y)

Bayes' rule under a uniform prior over the classes. Both are normalised if log p(x|y) is.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from jembench.interfaces import DataSpec


class ByBayes:
    """What a class-conditional density says of images, for a model that has the two methods below.

    It stands before the model's own base class, whose methods are those of a density without classes.
    """

    data: DataSpec
    logits: Callable[[Tensor], Tensor]
    """(B, C, H, W) -> (B, K): log p(x|y) of every class, in nats."""
    draw: Callable[[Tensor, Generator], Tensor]
    """A sample of each of the classes (N,): (N, C, H, W)."""

    def log_prob(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None) -> Float[Tensor, " B"]:
        """log p(x|y) if labels are given, else log p(x); nats."""
        by_class = self.logits(x)
        if y is None:
            return by_class.logsumexp(dim=1) - math.log(self.data.num_classes)
        return by_class.gather(1, y[:, None]).squeeze(1)

    def sample(self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator) -> Float[Tensor, "N C H W"]:
        """n draws, of the classes y or of uniformly random ones, on the generator's device.

        Raises:
            Diverged: if one is not finite.
        """
        if y is None:
            y = torch.randint(self.data.num_classes, (n,), generator=generator, device=generator.device)
        return self.draw(y, generator)
