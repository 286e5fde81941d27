"""A model for every promise of training that breaks it and no other."""

from __future__ import annotations

import numpy as np
import torch
from sound_models import Contrastive, EnergyAlone
from torch import nn

from jembench.interfaces import Energies, Loss


class OtherChains(EnergyAlone):
    chains = "both"


class PassesNever(EnergyAlone):
    passes_per_loss = 0


class PassesHalf(EnergyAlone):
    passes_per_loss = 1.5


class LossOfOne(EnergyAlone):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=loss.total[None])


class AttachedParts(EnergyAlone):
    def training_loss(self, batch, negatives):
        total = self.value(batch.x).square().mean()
        return Loss(total, {"square": total})


class EnergyColumns(Contrastive):
    def training_loss(self, batch, negatives):
        energies = Energies(self.energy(batch.x)[:, None], self.energy(negatives.x)[:, None])
        total = energies.data.mean() - energies.samples.mean()
        return Loss(total, {"gap": total.detach()}, energies)


class PushesDataUp(Contrastive):
    def training_loss(self, batch, negatives):
        energies = Energies(self.energy(batch.x), self.energy(negatives.x))
        total = energies.samples.mean() - energies.data.mean()
        return Loss(total, {"gap": total.detach()}, energies)


class EnergiesOfNoLoss(Contrastive):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        return loss._replace(energies=Energies(self.energy(batch.x), self.energy(negatives.x)))


class Idle(EnergyAlone):
    def __init__(self, data):
        super().__init__(data)
        self.idle = nn.Parameter(torch.zeros(1))


class NumpyLoss(EnergyAlone):
    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=loss.total + 1e-6 * float(np.random.rand()))  # noqa: NPY002


class CountsLosses(EnergyAlone):
    calls = 0

    def training_loss(self, batch, negatives):
        CountsLosses.calls += 1
        loss = super().training_loss(batch, negatives)
        return loss._replace(total=loss.total - 1e-4 * CountsLosses.calls)


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
