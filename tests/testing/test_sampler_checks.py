"""Every check of samplers catches the fault that is planted for it, and no other does."""

import time

import pytest
import torch

from jembench.interfaces import ChainState, DataSpec, StepInfo
from jembench.testing import check_sampler, perform
from jembench.testing.samplers import PROMISES

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


class AsksOneByOne(Toy):
    def step(self, state, grad_energy, generator):
        def each(x, y):
            one = [grad_energy(x[[i]], None if y is None else y[[i]]) for i in range(len(x))]
            return tuple(map(torch.cat, zip(*one, strict=True)))

        return super().step(state, each, generator)


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


class OneNoise(Toy):
    def move(self, x, grad, generator):
        return x - 0.1 * grad + 0.01 * self.noise(x.shape[1:], generator)


class TellsTheEnd(Toy):
    def step(self, state, grad_energy, generator):
        moved, _ = super().step(state, grad_energy, generator)
        return moved, StepInfo(*grad_energy(moved.x, moved.y))


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


FAULTS = {
    WithoutKept: "all-parts",
    HalfAStep: "length",
    StartsInDouble: "begins-as-images",
    InitGivesTuples: "begins-as-images",
    StartsInLevels: "starts-within-bounds",
    EnergyOfABatch: "step-keeps-shapes",
    CountsNothing: "steps-are-counted",
    ForgetsLabels: "labels-stay",
    StartsWithoutLabels: "labels-stay",
    LabelsAnyway: "labels-stay",
    AsksWithoutLabels: "asks-grad-energy",
    AsksByName: "asks-grad-energy",
    AsksOneByOne: "asks-grad-energy",
    MovesInPlace: "leaves-its-arguments",
    FinishesInPlace: "leaves-its-arguments",
    KeepsTheGraph: "keeps-no-graph",
    DividesBy0: "stays-finite",
    Uphill: "goes-downhill",
    LimitsTheBatch: "chains-do-not-disturb-each-other",
    OneNoise: "each-chain-has-its-own-noise",
    TellsTheEnd: "tells-where-it-came-from",
    TellsTheLimited: "tells-where-it-came-from",
    ByTheClock: "same-generator",
    AlwaysTheSame: "other-generator",
    Global: "global-randomness",
    CountsStarts: "looking",
    StateOfNumbers: "state-is-tensors",
    ForgetsItsMomentum: "resumes",
    AgesInFloats: "kept-are-chains",
    KeepsTheBeginning: "ends-are-kept",
    NeverGoesOn: "goes-on",
    GivesItsBufferAway: "kept-is-a-copy",
    InformsInPlace: "informing",
    SumsUpWhatItSaw: "informing",
    BackToFront: "sharing",
    OnePartOnly: "sharing",
}
UNUSUAL = {
    WithoutNoise: {"each-chain-has-its-own-noise"},
    SeldomMoves: set(),
    DrawsForTheGentleAlone: {"chains-do-not-disturb-each-other"},
}
BY_NAME = {each.__name__: each for each in (*FAULTS, *UNUSUAL)}


def toy(data, *, fault: str = ""):
    return BY_NAME.get(fault, Toy)(data)


def results(fault="", data=None):
    spec = f"{__name__}:toy" + (f":fault={fault}" if fault else "")
    return [perform(check) for check in (check_sampler(spec, data) if data else check_sampler(spec))]


@pytest.mark.parametrize(
    "data",
    [
        DataSpec(name="toy", shape=(1, 8, 8), num_classes=10),
        DataSpec(name="colours", shape=(3, 4, 6), num_classes=2, bounds=(0.0, 1.0)),
        DataSpec(name="unlabelled", shape=(1, 3, 5), num_classes=0),
    ],
    ids=lambda data: data.name,
)
def test_a_sampler_without_fault_passes_every_check(data):
    status = {result.check.name: (result.status, result.message) for result in results(data=data)}
    skipped = {"labels-stay"} if data.num_classes == 0 else set()
    assert {name for name, (found, _) in status.items() if found != "passed"} == skipped, status


@pytest.mark.parametrize(("sampler", "skipped"), UNUSUAL.items())
def test_an_unusual_sampler_fails_no_check(sampler, skipped):
    status = {result.check.name: result.status for result in results(sampler.__name__) if result.status != "passed"}
    assert status == dict.fromkeys(skipped, "skipped")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(fault):
    failed = {result.check.name: result.message for result in results(fault.__name__) if result.status == "failed"}
    assert list(failed) == [FAULTS[fault]], failed


def test_every_check_has_a_fault_that_it_catches():
    assert {promise.name for promise in PROMISES} == set(FAULTS.values())
