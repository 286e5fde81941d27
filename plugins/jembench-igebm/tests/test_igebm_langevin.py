"""The chains: the update by hand in units of [0, 1], and one buffer for all classes."""

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.interfaces import ChainState, DataSpec, Sampler

SHAPE = (1, 2, 3)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4)
OTHER = DataSpec(name="toy", shape=(1, 2, 3), num_classes=4, bounds=(0.0, 255.0))


def make(options="", data=DATA):
    return registry.resolve("samplers", f"igebm-langevin{options and ':' + options}").make(data)


def generator(seed=0):
    return Generator().manual_seed(seed)


def zero(x, y):
    return torch.zeros(len(x)), torch.zeros_like(x)


@pytest.mark.parametrize("data", [DATA, OTHER], ids=["[-1, 1]", "[0, 255]"])
def test_a_step_by_hand_in_units_of_0_to_1(data):
    low, high = data.bounds
    unit = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.99, 0.01])
    # dE/du, the same everywhere
    slope = torch.tensor([0.004, -0.004, 3.0, -3.0, -1.0, 1.0])
    noise = torch.randn(1, *data.shape, generator=generator())
    noise = noise.flatten() * 0.005

    seen = []

    def grad_energy(x, y):
        seen.append((x.flatten() - low) / (high - low))
        return torch.zeros(1), (slope / (high - low)).view_as(x)

    x = low + (high - low) * unit
    start = ChainState(x.view(1, *data.shape))
    state = make(data=data).step(start, grad_energy, generator())
    moved = (state.x.flatten() - low) / (high - low)
    step = torch.tensor([0.04, -0.04, 0.1, -0.1, -0.1, 0.1])
    expected = (unit + noise - step).clamp(0, 1)
    assert_close(moved, expected, rtol=0, atol=1e-5)
    # the gradient is that after the noise
    assert_close(seen[0], unit + noise, rtol=0, atol=1e-5)
    assert moved[4] == 1
    assert moved[5] == 0
    assert state.steps == 1


def test_the_published_constants():
    sampler = make()
    assert isinstance(sampler, Sampler)
    langevin = sampler.langevin
    assert langevin.steps == 60
    assert langevin.step_size == 40
    assert langevin.noise == 0.01
    assert langevin.clip == 0.005
    assert langevin.bounds == DATA.bounds
    assert sampler.capacity == 10_000
    assert sampler.reinit == 0.05


def test_chains_go_on_in_other_classes_and_slots_remember_the_last():
    sampler = make("buffer=8,reinit=0")
    y = torch.full((8,), 2)
    first = sampler.init(8, y, generator=generator())
    assert torch.equal(first.y, y)
    assert sorted(first.slots.tolist()) == list(range(8))  # of all classes
    x = torch.full_like(first.x, 0.25)
    sampler.finish(first._replace(x=x, steps=3))
    labels = torch.tensor([0, 1, 2, 3])
    second = sampler.init(4, labels, generator=generator(1))
    assert (second.x == 0.25).all()
    sampler.finish(second)
    kept = sampler.kept()
    assert kept.y[second.slots].tolist() == [0, 1, 2, 3]
    counts = torch.bincount(kept.y, minlength=4)
    assert counts.tolist() == [1, 1, 5, 1]
    assert kept.ages.tolist() == [3] * 8


def test_chains_without_classes_are_kept_without():
    sampler = make("buffer=8")
    assert sampler.kept() is None
    sampler.finish(sampler.init(4, generator=generator()))
    assert sampler.kept().y is None


def test_a_loaded_sampler_goes_on_as_the_first_would_have():
    def go(sampler, seed):
        labels = torch.tensor([3, 1, 0, 0])
        state = sampler.init(4, labels, generator=generator(seed))
        state = sampler.step(state, zero, generator(seed))
        sampler.finish(state)
        return sampler.kept()

    first = make("buffer=8")
    second = make("buffer=8")
    go(first, 0)
    state = first.state_dict()
    second.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
    pairs = zip(go(first, 1), go(second, 1), strict=True)
    for mine, its in pairs:
        assert torch.equal(mine, its) if isinstance(mine, torch.Tensor) else mine == its


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("steps=0", "steps of igebm-langevin is 0; it must be at least 1"),
        ("buffer=0", "buffer of igebm-langevin is 0"),
        ("step_size=0", "step_size of igebm-langevin is 0.0; it must be greater than 0"),
        ("clip=-1", "clip of igebm-langevin is -1.0"),
        ("noise=-1", "noise of igebm-langevin is -1.0; it must be at least 0"),
        ("reinit=2", "it must be at least 0 and at most 1"),
    ],
)
def test_options_that_cannot_be(options, said):
    with pytest.raises(SpecError, match=said):
        make(options)
