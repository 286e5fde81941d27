"""A sampler for every promise that breaks it."""

from __future__ import annotations

import time

import torch
from sound_samplers import Toy

from jembench.interfaces import ChainState


class WithoutKept(Toy):
    kept = property()


class StartsInLevels(Toy):
    def start(self, n, y=None, *, generator):
        state = super().start(n, y, generator=generator)
        return state._replace(x=127.5 * (state.x + 1))


class CountsNothing(Toy):
    def step(self, state, grad_energy, generator):
        moved = super().step(state, grad_energy, generator)
        return moved._replace(steps=0)

    def finish(self, state):
        super().finish(state._replace(steps=self.steps))


class KeepsTheGraph(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(
            state._replace(x=state.x.detach().requires_grad_()), grad_energy, generator
        )


class ForgetsLabels(Toy):
    def step(self, state, grad_energy, generator):
        moved = super().step(state, grad_energy, generator)
        return moved._replace(y=None)


class AsksWithoutLabels(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(state, lambda x, y: grad_energy(x, None), generator)


class MovesInPlace(Toy):
    def step(self, state, grad_energy, generator):
        moved = super().step(state, grad_energy, generator)
        state.x.copy_(moved.x)
        return moved


class InformsInPlace(Toy):
    def inform(self, train):
        super().inform(train)
        train.images.zero_()


class DividesBy0(Toy):
    def move(self, x, grad, generator):
        norm = grad.flatten(1).norm(dim=1)[:, None, None, None]
        return super().move(x, grad * norm / norm, generator)


class Uphill(Toy):
    def move(self, x, grad, generator):
        return super().move(x, -grad, generator)


class LimitsTheBatch(Toy):
    def move(self, x, grad, generator):
        return super().move(x, grad / grad.norm().clamp(min=1), generator)


class ByTheClock(Toy):
    def noise(self, shape, generator):
        return super().noise(shape, generator) + 1e-3 * (time.perf_counter_ns() % 1000)


class AlwaysTheSame(Toy):
    def start(self, n, y=None, *, generator):
        return super().start(n, y, generator=torch.Generator().manual_seed(0))


class Global(Toy):
    def noise(self, shape, generator):
        return super().noise(shape, generator) + 0.01 * torch.randn(shape)


class CountsStarts(Toy):
    """Starts whose draws depend on how many there were."""

    def __init__(self, data):
        super().__init__(data)
        self.starts = torch.tensor(0)

    def start(self, n, y=None, *, generator):
        self.starts = self.starts + 1
        state = super().start(n, y, generator=generator)
        return state._replace(x=(state.x + 1e-3 * self.starts).clamp(*self.data.bounds))

    def state_dict(self):
        return super().state_dict() | {"starts": self.starts}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.starts = state["starts"]


class StateOfNumbers(Toy):
    def state_dict(self):
        return super().state_dict() | {"size": len(self.images)}


class ForgetsItsMomentum(Toy):
    momentum = 0.0

    def move(self, x, grad, generator):
        self.momentum = 0.5 * self.momentum + 0.1
        return super().move(x, grad, generator) + 0.01 * self.momentum


class AgesInFloats(Toy):
    def kept(self):
        kept = super().kept()
        return kept._replace(ages=kept.ages.double())


class GivesItsBufferAway(Toy):
    def kept(self):
        return ChainState(self.images, ages=self.ages)


class KeepsTheBeginning(Toy):
    def finish(self, state):
        super().finish(state._replace(x=state.x + 0.5))


class NeverGoesOn(Toy):
    def init(self, n, y=None, *, generator):
        state = super().init(n, y, generator=generator)
        return state._replace(x=self.start(n, y, generator=generator).x)
