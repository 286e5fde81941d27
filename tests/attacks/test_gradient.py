"""When the gradient that attacks follow is compiled, in batches of which sizes, and what happens where it cannot be."""

import warnings

import pytest
import torch
from hyperplane import DATA, Linear

from jembench.attacks import gradient
from jembench.attacks.gradient import FULL, LONG, REST
from jembench.attacks.target import Target
from jembench.errors import Fallback
from jembench.interfaces import DataSpec
from jembench.models import devices, predictions
from jembench.models.execution import Execution


@pytest.fixture
def sizes(monkeypatch):
    """The batches that were compiled, by a compiler that does nothing, on a device where networks are compiled."""
    seen = []

    def compiler(function, **_):
        return lambda x, y: seen.append(len(x)) or function(x, y)

    monkeypatch.setattr(torch, "compile", compiler)
    monkeypatch.setattr(devices, "execution", lambda data, device: Execution(compiled=True))
    monkeypatch.setattr(predictions, "CPU_BATCH", 1000)
    return seen


def images(count):
    x = torch.rand(count, *DATA.shape, generator=torch.Generator().manual_seed(count))
    return x, torch.arange(count) % 2


def attacked_for_long(model, monkeypatch):
    """A new attack on a model that was attacked before."""
    Target(model, DATA).slope(*images(1))
    monkeypatch.setattr(gradient, "LONG", 1)
    return Target(model, DATA)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [REST]), (REST, [REST]), (REST + 1, [REST] * 2), (FULL - 1, [FULL]), (300, [FULL] * 2 + [REST] * 2)],
)
def test_batches_of_two_sizes_give_the_plain_gradient(sizes, monkeypatch, count, expected):
    model, (x, y) = Linear(), images(count)
    plain = Target(model, DATA).slope(x, y)
    found = attacked_for_long(model, monkeypatch).slope(x, y)
    assert sizes == expected
    torch.testing.assert_close(found.gradient, plain.gradient)
    assert torch.equal(found.wrong, plain.wrong)


def test_a_short_attack_is_not_compiled(sizes):
    target = Target(Linear(), DATA)
    target.slope(*images(2))
    assert LONG > 41  # an attempt, which ends before a compiler would
    assert sizes == []


def test_logits_of_the_images_that_fill_a_batch_count_for_nothing(sizes, monkeypatch):
    model = Linear()
    target = attacked_for_long(model, monkeypatch)
    assert target.slope(*images(3)).wrong.shape == (3,)
    assert target.passes == 3


def test_never_on_a_cpu(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("compiled"))
    monkeypatch.setattr(predictions, "CPU_BATCH", 1000)
    large = DataSpec(name="large", shape=(3, 32, 32), num_classes=2)
    monkeypatch.setattr(gradient, "LONG", 0)
    model = Linear()
    model.weight = torch.nn.Parameter(torch.ones(2, 3072))
    Target(model, large).slope(torch.rand(2, *large.shape), torch.tensor([0, 1]))


class Random(Linear):
    copies = passes = 1


class Refuses(Linear):
    compiles = False


@pytest.mark.parametrize("model", [Random(), Refuses()])
def test_what_cannot_be_compiled_is_not_tried(sizes, monkeypatch, model):
    attacked_for_long(model, monkeypatch).slope(*images(3))
    assert sizes == []


def test_a_gpu_that_does_not_hold_a_full_batch_compiles_none(sizes, monkeypatch):
    monkeypatch.setattr(predictions, "CPU_BATCH", FULL - 1)
    attacked_for_long(Linear(), monkeypatch).slope(*images(3))
    assert sizes == []


def test_a_compiler_that_fails_is_tried_once_for_a_model(sizes, monkeypatch):
    def fails(function, **_):
        sizes.append("tried")
        raise OSError("no C++ compiler")

    model, (x, y) = Linear(), images(5)
    plain = Target(model, DATA).slope(x, y)
    monkeypatch.setattr(torch, "compile", fails)
    with pytest.warns(Fallback, match="no C\\+\\+ compiler"):
        first = attacked_for_long(model, monkeypatch).slope(x, y)
    seen = model.seen
    with warnings.catch_warnings(action="error"):
        second = Target(model, DATA).slope(x, y)
    assert sizes == ["tried"]
    assert model.seen == seen + 5  # no longer filled up
    for found in (first, second):
        torch.testing.assert_close(found.gradient, plain.gradient)
