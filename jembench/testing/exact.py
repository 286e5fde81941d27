"""A model known in closed form and images drawn from it: what samplers and metrics are checked on.

Legend: B images, K classes, C channels, H height, W width, D = C H W.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench import seeds
from jembench.api.live import ArrayDataset
from jembench.data.pixels import to_uint8
from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives, Split, SplitName
from jembench.models.energies import LogitModel

SPREAD = 0.25
"""The standard deviation of a pixel, of half the range of pixels."""

APART = 4.0
"""The approximate distance of two class means in standard deviations: nine of ten images can be classified."""

IMAGES: dict[SplitName, int] = {"train": 200, "test": 100}


class Mixture(LogitModel):
    """K isotropic Gaussians, a class each, all as likely: p(x, k) = N(x; m_k, s^2 I) / K.

    f(x)[k] = log p(x, k), so E(x) = -log p(x) and E(x, k) = -log p(x, k) without an unknown constant, and p(y|x) is
    exact. The bounds of pixels lie almost four s away from the means, and densities do not know of them: they leave out
    of account that what would lie beyond is clamped.

    Args:
        data: the shape, bounds and number of classes K; without classes there is one Gaussian.
    """

    def __init__(self, data: DataSpec) -> None:
        super().__init__(_JointLogDensity(data))
        self.data = data

    def log_prob(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None) -> Float[Tensor, " B"]:
        """log p(x), or log p(x|y); nats."""
        return -self.energy(x, y) if y is None else -self.energy(x, y) + math.log(_classes(self.data))

    def sample(self, n: int, y: Int[Tensor, " n"] | None = None, *, generator: Generator) -> Tensor:
        """n images (n, C, H, W), of the classes y if given, clamped to the bounds."""
        means = self.net.means
        assert isinstance(means, Tensor)
        device = generator.device
        if y is None:
            y = torch.randint(_classes(self.data), (n,), generator=generator, device=device)
        noise = torch.randn((n, self.data.dimensions), generator=generator, device=device)
        x = means.detach().to(device)[y] + deviation(self.data) * noise
        return x.view(n, *self.data.shape).clamp_(*self.data.bounds)


class _JointLogDensity(nn.Module):
    """log p(x, k) = -|x - m_k|^2 / (2 s^2) - D/2 log(2 pi s^2) - log K."""

    def __init__(self, data: DataSpec) -> None:
        super().__init__()
        draw = torch.randn((_classes(data), data.dimensions), generator=seeds.generator(0, "testing/means"))
        scale = APART * deviation(data) / math.sqrt(2 * data.dimensions)
        self.means = nn.Parameter(sum(data.bounds) / 2 + scale * draw)
        self.variance = deviation(data) ** 2
        self.constant = -data.dimensions / 2 * math.log(2 * math.pi * self.variance) - math.log(_classes(data))

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """log p(x, k), nats."""
        squares = (x.flatten(1)[:, None] - self.means).square().sum(dim=2)
        return self.constant - squares / (2 * self.variance)


def _classes(data: DataSpec) -> int:
    return max(1, data.num_classes)


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


def drawn_images(model: Mixture) -> ArrayDataset:
    """A dataset drawn from a mixture, the same each time: 200 images for training and 100 for the test.

    Classes take turns; without classes there are no labels.
    """

    def drawn(name: SplitName) -> Split:
        y = torch.arange(IMAGES[name]) % _classes(model.data)
        x = model.sample(len(y), y, generator=seeds.generator(0, f"testing/{name}"))
        return Split(to_uint8(x, model.data.bounds), y if model.data.num_classes else None)

    return ArrayDataset(model.data, {"train": drawn("train"), "test": drawn("test")})
