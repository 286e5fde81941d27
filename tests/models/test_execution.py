"""Layout, precision, one pass and the compiler against Algorithm 1 as a textbook has it."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from jembench import seeds
from jembench.errors import Fallback
from jembench.experiment import recipe as recipes
from jembench.interfaces import DataSpec, Split
from jembench.models import nets
from jembench.models.energies import LogitModel, grad_energy
from jembench.models.execution import Execution, compiled, mode, to_channels_last
from jembench.models.objective import Weights, hybrid_loss
from jembench.models.wide_resnet import ResidualNet
from jembench.training.loop import Trainer

CPU = torch.device("cpu")
TINY = Path(__file__).parents[1] / "zoo" / "tiny.toml"
DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=4)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def small(norm="none"):
    with seeds.drawing(0, "initialisation"):
        return ResidualNet(3, 4, nets.small(4), norm=norm)


def is_channels_last(net):
    weights = [p for p in net.parameters() if p.dim() == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    assert weights
    return {p.is_contiguous(memory_format=torch.channels_last) for p in weights}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("before", [(True, True), (False, True), (False, False)])
def test_each_module_goes_back_into_its_own_mode(train, before):
    net = nn.Sequential(nn.Dropout(), nn.Dropout())
    net[0].training, net[1].training = before
    with mode(net, train=train):
        assert (net[0].training, net[1].training) == (train, train)
        net.train(not train)
    assert (net[0].training, net[1].training) == before


class JEM(LogitModel):
    chains = "marginal"

    def training_loss(self, batch, negatives):
        self.seen = batch, negatives
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1, marginal=1))


def make_trainer(net=None, **settings):
    images = torch.randint(256, (40, 3, 8, 8), generator=seeded(), dtype=torch.uint8)
    wanted = {
        "batch_size": 8,
        "data.validation": 0,
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 0.05,
        "chains.sampler": "pcd:steps=4,buffer=40,step_size=1,noise=0.01",
        **settings,
    }
    recipe = recipes.load(str(TINY), [f"{key}={value}" for key, value in wanted.items()])
    return Trainer(
        JEM(net or small()), DATA, Split(images, torch.arange(40) % 4), recipe, seed=0, device=CPU
    )


class Chains:
    def __init__(self, trainer):
        self.grad_energy, self.generator = trainer.functions.grad_energy, trainer.chains.generator
        trainer.functions.grad_energy = self
        self.start = None

    def __call__(self, x, y):
        if self.start is None:
            self.start, self.draws = x.clone(), torch.Generator()
            self.draws.set_state(self.generator.get_state())
        return self.grad_energy(x, y)


def textbook(net, chains, batch):
    """One iteration in float64: SGLD, then three separate passes and a step down the gradient."""
    x = chains.start.double()
    for _ in range(4):
        x = x.detach().requires_grad_()
        energy = -torch.log(torch.exp(net(x)).sum(dim=1))
        (slope,) = torch.autograd.grad(energy.sum(), x)
        x = x - slope + 0.01 * torch.randn(x.shape, generator=chains.draws).double()
    samples = x.detach()
    classified = F.nll_loss(
        torch.log_softmax(net(batch.x_labelled.double()), dim=1), batch.y_labelled
    )
    data = -torch.log(torch.exp(net(batch.x.double())).sum(dim=1)).mean()
    negative = -torch.log(torch.exp(net(samples)).sum(dim=1)).mean()
    loss = classified + data - negative
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for weight, gradient in zip(net.parameters(), gradients, strict=True):
            weight -= 0.05 * gradient
    return loss.item(), samples


def moved(net, before):
    return torch.cat(
        [(p.double() - b.double()).flatten() for p, b in zip(net.parameters(), before, strict=True)]
    )


@pytest.mark.parametrize(
    ("settings", "rounding"),
    [
        ({"compute.precision": "float32", "compute.layout": "contiguous"}, 2e-5),
        ({"compute.precision": "float32", "compute.layout": "channels_last"}, 2e-5),
        # 8 bits, through a dozen layers
        ({"compute.precision": "bfloat16", "compute.layout": "channels_last"}, 0.05),
    ],
    ids=["float32", "channels-last", "bfloat16"],
)
def test_training_is_algorithm_1(settings, rounding):
    trainer = make_trainer(**settings)
    assert is_channels_last(trainer.model.net) == {settings["compute.layout"] == "channels_last"}
    reference = copy.deepcopy(trainer.model.net).double()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    for _ in range(3):
        chains = Chains(trainer)
        values = trainer.iterate()
        trainer.functions.grad_energy = chains.grad_energy
        batch, negatives = trainer.model.seen
        loss, samples = textbook(reference, chains, batch)
        assert float(values["loss"]) == pytest.approx(loss, abs=rounding * 4)
        assert (negatives.x - samples).norm() < rounding * (samples - chains.start).norm()
    found, expected = moved(trainer.model.net, before), moved(reference, before)
    assert expected.norm() > 0.01
    assert (found - expected).norm() < rounding * expected.norm()
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}


class Viewing(nn.Module):
    """Flattens its maps with .view, which channels-last maps do not bear."""

    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 8 * 8, 4)

    def forward(self, x):
        return self.linear(F.leaky_relu(self.conv(x), 0.2).view(len(x), -1))


def test_weights_are_laid_out_channels_last_and_compute_the_same():
    model, x = LogitModel(small("batch")).train(), torch.randn(5, 3, 8, 8, generator=seeded())
    state = copy.deepcopy(model.state_dict())
    before = copy.deepcopy(model).eval().double().logits(x.double())
    model.net.layer1.eval()
    assert to_channels_last(model, DATA)
    assert is_channels_last(model.net) == {True}
    # nothing was learned
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not model.net.layer1.training
    torch.testing.assert_close(model.eval().logits(x).double(), before, rtol=1e-5, atol=1e-6)


def test_a_network_that_flattens_with_view_is_as_before_with_one_warning():
    with seeds.drawing(0, "initialisation"):
        model = LogitModel(Viewing())
    with pytest.warns(Fallback, match=r"flattens its maps with \.view") as told:
        assert not to_channels_last(model, DATA)
    assert len(told) == 1
    assert is_channels_last(model.net) == {False}
    assert all(p.is_contiguous() for p in model.parameters())
    x = torch.randn(5, 3, 8, 8, generator=seeded())
    energy, grad = grad_energy(model, Execution(channels_last=True))(x, None)
    exact = copy.deepcopy(model).double()
    x64 = x.double().requires_grad_()
    expected = -exact.logits(x64).exp().sum(1).log()
    torch.testing.assert_close(energy.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        grad.double(), torch.autograd.grad(expected.sum(), x64)[0], rtol=1e-4, atol=1e-6
    )


def test_another_error_of_the_network_is_its_own():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(99, 99))

        def logits(self, x):
            return x @ self.weight

        def energy(self, x, y=None):
            return self.logits(x)

    with pytest.raises(RuntimeError, match="99"):
        to_channels_last(Wrong(), DATA)


def no_compiler(function, **options):
    raise RuntimeError("Python 4 is not supported yet\nand a long story")


def no_backend(function, **options):
    def fails(*args):
        raise OSError("no C++ compiler\nand a long story")

    return fails


@pytest.mark.parametrize(
    ("compiler", "cause"),
    [
        (no_compiler, "RuntimeError: Python 4 is not supported yet"),
        (no_backend, "OSError: no C++ compiler"),
    ],
)
def test_a_compiler_that_fails_is_done_without_with_one_warning(monkeypatch, compiler, cause):
    monkeypatch.setattr(torch, "compile", compiler)
    calls = []
    double = compiled(lambda x: calls.append(x) or 2 * x)
    with pytest.warns(Fallback) as told:
        assert [double(value) for value in (1, 2, 3)] == [2, 4, 6]
    assert [str(warning.message) for warning in told] == [
        f"Not compiled, which is slower but gives the same results ({cause})."
    ]
    assert calls == [1, 2, 3]


def out_of_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory")


def out_of_memory_in_the_compiler(*_, **__):
    try:
        out_of_memory()
    except RuntimeError as error:
        raise RuntimeError("backend='inductor' raised") from error


@pytest.mark.parametrize("fails", [out_of_memory, out_of_memory_in_the_compiler])
def test_memory_that_is_too_small_says_nothing_about_the_compiler(monkeypatch, fails):
    answers = [fails, lambda x: 2 * x]
    monkeypatch.setattr(torch, "compile", lambda function, **options: lambda x: answers.pop(0)(x))
    given_up = []
    double = compiled(lambda x: pytest.fail("the plain function was called"), given_up)
    with pytest.raises(RuntimeError):
        double(1)
    assert double(1) == 2
    assert given_up == []


def test_a_trainer_remembers_how_it_computed(monkeypatch):
    monkeypatch.setattr(torch, "compile", no_backend)
    assert make_trainer().functions.computed == {
        "precision": "float32",
        "layout": "channels_last",
        "compiled": False,
        "not_compiled": [],
        "captured": False,
        "not_captured": [],
        "cudnn_benchmark": False,
    }
    trainer = make_trainer(**{"compute.compile": "on"})
    assert trainer.functions.computed["compiled"]
    with pytest.warns(Fallback):
        assert [len(trainer.iterate()) for _ in range(2)]
    assert not trainer.functions.computed["compiled"]
    assert trainer.functions.computed["not_compiled"] == ["OSError: no C++ compiler"] * 2
    with pytest.warns(Fallback):
        assert make_trainer(Viewing()).functions.computed["layout"] == "contiguous"


class Plain(nn.Module):
    """Energies without the checks of shapes that tests add to the package, which cannot be
    compiled.
    """

    def __init__(self, *layers):
        super().__init__()
        self.net = nn.Sequential(*layers)

    def energy(self, x, y=None):
        logits = self.net(x)
        return -logits.logsumexp(1) if y is None else -logits.gather(1, y[:, None]).squeeze(1)


def linear():
    with seeds.drawing(0, "initialisation"):
        return Plain(nn.Flatten(), nn.Linear(12, 3))


def convolutional():
    with seeds.drawing(0, "initialisation"):
        first, second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2)
        return Plain(
            first, nn.GroupNorm(1, 4), nn.LeakyReLU(0.2), second, nn.Flatten(), nn.Linear(36, 3)
        )


def check_gradient(model, execution, x, y):
    """Equal to the plain one, inside autocast as outside, and without a trace in the parameters."""
    # a compiler rounds to 8 bits at other places
    rounding = 1e-5 if execution.precision == "float32" else 0.01

    def close(found, expected):
        return (
            found.dtype == torch.float32 and (found - expected).norm() < rounding * expected.norm()
        )

    marks = [torch.full_like(p, 7.0) for p in model.parameters()]
    for parameter, mark in zip(model.parameters(), marks, strict=True):
        parameter.grad = mark.clone()
    energy, grad = grad_energy(model, Execution(precision=execution.precision))(x, y)
    fast = grad_energy(model, execution)
    for _ in range(2):
        found = fast(x, y)
        assert close(found[0], energy)
        assert close(found[1], grad)
        assert not any(part.requires_grad for part in found)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast(x, y)[1], found[1])
    assert all(torch.equal(p.grad, mark) for p, mark in zip(model.parameters(), marks, strict=True))
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    assert not torch.equal(fast(x, y)[1], found[1])  # the weights of the moment
    assert close(
        fast(x, y)[1], grad_energy(model, Execution(precision=execution.precision))(x, y)[1]
    )


@pytest.fixture
def traced(monkeypatch):
    """Use all of the compiler but its last step, which alone takes seconds."""
    original = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, mode, **options: original(function, backend="aot_eager", **options),
    )
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("precision", "y"), [("float32", None), ("bfloat16", torch.tensor([2, 0, 1, 2]))]
)
def test_a_traced_gradient_is_the_plain_one(traced, precision, y):
    execution = Execution(compiled=True, precision=precision)
    check_gradient(convolutional(), execution, torch.randn(4, 3, 8, 8, generator=seeded()), y)


def test_a_traced_gradient_moves_the_statistics_of_batch_norm_as_the_plain_one_does(traced):
    x, found = torch.randn(4, 3, 8, 8, generator=seeded()), []
    for execution in (Execution(), Execution(compiled=True)):
        with seeds.drawing(0, "initialisation"):
            model = Plain(
                nn.Conv2d(3, 4, 3),
                nn.BatchNorm2d(4),
                nn.LeakyReLU(0.2),
                nn.Flatten(),
                nn.Linear(144, 3),
            )
        grad = grad_energy(model, execution)(x, None)[1]
        found.append((grad, model.net[1].running_mean, model.net[1].num_batches_tracked))
        assert all(parameter.requires_grad for parameter in model.parameters())
    for plain, traced in zip(*found, strict=True):
        torch.testing.assert_close(plain, traced)
