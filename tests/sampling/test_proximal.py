"""The proximal sampler against JEM++'s double loop, written out with the first layer's transposed
Jacobian.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from jembench.catalog import registry
from jembench.interfaces import ChainState, DataSpec
from jembench.sampling import chain

DATA = DataSpec(name="toy", shape=(3, 8, 8), num_classes=4)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Net(nn.Module):
    """A small net whose energy is steep enough for some elements of its gradient to be clipped."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.linear = nn.Linear(8, 4)

    def after_conv1(self, h):
        logits = self.linear(F.softplus(self.conv2(F.leaky_relu(h, 0.2))).mean((2, 3)))
        return -6000 * logits.logsumexp(1)

    def forward(self, x):
        return self.after_conv1(self.conv1(x))


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().double()


def grad_energy_of(net):
    def grad_energy(x, y):
        x = x.detach().requires_grad_()
        energy = net(x)
        return energy.detach(), torch.autograd.grad(energy.sum(), x)[0]

    return grad_energy


def double_loop(net, x, *, outer, inner, step_size):
    """JEM++ to the letter: p = dE/d(conv1's output) is computed once an outer step, J^T p at every
    inner one.
    """
    for _ in range(outer):
        h = net.conv1(x).detach().requires_grad_()
        p = torch.autograd.grad(net.after_conv1(h).sum(), h)[0]
        for _ in range(inner):
            pulled = F.conv_transpose2d(p, net.conv1.weight, stride=2, padding=1, output_padding=1)
            x = (x - step_size * pulled.clamp(-1, 1)).clamp(-1, 1)
    return x


@pytest.mark.parametrize(
    ("outer", "inner", "step_size"), [(1, 5, 0.2), (4, 5, 0.2), (10, 5, 0.02), (3, 1, 0.3)]
)
def test_agrees_with_the_double_loop(net, outer, inner, step_size):
    spec = f"proximal:outer={outer},inner={inner},step_size={step_size},start=uniform"
    sampler = registry.resolve("samplers", spec).make(DATA)
    start = sampler.start(20, generator=seeded()).x.double()
    end = chain.run(sampler, ChainState(start), grad_energy_of(net), seeded()).x
    expected = double_loop(net, start, outer=outer, inner=inner, step_size=step_size)
    torch.testing.assert_close(end, expected, rtol=0, atol=1e-12)


def test_the_comparison_clips_gradients_and_clamps_pixels_but_not_all_of_them(net):
    start = torch.rand((20, *DATA.shape), generator=seeded(), dtype=torch.float64) * 2 - 1
    clipped = (grad_energy_of(net)(start, None)[1].abs() > 1).double().mean()
    at_bounds = (
        (double_loop(net, start, outer=1, inner=5, step_size=0.2).abs() == 1).double().mean()
    )
    assert 0.1 < float(clipped) < 0.9
    assert 0.1 < float(at_bounds) < 0.9


def test_a_slot_ages_by_one_a_network_pass(net):
    sampler = registry.resolve(
        "samplers", "proximal:outer=4,inner=3,buffer=10,reinit=0,start=uniform"
    ).make(DATA)
    passes = []

    def counted(x, y):
        passes.append(len(x))
        return torch.zeros(len(x)), torch.zeros_like(x)

    chain.draw(sampler, 10, counted, seeded())
    assert len(passes) == 4
    assert sampler.ages.tolist() == [4] * 10
