"""Samplers that keep every promise, each in its own way."""

from __future__ import annotations

import torch

from jembench.interfaces import ChainState, StepInfo

SLOTS = 24


class Toy:
    """Chains in a buffer, in which they wander between classes; they start at the mean training image, with noise."""

    steps = 4

    def __init__(self, data):
        self.data = data
        self.rank, self.parts = 0, 1
        self.mean = None
        self.images = torch.zeros(SLOTS, *data.shape)
        self.ages = torch.zeros(SLOTS, dtype=torch.int64)

    def inform(self, train):
        low, high = self.data.bounds
        self.mean = low + (high - low) * train.images.float().mean(0) / 255

    def noise(self, shape, generator):
        return torch.randn(shape, generator=generator)

    def start(self, n, y=None, *, generator):
        x = self.mean + 0.1 * self.noise((n, *self.data.shape), generator)
        return ChainState(x.clamp(*self.data.bounds), y)

    def init(self, n, y=None, *, generator):
        slots = torch.randperm(len(self.images), generator=generator)[:n]
        new = self.start(n, y, generator=generator)
        untouched = (self.ages[slots] == 0)[:, None, None, None]
        return ChainState(torch.where(untouched, new.x, self.images[slots]), y, slots)

    def move(self, x, grad, generator):
        return x - 0.1 * grad + 0.01 * self.noise(x.shape, generator)

    def step(self, state, grad_energy, generator):
        energy, grad = grad_energy(state.x, state.y)
        x = self.move(state.x, grad, generator)
        return state._replace(x=x, steps=state.steps + 1), StepInfo(energy, grad)

    def finish(self, state):
        self.images[state.slots] = state.x.detach()
        self.ages[state.slots] += state.steps

    def kept(self):
        return ChainState(self.images.clone(), ages=self.ages.clone())

    def state_dict(self):
        return {"images": self.images, "ages": self.ages}

    def load_state_dict(self, state):
        size = SLOTS // self.parts
        mine = slice(self.rank * size, (self.rank + 1) * size)
        self.images, self.ages = state["images"][mine].clone(), state["ages"][mine].clone()

    def share(self, rank, size):
        self.rank, self.parts = rank, size
        self.images, self.ages = self.images[: SLOTS // size], self.ages[: SLOTS // size]

    def whole(self, parts):
        return {name: torch.cat([part[name] for part in parts]) for name in ("images", "ages")}


class WithoutNoise(Toy):
    def move(self, x, grad, generator):
        return x - 0.1 * grad


class SeldomMoves(Toy):
    """As a Metropolis sampler that takes one step in ten."""

    def move(self, x, grad, generator):
        moves = torch.rand((len(x), 1, 1, 1), generator=generator) < 0.1
        return torch.where(moves, super().move(x, grad, generator), x)


class DrawsForTheGentleAlone(Toy):
    """Which chains get noise depends on their gradients, and with it what is left in the generator."""

    def move(self, x, grad, generator):
        gentle = grad.flatten(1).norm(dim=1) < 100
        moved = x - 0.1 * grad
        moved[gentle] += 0.01 * self.noise(x[gentle].shape, generator)
        return moved


def in_parts(grad_energy, labels=lambda y, part: y[part], size=4):
    """The same, asked of so many images at a time."""

    def ask(x, y):
        parts = [slice(start, start + size) for start in range(0, len(x), size)]
        answers = [grad_energy(x[part], None if y is None else labels(y, part)) for part in parts]
        return tuple(map(torch.cat, zip(*answers, strict=True)))

    return ask


class AsksInParts(Toy):
    """As where not all chains fit into memory at once; the last part is smaller."""

    def step(self, state, grad_energy, generator):
        return super().step(state, in_parts(grad_energy), generator)


class AsksOneByOne(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(state, in_parts(grad_energy, size=1), generator)


class AsksPartsAfterNoise(Toy):
    """Chains have moved by the time it asks, so that in a part they cannot be told apart."""

    def step(self, state, grad_energy, generator):
        half = state.x + 0.01 * self.noise(state.x.shape, generator)
        return super().step(state._replace(x=half), in_parts(grad_energy), generator)
