import copy

import pytest
import torch
from torch import Generator, nn

from jembench import registry, seeds
from jembench.attacks.pgd import PGD
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Stochastic, Target
from jembench.attacks.threat import starts
from jembench.interfaces import DataSpec

DATA = DataSpec(name="toy", shape=(1, 3, 3), num_classes=2)
WIDTH = 2.0  # s of E(x) = |x|^2 / (2 s^2)


class Bowl(nn.Module):
    """A quadratic energy, whose chain is x_k = (1 - a / s^2)^k x without noise, and linear logits."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 9, generator=Generator().manual_seed(0)))

    def logits(self, x):
        return x.flatten(1) @ self.weight.to(x).T

    def energy(self, x, y=None):
        return x.flatten(1).square().sum(dim=1) / (2 * WIDTH**2)


class Net(nn.Module):
    """A small network that is linear nowhere; its energy is that of its logits."""

    def __init__(self):
        super().__init__()
        with seeds.initialising(0):
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 2)).double()

    def logits(self, x):
        return 2 * self.net(x)

    def energy(self, x, y=None):
        return -self.logits(x).logsumexp(dim=1)


def sampler(text="sgld:noise=0,step_size=0.5"):
    return registry.resolve("samplers", text).make(DATA)


def refined(model, *, steps, grad, chains=1, of="sgld:noise=0,step_size=0.5", seed=0):
    generator = Generator().manual_seed(seed)
    return Refined(model, sampler(of), steps=steps, chains=chains, grad=grad, generator=generator)


def images(n=4, dtype=torch.float32):
    return torch.rand(n, 1, 3, 3, generator=Generator().manual_seed(1), dtype=dtype) - 0.5


def gradient(model, x):
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(model.logits(x)[:, 0].sum(), x)
    return found


@pytest.mark.parametrize("steps", [0, 1, 10])
@pytest.mark.parametrize("grad", ["through", "bpda"])
def test_on_a_quadratic_energy_chain_and_gradient_are_known(steps, grad):
    model, x = Bowl(), images()
    factor = (1 - 0.5 / WIDTH**2) ** steps
    expected = model.logits(factor * x).log_softmax(dim=1)
    one = refined(model, steps=steps, grad=grad)
    torch.testing.assert_close(one.logits(x), expected)
    at_end = (factor * x).detach().requires_grad_()
    (slope,) = torch.autograd.grad(model.logits(at_end).log_softmax(dim=1)[:, 0].sum(), at_end)
    torch.testing.assert_close(gradient(one, x), slope * (factor if grad == "through" else 1.0))


@pytest.mark.parametrize(
    "of",
    [
        "sgld:noise=0,step_size=0.5",
        "sgld:noise=0.05,step_size=0.7",
        "pcd:noise=0.05,step_size=0.5,buffer=10",
        "sgld:noise=0,step_size=0.5,clip=0.2",
        "proximal:start=uniform,buffer=10",
    ],
)
def test_through_the_chain_is_what_finite_differences_say(of):
    model, x = Net(), images(2, torch.float64)

    def answer(at):
        return refined(model, steps=4, grad="through", chains=3, of=of).logits(at)  # the same noise each time

    assert torch.autograd.gradcheck(answer, (x.requires_grad_(),), eps=1e-6, atol=1e-6, rtol=1e-4)


def test_past_the_chain_is_another_gradient():
    model, x = Net(), images(2, torch.float64)
    through, past = (gradient(refined(model, steps=10, grad=grad), x) for grad in ("through", "bpda"))
    assert (through - past).abs().max() > 0.01 * past.abs().max()


def test_it_is_the_mean_of_log_p_over_chains():
    model, x = Net(), images(3, torch.float64)
    many = refined(model, steps=2, grad="bpda", chains=4, of="sgld:noise=0.3,step_size=0.5")
    generator = Generator().manual_seed(0)
    copies = x.repeat_interleave(4, dim=0)
    for _ in range(2):
        copies = copies.requires_grad_()
        (slope,) = torch.autograd.grad(model.energy(copies).sum(), copies)
        noise = torch.randn(copies.shape, generator=generator, dtype=copies.dtype)
        copies = (copies - 0.5 * slope + 0.3 * noise).detach()
    by_hand = model.logits(copies).log_softmax(dim=1).reshape(3, 4, 2).mean(dim=1)
    torch.testing.assert_close(many.logits(x), by_hand)


def test_chance_is_the_generators_alone_and_the_way_back_uses_none_of_it():
    model, x = Bowl(), images()
    of = "sgld:noise=0.3,step_size=0.5"
    one, other = (refined(model, steps=3, grad="through", of=of) for _ in range(2))
    first = one.logits(x.clone().requires_grad_())
    torch.testing.assert_close(first, other.logits(x))
    state = one.generator.get_state()
    first.sum().backward()
    assert torch.equal(one.generator.get_state(), state)
    assert not torch.equal(one.logits(x), first)


def test_nothing_else_is_touched():
    model, x = Bowl(), images()
    chains = sampler("pcd:buffer=10")
    chains.finish(chains.init(4, generator=Generator().manual_seed(0)))
    before = copy.deepcopy(chains.state_dict())
    one = Refined(model, chains, steps=3, chains=2, grad="through", generator=Generator())
    gradient(one, x)
    assert model.weight.grad is None
    assert model.weight.requires_grad
    for name, value in chains.state_dict().items():
        assert torch.equal(value, before[name])


def test_no_more_than_one_step_is_held_at_a_time():
    """The graph grows by one node a step, which holds the image alone, whatever the network."""

    def nodes(steps):
        one = refined(Net(), steps=steps, grad="through")
        found, waiting = set(), [one.logits(images(50, torch.float64).requires_grad_()).grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in found:
                found.add(node)
                waiting += [following for following, _ in node.next_functions]
        return found

    few, many = nodes(1), nodes(11)
    assert len(many) - len(few) == 10
    chain = [node for node in many if "Step" in node.name()]
    assert len(chain) == 11
    assert all(sum(tensor.numel() for tensor in node.saved_tensors) == 50 * 9 for node in chain)


def test_it_works_where_there_are_no_gradients():
    with torch.no_grad():
        answer = refined(Bowl(), steps=2, grad="through").logits(images())
    assert not answer.requires_grad


def test_it_is_attacked_like_any_other():
    model = Bowl()
    one = refined(model, steps=3, grad="through", chains=2, of="sgld:noise=0.001,step_size=0.5")
    assert isinstance(one, Stochastic)
    assert (one.copies, one.passes) == (2, 8)
    target = Target(one, DATA)
    x = images(6) + 0.5
    y = target.classes(x)
    begin = torch.stack([starts(2, DATA.shape, "l2", seeds.generator(0, f"{i}")) for i in range(6)])
    closest = PGD(norm="l2").minimal(target, x, y, begin)
    assert closest.distance.isfinite().all()
    # the chain shrinks images towards the middle grey, where no class changes: the hyperplane is where it was
    slope = 2 * (model.weight[1] - model.weight[0])
    margin = model.logits(2 * x - 1) @ torch.tensor([-1.0, 1.0])
    exact = (margin.abs() / slope.norm()).detach().double()
    assert (closest.distance / exact - 1).abs().max() < 0.05
