"""The example plugin's sampler: exact where plain Langevin steps are not.

Legend: B chains, C channels, H height, W width.
"""

import importlib.util
import math

import pytest
import torch

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.sampling.sgld import Langevin

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jembench_example") is None,
    reason="install tests/example_plugin to run this: tox -e plugins does",
)

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=0)
CHAINS = 4000
MEAN, VARIANCE = 0.3, 0.25


def mala(step_size):
    return registry.resolve("samplers", f"mala:step_size={step_size}").make(DATA)


def gaussian(x, y):
    """E = |x - m|^2 / (2 v)."""
    return (x - MEAN).square().flatten(1).sum(dim=1) / (2 * VARIANCE), (x - MEAN) / VARIANCE


def quartic(x, y):
    """E = sum of x^4."""
    return x.pow(4).flatten(1).sum(dim=1), 4 * x.pow(3)


def ends(step, grad_energy, steps=60):
    generator = torch.Generator().manual_seed(0)
    state = mala(1.0).start(CHAINS, generator=generator)
    for _ in range(steps):
        state, _ = step(state, grad_energy, generator)
    return state.x


def accepted(step_size):
    """The share of steps that chains take at their distribution."""
    generator = torch.Generator().manual_seed(0)
    sampler = mala(step_size)
    state = sampler.start(CHAINS, generator=generator)
    state = state._replace(x=MEAN + VARIANCE**0.5 * torch.randn(state.x.shape, generator=generator))
    moved, _ = sampler.step(state, gaussian, generator)
    return (moved.x != state.x).flatten(1).any(dim=1).float().mean().item()


def test_on_a_gaussian_mean_and_variance_are_exact_where_unadjusted_steps_double_the_variance():
    step_size = VARIANCE
    x = ends(mala(step_size).step, gaussian)
    error = math.sqrt(VARIANCE / x.numel())
    assert x.mean().item() == pytest.approx(MEAN, abs=4 * error)
    assert x.var().item() == pytest.approx(VARIANCE, rel=4 * math.sqrt(2 / x.numel()))

    unadjusted = Langevin(steps=1, step_size=step_size, noise=math.sqrt(2 * step_size))
    biased = 2 * VARIANCE**2 / (2 * VARIANCE - step_size)
    assert biased == 2 * VARIANCE
    assert ends(unadjusted.step, gaussian).var().item() == pytest.approx(biased, rel=4 * math.sqrt(2 / x.numel()))


def test_beside_gaussians_moments_are_exact_too():
    x = ends(mala(0.15).step, quartic)
    second = math.gamma(3 / 4) / math.gamma(1 / 4)
    assert x.square().mean().item() == pytest.approx(second, abs=4 * math.sqrt((1 / 4 - second**2) / x.numel()))
    assert x.pow(4).mean().item() == pytest.approx(1 / 4, abs=4 * math.sqrt(1 / 4 / x.numel()))  # a gamma variable


def test_small_steps_are_nearly_all_accepted_and_huge_ones_hardly_ever():
    assert accepted(0.001) > 0.99
    assert 0.5 < accepted(VARIANCE / 2) < 0.99
    assert accepted(100.0) < 0.01


def test_a_step_into_energies_that_are_not_numbers_is_not_taken():
    def cliff(x, y):
        energy, grad = gaussian(x, y)
        return torch.where((x > MEAN + 0.5).flatten(1).any(dim=1), torch.nan, energy), grad

    generator = torch.Generator().manual_seed(0)
    sampler = mala(0.1)
    state = sampler.start(CHAINS, generator=generator)
    state = state._replace(x=torch.full_like(state.x, MEAN))
    for _ in range(20):
        state, _ = sampler.step(state, cliff, generator)
    assert state.x.max() <= MEAN + 0.5
    assert state.x.std() > 0.1


def test_a_chain_of_so_many_steps_takes_one_gradient_more():
    calls = []

    def counting(x, y):
        calls.append(len(x))
        return gaussian(x, y)

    ends(mala(0.1).step, counting, steps=10)
    assert calls == [CHAINS] * 11


def test_what_was_known_of_other_images_or_by_another_energy_is_not_used():
    generator = torch.Generator().manual_seed(0)
    sampler = mala(0.1)
    state, _ = sampler.step(sampler.start(CHAINS, generator=generator), gaussian, generator)
    for changed, grad_energy in ((state._replace(x=state.x + 1), gaussian), (state, quartic)):
        _, info = sampler.step(changed, grad_energy, generator)
        energy, grad = grad_energy(changed.x, None)
        assert info.energy.equal(energy)
        assert info.grad.equal(grad)


@pytest.mark.parametrize("option", ["steps=0", "step_size=0"])
def test_an_option_out_of_its_range_is_refused(option):
    with pytest.raises(SpecError, match=r"of mala is 0(\.0)?; it must be"):
        registry.resolve("samplers", f"mala:{option}").make(DATA)
