"""A model for every promise that breaks it and no other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from sound_models import Contrastive, EnergyAlone, Finished, Mixture
from torch.nn import functional as F

from jembench.catalog.options import pretrained
from jembench.errors import SpecError
from jembench.interfaces import Loss
from jembench.models.energies import marginal_energy
from jembench.testing import expected_failures


def fails(data):
    raise ValueError("no such thing")


def gives_a_number(data):
    return 3


def fractional_default(data, *, width: int = 2.5):
    return Mixture(data)


def text_for_none(data, *, net: str = None):  # noqa: RUF013
    return Mixture(data)


def positional_option(data, width=8):
    return Mixture(data)


def made_for_digits_alone(data):
    return _Ten(data)


class DrawsForDigitsAlone(Mixture):
    def sample(self, n, y=None, *, generator):
        return torch.tanh(super().sample(n, y, generator=generator) - 0.5)


_COUNT = itertools.count()


def counts_models(data):
    model = Mixture(data)
    model.log_scale.data += 0.01 * next(_COUNT)
    return model


def seeds_torch(data):
    torch.manual_seed(0)
    return Mixture(data)


def seeds_numpy(data):
    np.random.seed(0)  # noqa: NPY002
    return Mixture(data)


@expected_failures({"samples-within-bounds": "It is drawn on a larger canvas on purpose."})
def excused(data):
    return Unclamped(data)


@expected_failures({"samples-within-bounds": "It was so before it was mended."})
def excused_for_nothing(data):
    return Mixture(data)


class Mute(Mixture):
    logits = log_prob = energy = sample = None

    def training_loss(self, batch, negatives):
        total = -self.by_class(batch.x).mean()
        return Loss(total, {"nll": total.detach()})


class Untrainable(EnergyAlone):
    training_loss = None


class _Ten(Mixture):
    def log_prob(self, x, y=None):
        x = x.reshape(len(x), 64)
        return super().log_prob(x, y)


class OneLogitMore(Contrastive):
    chains = "none"
    energy = None

    def logits(self, x):
        return F.pad(self(x), (0, 1))

    def training_loss(self, batch, negatives):
        total = F.cross_entropy(self.logits(batch.x_labelled), batch.y_labelled)
        return Loss(total, {"nll": total.detach()})


class EnergyColumn(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x, y)[:, None]


class DensityColumn(Finished):
    def log_prob(self, x, y=None):
        return super().log_prob(x, y)[:, None]


@pretrained()
def density_column(data):
    return DensityColumn(data)


class FlatSamples(Mixture):
    def sample(self, n, y=None, *, generator):
        return super().sample(n, y, generator=generator).flatten(1)


class Unclamped(Mixture):
    def sample(self, n, y=None, *, generator):
        return 3 * super().sample(n, y, generator=generator)


class NoLabelArgument(EnergyAlone):
    def energy(self, x):
        return self.value(x)


class LabelsNotRefused(EnergyAlone):
    def energy(self, x, y=None):
        if y is not None:
            raise KeyError("y")
        return self.value(x)


class Double(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x, y).double()


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


class Views(EnergyAlone):
    def value(self, x):
        return self.net(x.view(len(x), -1)).squeeze(1)


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


class SamplesFromItself(Mixture):
    calls = 0

    def sample(self, n, y=None, *, generator):
        self.calls += 1
        own = torch.Generator().manual_seed(self.calls + (generator.initial_seed() << 8) % 2**62)
        return super().sample(n, y, generator=own)


class DrawsGlobally(EnergyAlone):
    def energy(self, x, y=None):
        torch.rand(1)
        return super().energy(x, y)


class SwitchesToEvaluation(EnergyAlone):
    def energy(self, x, y=None):
        self.eval()
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


class ChangesTheBatch(EnergyAlone):
    def training_loss(self, batch, negatives):
        batch.x.clamp_(0)
        return super().training_loss(batch, negatives)


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


class Freezes(EnergyAlone):
    def energy(self, x, y=None):
        self.net[1].requires_grad_(False)
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
        return marginal_energy(reversed_) if y is None else -reversed_.gather(1, y[:, None]).squeeze(1)


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


class DensityOfNoClass(Mixture):
    logits = energy = sample = None

    def log_prob(self, x, y=None):
        return super().log_prob(x)


class SamplesOfAnyClass(Mixture):
    def sample(self, n, y=None, *, generator):
        return super().sample(n, generator=generator)


class Detached(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(x.detach(), y)


class Flat(EnergyAlone):
    def energy(self, x, y=None):
        return super().energy(0 * x, y)


class HalfDetached(EnergyAlone):
    def energy(self, x, y=None):
        return (super().energy(x, y) + super().energy(x.detach(), y)) / 2


class Hides(EnergyAlone):
    def __init__(self, data):
        super().__init__(data)
        self.offset = torch.rand(()).item()

    def energy(self, x, y=None):
        return super().energy(x, y) + self.offset


class Twin(EnergyAlone):
    def __deepcopy__(self, memo):
        return self


class HoldsAGenerator(EnergyAlone):
    def __deepcopy__(self, memo):
        raise TypeError("cannot pickle 'torch.Generator' object")
