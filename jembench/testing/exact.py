"""A model known in closed form and images drawn from it: what samplers and metrics are checked on.

Legend: B images, N samples, K classes, C channels, H height, W width.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench import seeds
from jembench.data.datasets import LazyDataset
from jembench.data.pixels import to_uint8
from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives, Split, SplitName
from jembench.models.densities import ByBayes, ClassGaussians

SPREAD = 0.25
"""The standard deviation of a pixel, of half the range of pixels."""

APART = 4.0
"""The approximate distance of two class means in standard deviations: nine of ten images can be classified."""

IMAGES: dict[SplitName, int] = {"train": 200, "test": 100}


class Mixture(ByBayes, nn.Module):
    """K isotropic Gaussians, a class each, all as likely: p(x, k) = N(x; m_k, s^2 I) / K.

    E(x) = -log p(x) and E(x, k) = -log p(x, k) without an unknown constant, and p(y|x) is exact. The bounds of pixels
    lie almost four s away from the means, and densities do not know of them: they leave out of account that what would
    lie beyond is clamped.

    Args:
        data: the shape, bounds and number of classes K; without classes there is one Gaussian.
    """

    def __init__(self, data: DataSpec) -> None:
        super().__init__()
        classes = max(1, data.num_classes)
        self.data = dataclasses.replace(data, num_classes=classes, class_names=())
        self.gaussians = ClassGaussians(data.shape, classes)
        draw = torch.randn((classes, data.dimensions), generator=seeds.generator(0, "testing/means"))
        scale = APART * deviation(data) / math.sqrt(2 * data.dimensions)
        with torch.no_grad():
            self.gaussians.mean.copy_((sum(data.bounds) / 2 + scale * draw).view(classes, *data.shape))
            self.gaussians.log_scale.fill_(math.log(deviation(data)))

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """log p(x|k), nats."""
        return self.gaussians.log_prob(x)

    def energy(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None) -> Float[Tensor, " B"]:
        """-log p(x), or -log p(x, y); nats."""
        return -self.log_prob(x, y) + (0 if y is None else math.log(self.data.num_classes))

    @torch.no_grad()
    def draw(self, y: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """Images of the classes y, clamped to the bounds."""
        return self.gaussians.sample(y, generator).clamp_(*self.data.bounds)


def deviation(data: DataSpec) -> float:
    """The standard deviation s of a pixel, in the units of the bounds."""
    low, high = data.bounds
    return SPREAD * (high - low) / 2


class Exposing(nn.Module):
    """A model that has some of another's methods, and nothing else of it."""

    def __init__(self, model: nn.Module, methods: Iterable[str]) -> None:
        super().__init__()
        self.model = model
        for method in methods:
            setattr(self, method, getattr(model, method))


class ByChains(Exposing):
    """A model as after training with chains: it has no images but theirs."""

    chains: Chains = "marginal"

    def __init__(self, model: Mixture) -> None:
        super().__init__(model, ("logits", "energy", "log_prob"))

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """There is nothing to be learned: the model is exact."""
        raise NotImplementedError


def drawn_images(data: DataSpec) -> LazyDataset:
    """A dataset drawn from a mixture, the same each time: 200 images for training and 100 for the test.

    Classes take turns; without classes there are no labels.
    """
    model = Mixture(data)

    def drawn(name: SplitName) -> Split:
        y = torch.arange(IMAGES[name]) % model.data.num_classes
        x = model.sample(len(y), y, generator=seeds.generator(0, f"testing/{name}"))
        return Split(to_uint8(x, data.bounds), y if data.num_classes else None)

    return LazyDataset(data, drawn)
