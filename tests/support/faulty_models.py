"""A model for every promise that breaks it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from sound_models import Contrastive, EnergyAlone, Fitted, Mixture
from torch import nn

from jembench.errors import SpecError
from jembench.interfaces import Energies, Loss, Phase
from jembench.models.energies import marginal_energy


def gives_a_number(data):
    return 3


def made_for_digits_alone(data):
    return _Ten(data)


_COUNT = itertools.count()


def counts_models(data):
    model = Mixture(data)
    model.log_scale.data += 0.01 * next(_COUNT)
    return model


class Mute(Mixture):
    logits = log_prob = energy = sample = None

    def training_loss(self, batch, negatives):
        total = -self.by_class(batch.x).mean()
        return Loss(total, {"nll": total.detach()})


class _Ten(Mixture):
    def log_prob(self, x, y=None):
        x = x.reshape(len(x), 64)
        return super().log_prob(x, y)


class EnergyColumn(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x, y)[:, None]


class Unclamped(Mixture):
    def sample(self, n, y=None, *, generator):
        return 3 * super().sample(n, y, generator=generator)


class NoLabelArgument(Mixture):
    def energy(self, x):
        return super().energy(x)


class NotANumber(Mixture):
    def sample(self, n, y=None, *, generator):
        images = super().sample(n, y, generator=generator)
        images[0, 0, 0, 0] = math.nan
        return images


class Squeezes(EnergyAlone):
    def value(self, x):
        return self.net(x).squeeze()


class LooksAround(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x, y) + 0.01 * x.mean().detach()


class StaysBehind(EnergyAlone):
    def __init__(self, data):
        super().__init__(data)
        self.offset = torch.ones(1)

    def energy(self, x, y=None):
        return super().energy(x, y) + self.offset


class ChangesItsMind(EnergyAlone):
    calls = 0

    def energy(self, x, y=None):
        self.calls += 1
        return super().energy(x, y) * (1 + 1e-6 * (self.calls % 2))


class SamplesAlike(Mixture):
    def sample(self, n, y=None, *, generator):
        return super().sample(n, y, generator=torch.Generator(generator.device).manual_seed(0))


class DrawsGlobally(EnergyAlone):
    def energy(self, x, y=None):
        torch.rand(1)
        return super().energy(x, y)


class SwitchesInTheLoss(EnergyAlone):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        self.net.eval()
        return loss


class ChangesImages(EnergyAlone):
    def energy(self, x, y=None):
        energy = super().energy(x.clone(), y)
        x.data.add_(1)
        return energy


class Remembers(EnergyAlone):
    def __init__(self, data):
        super().__init__(data)
        self.register_buffer("seen", torch.tensor(0))

    def energy(self, x, y=None):
        self.seen += len(x)
        return super().energy(x, y)


class LeavesGradients(EnergyAlone):
    def energy(self, x, y=None):
        with torch.enable_grad():
            self.value(x.detach()).sum().backward()
        return super().energy(x, y)


class HighEnergyIsLikely(Mixture):
    def energy(self, x, y=None):
        if y is not None:
            raise SpecError("E(x) alone.")
        return self.log_prob(x)


class LowestOfAllClasses(Mixture):
    log_prob = sample = None

    def energy(self, x, y=None):
        energies = -self.by_class(x)
        return energies.amin(dim=1) if y is None else energies.gather(1, y[:, None]).squeeze(1)

    def training_loss(self, batch, negatives):
        nll = -self.by_class(batch.x_labelled).mean()
        return Loss(nll, {"nll": nll.detach()})


class FollowsNot(Contrastive):
    energy_follows_from_logits = True

    def energy(self, x, y=None):
        if y is not None:
            raise SpecError("E(x) alone.")
        return -marginal_energy(self.logits(x))


class OtherClassEnergies(Contrastive):
    def energy(self, x, y=None):
        reversed_ = -self.logits(x)
        return (
            marginal_energy(reversed_) if y is None else -reversed_.gather(1, y[:, None]).squeeze(1)
        )


class Tempered(Mixture):
    energy = None

    def logits(self, x):
        return 0.5 * self.by_class(x)


class PriorForgotten(Mixture):
    energy = None

    def log_prob(self, x, y=None):
        return self.by_class(x).logsumexp(dim=1) if y is None else super().log_prob(x, y)


class EnergyOfNoClass(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x)


class SamplesOfAnyClass(Mixture):
    def sample(self, n, y=None, *, generator):
        return super().sample(n, generator=generator)


class Detached(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x.detach(), y)


class HalfDetached(EnergyAlone):
    def energy(self, x, y=None):
        return (super().energy(x, y) + super().energy(x.detach(), y)) / 2


class Hides(EnergyAlone):
    def __init__(self, data):
        super().__init__(data)
        self.offset = torch.rand(()).item()

    def energy(self, x, y=None):
        return super().energy(x, y) + self.offset


class LossOfOne(EnergyAlone):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=loss.total[None])


class PushesDataUp(Contrastive):
    def training_loss(self, batch, negatives):
        energies = Energies(self.energy(batch.x), self.energy(negatives.x))
        total = energies.samples.mean() - energies.data.mean()
        return Loss(total, {"gap": total.detach()}, energies)


class Idle(EnergyAlone):
    def __init__(self, data):
        super().__init__(data)
        self.idle = nn.Parameter(torch.zeros(1))


class IdleInItsPhase(Idle):
    def phases(self):
        return {"second": Phase([self.idle], self.training_loss)}


class UnseededLoss(EnergyAlone):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=loss.total + 1e-6 * np.random.default_rng().random())


class TakesXForLabelled(Contrastive):
    def training_loss(self, batch, negatives):
        return super().training_loss(batch._replace(x_labelled=batch.x), negatives)


class Ascends(EnergyAlone):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=2 * loss.total.detach() - loss.total)


class CountsInPython(EnergyAlone):
    calls = 0

    def training_loss(self, batch, negatives):
        self.calls += 1
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=loss.total * (1 + 1 / self.calls))


class NotNormalised(Mixture):
    logits = energy = sample = None

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("log p(x) alone.")
        return 1.7 * super().log_prob(x)

    def training_loss(self, batch, negatives):
        nll = -self.log_prob(batch.x).mean()
        return Loss(nll, {"nll": nll.detach()})


class LevelsBetween(nn.Module):
    """A softmax over the 256 levels of each pixel, in bins from bound to bound."""

    def __init__(self, data):
        super().__init__()
        self.low, self.high = data.bounds
        self.scores = nn.Parameter(
            torch.linspace(-1, 1, 256).square().expand(data.dimensions, -1).clone()
        )

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("It has no classes.")
        level = (
            (256 * (x.flatten(1) - self.low) / (self.high - self.low)).floor().clamp(0, 255).long()
        )
        return self.scores.log_softmax(dim=1).T.gather(0, level).sum(dim=1)


class FitsByChance(Fitted):
    def fit(self, x, y, *, generator):
        super().fit(x, y, generator=generator)
        self.mean += 1e-3 * torch.rand(())


class FitsNothing(Fitted):
    def fit(self, x, y, *, generator):
        self.mean = torch.linspace(-0.5, 0.5, len(self.mean))[:, None].repeat(
            1, self.data.dimensions
        )
