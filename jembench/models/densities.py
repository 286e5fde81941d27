"""Common parts of normalised densities.

They are Bayes' rule over classes, the prior of latents, and initialisation by a batch.

    log p(x) = logsumexp_y log p(x|y) - log K,   p(y|x) = softmax_y log p(x|y)

This is Bayes' rule under a uniform prior over the classes. Both are normalised if log p(x|y) is
normalised.

Legend: B batch, N samples, C channels, H height, W width, K classes or components.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench.interfaces import DataSpec


class ByBayes:
    """Density, posterior and samples of a class-conditional model.

    Of the methods, a model only defines ``logits`` and ``draw``.

    A model inherits from this class before the base class that has the methods of a density without
    classes.
    """

    data: DataSpec
    logits: Callable[[Tensor], Tensor]
    """(B, C, H, W) -> (B, K): log p(x|y) of every class, in nats; their softmax is p(y|x)."""
    draw: Callable[[Tensor, Generator], Tensor]
    """Classes (N,) -> samples (N, C, H, W), one for each class given."""

    def log_prob_by_class(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x|y) of every class, in nats.

        A model whose logits omit a term that all classes share overrides this method.
        """
        return self.logits(x)

    def log_prob(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return log p(x|y) if labels are given, else log p(x), in nats."""
        by_class = self.log_prob_by_class(x)
        if y is None:
            return by_class.logsumexp(dim=1) - math.log(self.data.num_classes)
        return by_class.gather(1, y[:, None]).squeeze(1)

    def sample(
        self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator
    ) -> Float[Tensor, "N C H W"]:
        """Draw n images, of the classes y or of uniformly random classes.

        They are on the generator's device.

        Raises:
            Diverged: if an image is not finite.
        """
        if y is None:
            y = torch.randint(
                self.data.num_classes, (n,), generator=generator, device=generator.device
            )
        return self.draw(y, generator)


class ClassGaussians(nn.Module):
    """Normal distributions N(mean_k, scale_k^2), one for each value of a latent.

    They are standard normal at first.

    Args:
        shape: (C, H, W) of the latents.
        components: K.
    """

    def __init__(self, shape: tuple[int, int, int], components: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(components, *shape))
        self.log_scale = nn.Parameter(torch.zeros(components, *shape))

    def log_prob(self, z: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(z|k) of every component, in nats."""
        standard = (z[:, None] - self.mean) * torch.exp(-self.log_scale)
        densities = -0.5 * standard.square() - self.log_scale - 0.5 * math.log(2 * math.pi)
        return densities.flatten(2).sum(dim=2)

    def sample(self, k: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """Draw a latent from each of the components k."""
        mean, scale = self.mean[k], self.log_scale[k].exp()
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return mean + scale * noise


class FirstBatch(nn.Module):
    """A record of whether a network's first batch is over.

    It is part of the network's state, so that a loaded network is not initialised again.
    ``is_to_come`` is the opposite, on the host, which is read without waiting for the device.
    """

    over: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("over", torch.tensor(False))
        self.is_to_come = True
        self.register_load_state_dict_post_hook(_copy_to_host)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Record that the first batch is over."""
        self.over.fill_(True)
        self.is_to_come = False


def _copy_to_host(first: Any, _: Any) -> None:
    first.is_to_come = not bool(first.over)
