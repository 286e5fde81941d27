"""Sharpness-aware steps against their closed form, averages against a recursion, and states in
memory.
"""

import copy
import functools
import sys

import pytest
import torch
from torch import nn

from jembench.experiment.recipe import Optimizer
from jembench.training.optimizers import (
    WeightAverage,
    load_optimizer,
    make_optimizer,
    sam_perturbation,
)

CURVATURE = torch.tensor([4.0, 0.5, 1.0, 2.0], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -3.0, 0.5, 2.0], dtype=torch.float64)


class Quadratic(nn.Module):
    """L(w) = sum_i a_i w_i^2 / 2, whose gradient is a w, in two parameters; a third has no
    gradient.
    """

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(WEIGHTS[:1].clone())
        self.second = nn.Parameter(WEIGHTS[1:].clone().view(3, 1))
        self.idle = nn.Parameter(torch.ones(2, dtype=torch.float64))

    @property
    def weights(self):
        return torch.cat([self.first, self.second.flatten()])

    def differentiate(self):
        self.zero_grad()
        ((CURVATURE * self.weights.square()).sum() / 2).backward()


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("radius", [0.05, 2.0])
def test_the_weights_are_where_the_closed_form_says(radius, adaptive):
    """SAM: w + rho g / |g|. ASAM: w + rho w^2 g / | |w| g |, with joint norms."""
    gradient = CURVATURE * WEIGHTS
    if adaptive:
        expected = WEIGHTS + radius * WEIGHTS**2 * gradient / (WEIGHTS.abs() * gradient).norm()
    else:
        expected = WEIGHTS + radius * gradient / gradient.norm()
    model = Quadratic()
    model.differentiate()
    with sam_perturbation(model, radius, adaptive=adaptive):
        torch.testing.assert_close(model.weights.detach(), expected, rtol=1e-12, atol=0)
        assert torch.equal(model.idle, torch.ones(2, dtype=torch.float64))
        model.differentiate()
    assert torch.equal(model.weights, WEIGHTS)
    found = torch.cat([model.first.grad, model.second.grad.flatten()])
    # the optimiser follows this one
    torch.testing.assert_close(found, CURVATURE * expected, rtol=1e-12, atol=0)


def test_the_weights_come_back_exactly_after_an_error_too():
    torch.manual_seed(0)
    model = nn.Linear(50, 50)
    before = copy.deepcopy(model.state_dict())
    model(torch.randn(3, 50)).square().sum().backward()

    def fail():
        with sam_perturbation(model, 0.3, adaptive=True):
            assert not torch.equal(model.weight, before["weight"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_no_gradient_no_step():
    model = Quadratic()
    with sam_perturbation(model, 1.0, adaptive=True):
        assert torch.equal(model.weights, WEIGHTS)


class Noted(nn.Module):
    """A weight, a buffer of floats and one of integers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.tensor(0))

    def become(self, value):
        with torch.no_grad():
            self.weight.copy_(torch.tensor([value, -value]))
            self.mean.fill_(10 * value)
            self.count.fill_(round(value))


@pytest.mark.parametrize("decay", [0.5, 0.9])
def test_the_average_is_the_recursion(decay):
    """a_t = d_t a_(t-1) + (1 - d_t) w_t with d_t = min(decay, t / (t + 9)): 1/10, 2/11, 3/12 ..."""
    model = Noted()
    model.become(5.0)
    average = WeightAverage(model, decay)
    expected, values = 5.0, [3.0, -1.0, 4.0, 1.5, 9.0, 2.0, -6.0, 5.0, 3.0, 5.0, 8.0, 9.0]
    for t, value in enumerate(values, start=1):
        model.become(value)
        average.update(model, t)
        share = min(decay, t / (t + 9))
        expected = share * expected + (1 - share) * value
        assert average.state["weight"].tolist() == pytest.approx([expected, -expected], rel=1e-5)
        assert float(average.state["mean"]) == pytest.approx(10 * expected, rel=1e-5)
        assert int(average.state["count"]) == round(value)  # integers have no mean
        assert model.weight.tolist() == [value, -value]


def test_the_model_has_the_average_for_a_while_also_if_something_goes_wrong():
    model = Noted()
    average = WeightAverage(model, 0.9)
    model.become(3.0)
    average.update(model, 1)
    kept = {name: value.clone() for name, value in average.state.items()}

    def fail():
        with average.in_place_of(model):
            assert torch.equal(model.weight, kept["weight"])
            assert float(model.mean) == float(kept["mean"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert model.weight.tolist() == [3.0, -3.0]
    assert float(model.mean) == 30.0
    assert all(torch.equal(average.state[name], value) for name, value in kept.items())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            Optimizer(name="adam", learning_rate=0.01, betas=(0.5, 0.9), weight_decay=0.1),
            lambda p: torch.optim.Adam(p, 0.01, betas=(0.5, 0.9), weight_decay=0.1),
        ),
        (
            Optimizer(name="sgd", learning_rate=0.01, momentum=0.8, weight_decay=0.1),
            lambda p: torch.optim.SGD(p, 0.01, momentum=0.8, weight_decay=0.1),
        ),
    ],
    ids=["adam", "sgd"],
)
def test_the_recipe_s_optimiser(options, expected):
    ours, theirs = Quadratic(), Quadratic()
    optimizers = make_optimizer(ours.parameters(), options), expected(theirs.parameters())
    for _ in range(5):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            model.differentiate()
            optimizer.step()
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("adam", torch.optim.Adam),
        ("sgd", functools.partial(torch.optim.SGD, momentum=0.8)),
        ("sgd:nesterov=true", functools.partial(torch.optim.SGD, momentum=0.8, nesterov=True)),
    ],
)
def test_pytorchs_steps_and_states_to_the_last_bit_without_its_compiler(name, plain, monkeypatch):
    options = Optimizer(name=name, learning_rate=0.01, momentum=0.8, weight_decay=0.1)
    theirs = Quadratic()
    expected = plain(theirs.parameters(), lr=0.01, weight_decay=0.1, fused=True)
    for _ in range(6):
        theirs.differentiate()
        expected.step()
    state = expected.state_dict()

    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # its import is an error
    ours = Quadratic()
    optimizer = make_optimizer(ours.parameters(), options)
    for step in range(6):
        if step == 3:
            before = copy.deepcopy(optimizer.state_dict())
            optimizer = make_optimizer(ours.parameters(), options)
            load_optimizer(optimizer, before)
        optimizer.zero_grad()
        ours.differentiate()
        optimizer.step()
    assert torch.equal(ours.weights, theirs.weights)
    found = optimizer.state_dict()
    assert found["param_groups"] == state["param_groups"]
    torch.testing.assert_close(found["state"], state["state"], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_loaded_state_belongs_to_the_weights_whatever_the_layout(name):
    """Files hold contiguous tensors; a fused step pairs weight and momentum by their place in
    memory.
    """
    options = Optimizer(name=name, learning_rate=0.01, momentum=0.9)
    x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))

    def make():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)

    def step(model, optimizer):
        model.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    straight, resumed = make(), make()
    first, second = (make_optimizer(each.parameters(), options) for each in (straight, resumed))
    for _ in range(3):
        step(straight, first)
    state = copy.deepcopy(first.state_dict())
    state["state"] = {
        index: {name: value.contiguous() for name, value in values.items()}
        for index, values in state["state"].items()
    }
    resumed.load_state_dict(straight.state_dict())
    load_optimizer(second, state)
    for _ in range(2):
        step(straight, first)
        step(resumed, second)
    assert torch.equal(straight.weight, resumed.weight)
    assert torch.equal(straight.bias, resumed.bias)
