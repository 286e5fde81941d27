import copy

import pytest
import torch
from torch import Generator, nn

from jembench import seeds
from jembench.attacks.pgd import PGD
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Stochastic, Target
from jembench.attacks.threat import starts
from jembench.catalog import registry
from jembench.interfaces import DataSpec
from jembench.sampling.sgld import Langevin, ShortRun

DATA = DataSpec(name="toy", shape=(1, 3, 3), num_classes=2)
WIDTH = 2.0  # s of E(x) = |x - m|^2 / (2 s^2)
QUIET = "sgld:noise=0,step_size=0.5"
NOISY = "sgld:noise=0.3,step_size=0.5"
CLIPPED = "sgld:noise=0.05,step_size=0.5,clip=0.2"
BOUNDED = "sgld:noise=0.05,step_size=0.5,bounded=true"
PROXIMAL = "proximal:start=uniform,buffer=10,inner=4,clip=0.3"
GRADIENTS = ("through", "bpda")


class Bowl(nn.Module):
    """A quadratic energy, whose chain is x_k = m + (1 - a / s^2)^k (x - m) without noise, and
    linear logits.
    """

    def __init__(self, middle=0.0):
        super().__init__()
        self.middle = middle
        self.weight = nn.Parameter(torch.randn(2, 9, generator=Generator().manual_seed(0)))

    def logits(self, x):
        return x.flatten(1) @ self.weight.T

    def energy(self, x, y=None):
        return (x - self.middle).flatten(1).square().sum(dim=1) / (2 * WIDTH**2)


def test_smoothing_is_the_log_of_the_mean_probability_and_noise_the_mean_log():
    """Salman et al. (2019), equation 2, and the reference code of JEM, on the same noise."""
    model, x = Bowl(), torch.rand(3, 1, 3, 3, generator=Generator().manual_seed(1))
    noise = torch.randn(12, 1, 3, 3, generator=Generator().manual_seed(2))
    p = (model.logits(x.repeat_interleave(4, dim=0) + 0.5 * noise)).softmax(dim=1).view(3, 4, 2)
    for smooth, expected in ((True, p.mean(dim=1).log()), (False, p.log().mean(dim=1))):
        refined = Refined(
            model,
            None,
            steps=0,
            chains=4,
            grad="through",
            generator=Generator().manual_seed(2),
            noise=0.5,
            smooth=smooth,
        )
        torch.testing.assert_close(refined.logits(x), expected)


class Net(nn.Module):
    """A small network that is linear nowhere; its energy is that of its logits."""

    def __init__(self, width=12, dropout=0.0):
        super().__init__()
        with seeds.drawing(0, "initialisation"):
            self.net = nn.Sequential(
                nn.Flatten(), nn.Linear(9, width), nn.Tanh(), nn.Linear(width, 2)
            ).double()
        self.drop = nn.Dropout(dropout)

    def logits(self, x):
        return 3 * self.net(self.drop(x))

    def energy(self, x, y=None):
        return -self.logits(x).logsumexp(dim=1)


class Cooling(ShortRun):
    """A sampler of somebody else's: each step has a size of its own, and depends on the energy."""

    SIZES = (0.5, 0.3, 0.1)

    def __init__(self):
        super().__init__(DATA, Langevin(steps=3, step_size=1.0, noise=0.0))
        self.met = []

    def step(self, state, grad_energy, generator):
        assert state.y is None
        self.met.append(state.steps)
        energy, grad = grad_energy(state.x, None)
        size = self.SIZES[state.steps] * (1 + energy.tanh())[:, None, None, None]
        return state._replace(x=state.x - size * grad, steps=state.steps + 1)


def sampler(text=QUIET):
    return registry.resolve("samplers", text).make(DATA)


def refined(model, *, steps, grad, chains=1, of=QUIET):
    chain = sampler(of) if isinstance(of, str) else of
    return Refined(
        model, chain, steps=steps, chains=chains, grad=grad, generator=Generator().manual_seed(0)
    )


def images(n=4, dtype=torch.float64):
    return torch.rand(n, 1, 3, 3, generator=Generator().manual_seed(1), dtype=dtype) - 0.5


def gradient(logits, x):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(logits(x).log_softmax(dim=1)[:, 0].sum(), x)
    return gradient


@pytest.mark.parametrize("steps", [0, 1, 10])
@pytest.mark.parametrize("grad", GRADIENTS)
@pytest.mark.parametrize("middle", [0.0, 0.3])
def test_on_a_quadratic_energy_chain_and_gradient_are_known(steps, grad, middle):
    model, x = Bowl(middle), images(dtype=torch.float32)
    factor = (1 - 0.5 / WIDTH**2) ** steps
    end = middle + factor * (x - middle)
    chained = refined(model, steps=steps, grad=grad)
    answer = chained.logits(x)
    assert answer.dtype == torch.float32
    torch.testing.assert_close(answer, model.logits(end).log_softmax(dim=1))
    slope = gradient(model.logits, end)
    torch.testing.assert_close(
        gradient(chained.logits, x), slope * (factor if grad == "through" else 1.0)
    )


@pytest.mark.parametrize(
    "of",
    [
        QUIET,
        "sgld:noise=0.05,step_size=0.7",
        "pcd:noise=0.05,step_size=0.5,buffer=10",
        CLIPPED,
        BOUNDED,
        PROXIMAL,
    ],
)
def test_through_the_chain_is_what_finite_differences_say(of):
    model, x = Net(), 1.9 * images(2)

    def answer(at):
        # the same noise each time
        return refined(model, steps=3, grad="through", chains=2, of=of).logits(at)

    assert torch.autograd.gradcheck(answer, (x.requires_grad_(),), eps=1e-6, atol=1e-6, rtol=1e-4)


def test_through_a_chain_that_depends_on_the_energy_it_is_the_gradient_of_the_whole_graph():
    model, x = Net(), images(2)

    def in_one_graph(at):
        for size in Cooling.SIZES:
            energy = model.energy(at)
            (slope,) = torch.autograd.grad(energy.sum(), at, create_graph=True)
            at = at - size * (1 + energy.tanh())[:, None, None, None] * slope
        return model.logits(at)

    through = gradient(refined(model, steps=3, grad="through", of=Cooling()).logits, x)
    # energies are float32
    torch.testing.assert_close(through, gradient(in_one_graph, x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("grad", GRADIENTS)
def test_it_is_the_mean_of_log_p_over_chains(grad):
    model, x = Net(), images(3)
    generator = Generator().manual_seed(0)
    end = x.repeat_interleave(4, dim=0)
    for _ in range(2):
        at = end.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model.energy(at).sum(), at)
        end = end - 0.5 * slope + 0.3 * torch.randn(end.shape, generator=generator, dtype=end.dtype)
    by_hand = []
    for image in range(3):
        answers = model.logits(end[4 * image : 4 * image + 4]).log_softmax(dim=1)
        by_hand.append(sum(answers) / 4)
    many = refined(model, steps=2, grad=grad, chains=4, of=NOISY)
    torch.testing.assert_close(many.logits(x), torch.stack(by_hand))


def test_the_answer_is_the_same_with_and_without_gradients():
    x = images(50, torch.float32)
    model = Net().float()
    of = "proximal:start=uniform,buffer=10"
    with torch.no_grad():
        classes_only = refined(model, steps=5, grad="through", of=of).logits(x)
    assert not classes_only.requires_grad
    for grad in GRADIENTS:
        answer = refined(model, steps=5, grad=grad, of=of).logits(x.clone().requires_grad_())
        assert answer.requires_grad
        assert torch.equal(answer, classes_only)


def test_the_way_back_uses_the_noise_of_the_way_there_and_no_other():
    x = images().requires_grad_()
    chained = refined(Net(), steps=3, grad="through", of=NOISY)
    answer = chained.logits(x).square().sum()
    chained.logits(x)  # another answer in between
    state = chained.generator.get_state()
    (once,) = torch.autograd.grad(answer, x, retain_graph=True)
    (twice,) = torch.autograd.grad(answer, x)
    assert torch.equal(chained.generator.get_state(), state)
    assert torch.equal(once, twice)
    (again,) = torch.autograd.grad(
        refined(Net(), steps=3, grad="through", of=NOISY).logits(x).square().sum(), x
    )
    assert torch.equal(once, again)


@pytest.mark.parametrize("grad", GRADIENTS)
def test_the_samplers_memory_is_not_touched(grad):
    chains = sampler("pcd:buffer=10,reinit=1")
    chains.finish(chains.init(10, generator=Generator().manual_seed(0))._replace(steps=5))
    before = copy.deepcopy(chains.state_dict())
    gradient(
        refined(Bowl(), steps=3, chains=2, grad=grad, of=chains).logits, images(dtype=torch.float32)
    )
    after = chains.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


class Meter:
    """Numbers that graphs hold at once, those made on the way back among them."""

    def __init__(self):
        self.held = self.peak = 0

    def pack(self, tensor):
        return Held(tensor, self)


class Held:
    def __init__(self, tensor, meter):
        self.tensor, self.meter = tensor, meter
        meter.held += tensor.numel()
        meter.peak = max(meter.peak, meter.held)

    def __del__(self):
        self.meter.held -= self.tensor.numel()


def peak(logits, x):
    meter = Meter()
    with torch.autograd.graph.saved_tensors_hooks(meter.pack, lambda held: held.tensor):
        gradient(logits, x)
    assert meter.held == 0
    return meter.peak


def test_ten_steps_more_hold_ten_images_more_whatever_the_network():
    model, x = Net(width=300), images(20)

    def in_one_graph(steps):
        def logits(at):
            for _ in range(steps):
                (slope,) = torch.autograd.grad(model.energy(at).sum(), at, create_graph=True)
                at = at - 0.5 * slope
            return model.logits(at)

        return logits

    few, many = (peak(refined(model, steps=steps, grad="through").logits, x) for steps in (2, 12))
    assert many - few == 10 * x.numel()
    few, many = (peak(in_one_graph(steps), x) for steps in (2, 12))
    # so the meter sees what a chain in one graph would hold
    assert many - few > 100 * 10 * x.numel()


@pytest.mark.parametrize("grad", GRADIENTS)
def test_it_is_attacked_like_any_other(grad):
    chained = refined(Bowl(0.3), steps=3, grad=grad, chains=2, of="sgld:noise=0.001,step_size=0.5")
    assert isinstance(chained, Stochastic)
    assert chained.copies == 2
    target = Target(chained, DATA)
    x = images(2, torch.float32) + 0.5
    y = target.classes(x)
    begin = torch.stack([starts(1, DATA.shape, "l2", seeds.generator(0, f"{i}")) for i in range(2)])
    closest = PGD(norm="l2", steps=5, tolerance=0.03).minimal(target, x, y, begin)
    # the class changes where w m + f^k w (x - m) = 0, x in [-1, 1]: the hyperplane of the logits,
    # moved by the chain
    w = (chained.model.weight[1] - chained.model.weight[0]).detach().double()
    factor = (1 - 0.5 / WIDTH**2) ** 3
    start = (2 * x - 1).flatten(1).double()
    exact = ((0.3 + factor * (start - 0.3)) @ w).abs() / (2 * factor * w.norm())
    unrefined = (start @ w).abs() / (2 * w.norm())
    assert (unrefined / exact - 1).abs().min() > 0.1
    assert (closest.distance / exact - 1).abs().max() < 0.05
