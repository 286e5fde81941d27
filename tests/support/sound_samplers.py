"""Samplers that keep every promise, each in its own way."""

from __future__ import annotations

import torch

from jembench.interfaces import ChainState

SLOTS = 24


class Toy:
    """Chains in a buffer, in which they wander between classes; they start at the mean training
    image, with noise.
    """

    steps = 4

    def __init__(self, data):
        self.data = data
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
        _, grad = grad_energy(state.x, state.y)
        x = self.move(state.x, grad, generator)
        return state._replace(x=x, steps=state.steps + 1)

    def finish(self, state):
        self.images[state.slots] = state.x.detach()
        self.ages[state.slots] += state.steps

    def kept(self):
        return ChainState(self.images.clone(), ages=self.ages.clone())

    def state_dict(self):
        return {"images": self.images, "ages": self.ages}

    def load_state_dict(self, state):
        self.images, self.ages = state["images"].clone(), state["ages"].clone()


class DrawsForTheGentleAlone(Toy):
    """Gradients decide which chains get noise, and so the generator's state."""

    def move(self, x, grad, generator):
        gentle = grad.flatten(1).norm(dim=1) < 100
        moved = x - 0.1 * grad
        moved[gentle] += 0.01 * self.noise(x[gentle].shape, generator)
        return moved


class AsksInParts(Toy):
    """As where not all chains fit into memory at once; the last part is smaller."""

    def step(self, state, grad_energy, generator):
        def ask(x, y):
            parts = [slice(start, start + 4) for start in range(0, len(x), 4)]
            answers = [grad_energy(x[part], None if y is None else y[part]) for part in parts]
            return tuple(map(torch.cat, zip(*answers, strict=True)))

        return super().step(state, ask, generator)
