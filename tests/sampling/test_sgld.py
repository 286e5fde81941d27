import math

import pytest
import torch

from jembench.interfaces import DataSpec
from jembench.sampling import chain
from jembench.sampling.sgld import Langevin, ShortRun, langevin_step

DATA = DataSpec(name="toy", shape=(2, 3, 5), num_classes=4)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def quadratic(variance):
    """The energy |x|^2 / (2 variance), whose density is a Gaussian."""

    def grad_energy(x, y):
        return x.flatten(1).square().sum(1) / (2 * variance), x / variance

    return grad_energy


@pytest.mark.parametrize(
    ("step_size", "noise", "variance"), [(0.1, 0.3, 1.0), (0.5, 0.2, 0.7), (1.0, 0.01, 2.0)]
)
def test_stationary_variance_is_that_of_the_closed_form(step_size, noise, variance):
    sampler = ShortRun(DATA, Langevin(steps=200, step_size=step_size, noise=noise))
    end = chain.draw(sampler, 2000, quadratic(variance), seeded()).x
    expected = noise**2 * variance**2 / (step_size * (2 * variance - step_size))
    standard_error = expected * math.sqrt(2 / end.numel())
    assert abs(float(end.var()) - expected) < 5 * standard_error
    assert abs(float(end.mean())) < 5 * math.sqrt(expected / end.numel())


def test_proper_noise_samples_the_gaussian_itself_as_the_step_goes_to_zero():
    step_size, variance = 0.01, 0.25
    sampler = ShortRun(
        DATA, Langevin(steps=400, step_size=step_size, noise=math.sqrt(2 * step_size))
    )
    end = chain.draw(sampler, 1000, quadratic(variance), seeded()).x
    assert float(end.var()) == pytest.approx(variance / (1 - step_size / (2 * variance)), rel=0.05)


def test_every_element_of_the_gradient_is_clipped_by_itself():
    grad = torch.tensor([-5.0, -0.5, 0.0, 0.5, 5.0]).expand(1, *DATA.shape)
    moved = langevin_step(
        torch.zeros_like(grad), grad, step_size=0.1, noise=0, generator=seeded(), clip=1
    )
    torch.testing.assert_close(moved[0, 0, 0], torch.tensor([0.1, 0.05, 0.0, -0.05, -0.1]))


def test_bounded_chains_never_leave_the_bounds():
    def outwards(x, y):
        return -x.flatten(1).square().sum(1), -x

    langevin = Langevin(steps=1, step_size=1, noise=0.1, bounds=DATA.bounds)
    state = ShortRun(DATA, langevin).start(50, generator=seeded())
    for _ in range(5):
        state = langevin.step(state, outwards, seeded())
        assert float(state.x.abs().max()) == 1
    assert (
        float(
            chain.run(
                ShortRun(DATA, Langevin(steps=5, step_size=1, noise=0.1)), state, outwards, seeded()
            ).x.max()
        )
        > 1
    )


def test_a_short_run_keeps_nothing():
    sampler = ShortRun(DATA, Langevin(steps=1, step_size=1, noise=0))
    chain.draw(sampler, 3, quadratic(1), seeded())
    assert sampler.kept() is None
    assert sampler.state_dict() == {}


def test_momentum_adds_a_decaying_sum_of_former_gradients():
    """v <- .6 v - h g, x <- x + v: on a quadratic energy without noise a linear recursion of the
    second order.
    """
    sampler = ShortRun(DATA, Langevin(steps=6, step_size=0.1, noise=0.0, momentum=0.6))
    x = before = torch.ones(3, *DATA.shape)
    end = chain.run(sampler, chain.ChainState(x), quadratic(0.5), seeded()).x
    for _ in range(6):
        x, before = x + 0.6 * (x - before) - 0.1 * x / 0.5, x
    torch.testing.assert_close(end, x)
