"""The weights that chains see give the numbers that the model's own give, bit for bit."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from jembench import seeds
from jembench.catalog import registry
from jembench.interfaces import ChainState, DataSpec
from jembench.models.energies import LogitModel, grad_energy
from jembench.models.execution import Execution, mode
from jembench.models.weights import ChainWeights
from jembench.sampling import chain
from jembench.sampling.sgld import Langevin, ShortRun

DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=4)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def make(spec):
    with seeds.initialising(0):
        return registry.resolve("models", spec).make(DATA)


def dtypes(model):
    return {name: weight.dtype for name, weight in model.named_parameters()}


def of_chain(model, precision, *, still, train=False):
    """The end of a chain, with or without the weights that it should see."""
    sampler = ShortRun(DATA, Langevin(steps=3, step_size=1.0, noise=0.01))
    weights = ChainWeights(model, DATA, precision if still else "float32")
    start = ChainState(torch.rand(5, *DATA.shape, generator=seeded(1)), torch.arange(5) % 4)
    with mode(model, train=train), weights.still():
        return chain.run(sampler, start, grad_energy(model, Execution(precision=precision)), seeded(2)).x


@pytest.mark.parametrize(
    ("spec", "train"),
    [
        ("jem:net=small-4", False),
        ("jem:net=small-4,norm=batch", True),
        ("jem:net=small-4,norm=layer,dropout=0.5", False),
        ("jem:net=half-4", False),
        ("igebm:width=2", False),
    ],
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_chain_is_the_same_bit_for_bit(spec, train, precision):
    plain, own = make(spec), make(spec)
    for _ in range(2):  # the second time with other weights and other statistics
        expected = of_chain(plain, precision, still=False, train=train)
        assert torch.equal(of_chain(own, precision, still=True, train=train), expected)
        for model in (plain, own):
            with torch.no_grad():
                next(model.parameters()).mul_(1.5)
    assert all(torch.equal(value, own.state_dict()[name]) for name, value in plain.state_dict().items())


def test_convolutions_alone_are_copied_and_the_model_has_its_own_weights_again():
    model = make("jem:net=small-4,norm=batch")
    before = dict(model.named_parameters())
    with pytest.raises(ZeroDivisionError), ChainWeights(model, DATA, "bfloat16").still():  # noqa: PT012
        found = dtypes(model)
        assert not any(weight.requires_grad for weight in model.parameters())
        raise ZeroDivisionError
    layers = {name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)}
    expected = {name for name in before if name.rpartition(".")[0] in layers}
    assert {name for name, dtype in found.items() if dtype == torch.bfloat16} == expected
    assert all(weight is before[name] and weight.requires_grad for name, weight in model.named_parameters())


def test_the_copies_lie_where_they_lay_as_a_captured_graph_wants_them():
    model = make("jem:net=small-4")
    weights, places = ChainWeights(model, DATA, "bfloat16"), []
    for _ in range(2):
        with weights.still():
            places.append([weight.data_ptr() for weight in model.parameters()])
    assert places[0] == places[1]


class Casts(TorchDispatchMode):
    """How many numbers of bfloat16 are made of weights."""

    @classmethod
    def _should_skip_dynamo(cls):
        """PyTorch asks; to skip the compiler it would import it, which takes seconds."""
        return False

    def __init__(self, model):
        super().__init__()
        self.of, self.count = {id(weight) for weight in model.parameters()}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket is torch.ops.aten._to_copy and id(args[0]) in self.of:
            self.count += args[0].numel()
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(("still", "times"), [(False, 3), (True, 0)])
def test_no_step_copies_weights(still, times):
    model = make("jem:net=small-4")
    copied = sum(weight.numel() for weight in model.parameters() if weight.dim() == 4)
    copied += sum(layer.bias.numel() for layer in model.modules() if isinstance(layer, nn.Conv2d))
    weights = ChainWeights(model, DATA, "bfloat16" if still else "float32")
    sampler = ShortRun(DATA, Langevin(steps=3, step_size=1.0, noise=0.01))
    evaluate = grad_energy(model, Execution(precision="bfloat16"))
    with weights.still():  # finds the weights, and copies them
        pass
    with Casts(model) as casts, weights.still():
        chain.run(sampler, ChainState(torch.rand(2, *DATA.shape)), evaluate, seeded())
    assert casts.count == times * copied


class Tied(nn.Module):
    """One weight that is used in bfloat16 and in full, and one that stands in two places."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 4)
        self.again.weight = self.first.weight

    def forward(self, x):
        x = self.again(F.silu(self.first(x[:, :, :2, :2].flatten(1))))
        return self.last(x) / self.last.weight.norm()


def test_a_weight_that_is_used_in_full_as_well_stays_in_full():
    with seeds.initialising(0):
        model = LogitModel(Tied())
    plain = copy.deepcopy(model)
    assert torch.equal(of_chain(model, "bfloat16", still=True), of_chain(plain, "bfloat16", still=False))
    with ChainWeights(model, DATA, "bfloat16").still():
        assert model.net.last.weight.dtype == torch.float32
        assert model.net.first.weight.dtype == model.net.again.weight.dtype == torch.bfloat16
    assert model.net.first.weight is model.net.again.weight
