"""A model in closed form, and images drawn from it, for checks.

Legend: B images, N samples, K classes, C channels, H height, W width.
"""

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
"""The standard deviation of a pixel in units of half the range of pixels."""

APART = 4.0
"""The approximate distance of two class means in standard deviations: 90 % of the images are
classified correctly.
"""

IMAGES: dict[SplitName, int] = {"train": 200, "test": 100}


class Mixture(ByBayes, nn.Module):
    """A mixture of K isotropic Gaussians of equal weights, one per class.

    p(x, k) = N(x; m_k, s^2 I) / K.

    E(x) = -log p(x) and E(x, k) = -log p(x, k) without an unknown constant, and p(y|x) is exact.
    The bounds of pixels lie almost 4 s away from the means; the density ignores that samples are
    clamped to the bounds.

    Args:
        data: the shape, bounds and number of classes K; without classes there is one Gaussian.
    """

    def __init__(self, data: DataSpec) -> None:
        super().__init__()
        classes = max(1, data.num_classes)
        self.data = dataclasses.replace(data, num_classes=classes, class_names=())
        self.gaussians = ClassGaussians(data.shape, classes)
        generator = seeds.generator(0, "testing/means")
        draw = torch.randn((classes, data.dimensions), generator=generator)
        scale = APART * deviation(data) / math.sqrt(2 * data.dimensions)
        means = sum(data.bounds) / 2 + scale * draw
        with torch.no_grad():
            self.gaussians.mean.copy_(means.view(classes, *data.shape))
            self.gaussians.log_scale.fill_(math.log(deviation(data)))

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x|k) in nats."""
        return self.gaussians.log_prob(x)

    def energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return -log p(x), or -log p(x, y), in nats."""
        energy = -self.log_prob(x, y)
        return energy if y is None else energy + math.log(self.data.num_classes)

    @torch.no_grad()
    def draw(self, y: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """Draw images of the classes y, clamped to the bounds."""
        return self.gaussians.sample(y, generator).clamp_(*self.data.bounds)


def deviation(data: DataSpec) -> float:
    """Return the standard deviation s of a pixel, in the bounds' units."""
    low, high = data.bounds
    return SPREAD * (high - low) / 2


class WithMethods(nn.Module):
    """A model that has only some methods of another model."""

    def __init__(self, model: nn.Module, methods: Iterable[str]) -> None:
        super().__init__()
        self.model = model
        for method in methods:
            setattr(self, method, getattr(model, method))


class WithChains(WithMethods):
    """The mixture as a model that was trained with chains.

    It has no samples but the chains'.
    """

    chains: Chains = "marginal"

    def __init__(self, model: Mixture) -> None:
        super().__init__(model, ("logits", "energy", "log_prob"))

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Raise NotImplementedError, since the model is exact and not trained."""
        raise NotImplementedError


def drawn_images(data: DataSpec) -> LazyDataset:
    """Return a deterministic dataset drawn from a mixture.

    It has 200 training images and 100 test images.

    Classes alternate; without classes there are no labels.
    """
    model = Mixture(data)

    def drawn(name: SplitName) -> Split:
        y = torch.arange(IMAGES[name]) % model.data.num_classes
        x = model.sample(len(y), y, generator=seeds.generator(0, f"testing/{name}"))
        return Split(to_uint8(x, data.bounds), y if data.num_classes else None)

    return LazyDataset(data, drawn)
