"""A sampler for every promise that breaks it and no other."""

from __future__ import annotations

import time

import torch
from sound_samplers import AsksInParts, AsksPartsAfterNoise, Toy, in_parts

from jembench.interfaces import ChainState, StepInfo


class WithoutKept(Toy):
    kept = property()


class HalfAStep(Toy):
    steps = 2.5


class StartsInDouble(Toy):
    def start(self, n, y=None, *, generator):
        state = super().start(n, y, generator=generator)
        return state._replace(x=state.x.double())

    def init(self, n, y=None, *, generator):
        state = super().init(n, y, generator=generator)
        return state._replace(x=state.x.float())


class InitGivesTuples(Toy):
    def init(self, n, y=None, *, generator):
        return Chains(*super().init(n, y, generator=generator))


class Chains:
    """As a ChainState, and none."""

    def __init__(self, *parts):
        self.__dict__.update(zip(ChainState._fields, parts, strict=True))

    def _replace(self, **parts):
        return ChainState(**{**vars(self), **parts})


class StartsInLevels(Toy):
    def start(self, n, y=None, *, generator):
        state = super().start(n, y, generator=generator)
        return state._replace(x=127.5 * (state.x + 1))


class EnergyOfABatch(Toy):
    def step(self, state, grad_energy, generator):
        state, info = super().step(state, grad_energy, generator)
        return state, info._replace(energy=info.energy.mean())


class CountsNothing(Toy):
    def step(self, state, grad_energy, generator):
        moved, info = super().step(state, grad_energy, generator)
        return moved._replace(steps=0), info

    def finish(self, state):
        super().finish(state._replace(steps=self.steps))


class ForgetsLabels(Toy):
    def step(self, state, grad_energy, generator):
        moved, info = super().step(state, grad_energy, generator)
        return moved._replace(y=None), info


class StartsWithoutLabels(Toy):
    def start(self, n, y=None, *, generator):
        return super().start(n, None, generator=generator)


class LabelsAnyway(Toy):
    def start(self, n, y=None, *, generator):
        y = torch.zeros(n, dtype=torch.int64) if y is None else y
        return super().start(n, y, generator=generator)


class AsksWithoutLabels(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(state, lambda x, y: grad_energy(x, None), generator)


class AsksByName(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(state, lambda x, y: grad_energy(x=x, y=y), generator)


class AsksWithOthersLabels(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(state, in_parts(grad_energy, lambda y, part: y[: len(y[part])]), generator)


class AsksWithLabelsOfOne(AsksPartsAfterNoise):
    def step(self, state, grad_energy, generator):
        return super().step(state, lambda x, y: grad_energy(x, None if y is None else y[:1].expand(len(x))), generator)


class AsksForNone(Toy):
    def step(self, state, grad_energy, generator):
        grad_energy(state.x[:0], None if state.y is None else state.y[:0])
        return super().step(state, grad_energy, generator)


class MovesInPlace(Toy):
    def step(self, state, grad_energy, generator):
        moved, info = super().step(state, grad_energy, generator)
        state.x.copy_(moved.x)
        return moved, info


class FinishesInPlace(Toy):
    def finish(self, state):
        super().finish(state)
        state.slots.add_(1).remainder_(len(self.images))


class KeepsTheGraph(Toy):
    def step(self, state, grad_energy, generator):
        return super().step(state._replace(x=state.x.detach().requires_grad_()), grad_energy, generator)


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


class LimitsEachPart(AsksInParts):
    def step(self, state, grad_energy, generator):
        def limited(x, y):
            energy, grad = grad_energy(x, y)
            return energy, grad / grad.norm().clamp(min=1)

        moved, _ = super().step(state, limited, generator)
        return moved, StepInfo(*grad_energy(state.x, state.y))


class OneNoise(Toy):
    def move(self, x, grad, generator):
        return x - 0.1 * grad + 0.01 * self.noise(x.shape[1:], generator)


class TellsTheEnd(Toy):
    def step(self, state, grad_energy, generator):
        moved, _ = super().step(state, grad_energy, generator)
        return moved, StepInfo(*grad_energy(moved.x, moved.y))


class TellsTheEndInParts(TellsTheEnd):
    def step(self, state, grad_energy, generator):
        return super().step(state, in_parts(grad_energy), generator)


class TellsTheLimited(Toy):
    def step(self, state, grad_energy, generator):
        moved, info = super().step(state, grad_energy, generator)
        return moved, info._replace(grad=info.grad.clamp(-0.1, 0.1))


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
    """What starts draw depends on how many there were."""

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

    def whole(self, parts):
        return super().whole(parts) | {"starts": parts[0]["starts"]}


class StateOfNumbers(Toy):
    def state_dict(self):
        return super().state_dict() | {"rank": self.rank}


class ForgetsItsMomentum(Toy):
    momentum = 0.0

    def move(self, x, grad, generator):
        self.momentum = 0.5 * self.momentum + 0.1
        return super().move(x, grad, generator) + 0.01 * self.momentum


class AgesInFloats(Toy):
    def kept(self):
        kept = super().kept()
        return kept._replace(ages=kept.ages.double())


class KeepsTheBeginning(Toy):
    def finish(self, state):
        super().finish(state._replace(x=state.x + 0.5))


class NeverGoesOn(Toy):
    def init(self, n, y=None, *, generator):
        state = super().init(n, y, generator=generator)
        return state._replace(x=self.start(n, y, generator=generator).x)


class GivesItsBufferAway(Toy):
    def kept(self):
        return ChainState(self.images, ages=self.ages)


class InformsInPlace(Toy):
    def inform(self, train):
        super().inform(train)
        train.images.zero_()


class SumsUpWhatItSaw(Toy):
    def inform(self, train):
        before = self.mean
        super().inform(train)
        self.mean = self.mean if before is None else self.mean + 0.1 * before


class BackToFront(Toy):
    def whole(self, parts):
        return super().whole(parts[::-1])


class OnePartOnly(Toy):
    def whole(self, parts):
        return super().whole([parts[0], parts[0]])
