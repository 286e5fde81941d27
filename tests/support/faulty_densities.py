"""Densities that are none, each in its own way."""

from __future__ import annotations

import math

import torch
from sound_models import DiscretisedLogistic, Fitted, Mixture
from torch import nn

from jembench.errors import SpecError
from jembench.interfaces import Loss


class NotNormalised(Mixture):
    logits = energy = sample = None

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("log p(x) alone.")
        return 1.7 * super().log_prob(x)

    def training_loss(self, batch, negatives):
        nll = -self.log_prob(batch.x).mean()
        return Loss(nll, {"nll": nll.detach()})


class ScaleForgotten(Mixture):
    logits = energy = sample = None

    def log_prob(self, x, y=None):
        low, high = self.data.bounds
        return super().log_prob((x - low) / (high - low), y)


class MassOfLevels(DiscretisedLogistic):
    def log_prob(self, x, y=None):
        return super().log_prob(x, y) + len(self.mean) * math.log(self.bin)


class LevelsAround(nn.Module):
    """A softmax over the 256 levels of each pixel, in bins around the levels."""

    def __init__(self, data):
        super().__init__()
        self.low, self.high = data.bounds
        self.scores = nn.Parameter(torch.linspace(-1, 1, 256).square().expand(data.dimensions, -1).clone())

    def level(self, x):
        return (255 * (x - self.low) / (self.high - self.low)).round()

    def log_prob(self, x, y=None):
        if y is not None:
            raise SpecError("It has no classes.")
        level = self.level(x.flatten(1)).clamp(0, 255).long()
        return self.scores.log_softmax(dim=1).T.gather(0, level).sum(dim=1)


class LevelsBetween(LevelsAround):
    """In 256 bins from bound to bound."""

    def level(self, x):
        return (256 * (x - self.low) / (self.high - self.low)).floor()


class DensityOfLevels(Mixture):
    logits = energy = sample = None

    def log_prob(self, x, y=None):
        return super().log_prob(x, y) + self.data.dimensions * math.log(2 / 255)


class FitsByChance(Fitted):
    def fit(self, x, y, *, generator):
        super().fit(x, y, generator=generator)
        self.mean += 1e-3 * torch.rand(())


class FitsNothing(Fitted):
    def fit(self, x, y, *, generator):
        self.mean = torch.linspace(-0.5, 0.5, len(self.mean))[:, None].repeat(1, self.data.dimensions)
