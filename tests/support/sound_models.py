"""Small models that keep every promise."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.distributions import Normal

from jembench.catalog.options import pretrained
from jembench.errors import SpecError
from jembench.interfaces import Loss
from jembench.models.densities import ByBayes
from jembench.models.energies import LogitModel
from jembench.models.objective import Weights, hybrid_loss


class Mixture(nn.Module):
    """A Gaussian for each class: everything that a model can do."""

    chains = "none"

    def __init__(self, data):
        super().__init__()
        self.data = data
        self.mean = nn.Parameter(0.1 * torch.randn(data.num_classes, data.dimensions))
        self.log_scale = nn.Parameter(torch.zeros(data.num_classes))

    def by_class(self, x):
        standard = (x.flatten(1)[:, None] - self.mean) * torch.exp(-self.log_scale)[:, None]
        constant = self.log_scale + 0.5 * math.log(2 * math.pi)
        return -0.5 * standard.square().sum(dim=2) - constant * self.data.dimensions

    def logits(self, x):
        return self.by_class(x)

    def log_prob(self, x, y=None):
        if y is None:
            return self.by_class(x).logsumexp(dim=1) - math.log(self.data.num_classes)
        return self.by_class(x).gather(1, y[:, None]).squeeze(1)

    def energy(self, x, y=None):
        return -self.log_prob(x, y)

    def sample(self, n, y=None, *, generator):
        device = generator.device
        if y is None:
            y = torch.randint(self.data.num_classes, (n,), generator=generator, device=device)
        noise = torch.randn(n, self.data.dimensions, generator=generator, device=device)
        drawn = self.mean[y] + self.log_scale.exp()[y][:, None] * noise
        return drawn.view(n, *self.data.shape).clamp(*self.data.bounds)

    def training_loss(self, batch, negatives):
        nll = -self.log_prob(batch.x_labelled, batch.y_labelled).mean()
        return Loss(nll, {"nll": nll.detach()})


class Contrastive(LogitModel):
    """A classifier trained with chains on E(x)."""

    chains = "marginal"

    def __init__(self, data):
        layers = nn.Linear(data.dimensions, 8), nn.SiLU(), nn.Linear(8, data.num_classes)
        super().__init__(nn.Sequential(nn.Flatten(), *layers))

    def training_loss(self, batch, negatives):
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1, marginal=1))


class EnergyAlone(nn.Module):
    """E(x) and no classes."""

    chains = "none"

    def __init__(self, data):
        super().__init__()
        self.data = data
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(data.dimensions, 8), nn.SiLU(), nn.Linear(8, 1)
        )

    def value(self, x):
        return self.net(x).squeeze(1)

    def energy(self, x, y=None):
        if y is not None:
            raise SpecError("It has no classes.")
        return self.value(x)

    def training_loss(self, batch, negatives):
        total = self.value(batch.x).square().mean()
        return Loss(total, {"square": total.detach()})


class Mixes(Contrastive):
    """A classifier of images that others are mixed into: labels are of the mixture, which is of
    both kinds.

    Batch norm, dropout, noise of its own and a scale set by the first batch stand in nobody's way.
    """

    def __init__(self, data):
        super().__init__(data)
        self.net = nn.Sequential(nn.BatchNorm2d(data.shape[0]), nn.Dropout(0.2), self.net)
        self.register_buffer("scale", torch.tensor(0.0))

    def training_loss(self, batch, negatives):
        if not self.scale:
            self.scale += batch.x.std()
        mixed = 0.7 * batch.x_labelled + 0.3 * batch.x + 0.01 * torch.randn_like(batch.x)
        return super().training_loss(batch._replace(x_labelled=mixed / self.scale), negatives)


class HeavyTailed(nn.Module):
    """A Cauchy density for each pixel: a thousandth of its mass is hundreds of widths away."""

    chains = "none"

    def __init__(self, data):
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(data.dimensions))
        self.log_width = nn.Parameter(torch.full((data.dimensions,), -1.0))

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("It has no classes.")
        standard = (x.flatten(1) - self.centre) * torch.exp(-self.log_width)
        return -(standard.square().log1p() + self.log_width + math.log(math.pi)).sum(dim=1)

    def training_loss(self, batch, negatives):
        nll = -self.log_prob(batch.x).mean()
        return Loss(nll, {"nll": nll.detach()})


class DiscretisedLogistic(nn.Module):
    """A logistic for each pixel whose probability is spread evenly over the bin of width w around
    x.

    The outermost levels have the tails as well, so that over all of space there is no integral.
    """

    chains = "none"

    def __init__(self, data):
        super().__init__()
        self.low, self.high = data.bounds
        self.bin = (self.high - self.low) / 255
        self.mean = nn.Parameter(torch.full((data.dimensions,), (self.low + self.high) / 2))
        self.log_scale = nn.Parameter(
            torch.full((data.dimensions,), math.log((self.high - self.low) / 4))
        )

    def log_mass(self, x):
        x = x.flatten(1)
        above, below = (
            torch.sigmoid((x + half - self.mean) * torch.exp(-self.log_scale))
            for half in (self.bin / 2, -self.bin / 2)
        )
        above = torch.where(x > self.high - self.bin / 4, 1.0, above)
        below = torch.where(x < self.low + self.bin / 4, 0.0, below)
        return (above - below).log().sum(dim=1)

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("It has no classes.")
        return self.log_mass(x) - len(self.mean) * math.log(self.bin)

    def training_loss(self, batch, negatives):
        nll = -self.log_prob(batch.x).mean()
        return Loss(nll, {"nll": nll.detach()})


class Network(nn.Module):
    """None of a model's methods: it is taken for a classifier."""

    def __init__(self, data):
        super().__init__()
        self.net = nn.Linear(data.dimensions, data.num_classes)

    def forward(self, x):
        return self.net(x.flatten(1))


class Finished(nn.Module):
    """A density that is not trained here, of its bounds: uniform but for a slope."""

    def __init__(self, data):
        super().__init__()
        self.register_buffer("slope", torch.linspace(-0.1, 0.1, data.dimensions))

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("It has no classes.")
        slope = self.slope
        return (x.flatten(1) * slope + torch.log(slope / torch.sinh(slope) / 2)).sum(dim=1)


@pretrained
def finished(data):
    return Finished(data)


class Fitted(ByBayes, nn.Module):
    """A Gaussian with a variance for each class, fitted with the generator's jitter."""

    def __init__(self, data):
        super().__init__()
        self.data = data
        self.register_buffer("mean", torch.zeros(data.num_classes, data.dimensions))
        self.register_buffer("seen", torch.zeros(0, data.dimensions))

    def fit(self, x, y, *, generator):
        jitter = 1e-3 * torch.randn(self.mean.shape, generator=generator)
        self.mean = (
            torch.stack([x[y == k].flatten(1).mean(0) for k in range(len(self.mean))]) + jitter
        )
        self.seen = x.flatten(1)

    def logits(self, x):
        return Normal(self.mean, 0.5).log_prob(x.flatten(1)[:, None]).sum(2)

    def draw(self, y, generator):
        pixels = self.mean[y] + 0.1 * torch.randn(len(y), self.data.dimensions, generator=generator)
        return pixels.view(-1, *self.data.shape).clamp(*self.data.bounds)
