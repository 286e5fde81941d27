"""The baseline: what it is to jembench, its loss against a hand-made case, and that its package is
light.
"""

import pytest
import torch
from torch import Generator, nn
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.interfaces import Batch, Classifier, DataSpec, Density, Energy, Generative, Trainable
from jembench_wrn.model import Baseline

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)


def batch(data, size=4):
    generator = Generator().manual_seed(0)
    x, x_labelled = (torch.rand(size, *data.shape, generator=generator) * 2 - 1 for _ in range(2))
    classes = torch.randint(data.num_classes, (size,), generator=generator)
    return Batch(x, x_labelled, classes)


def test_is_found_through_its_entry_point():
    resolved = registry.resolve("models", "baseline:norm=batch")
    model = resolved.make(DIGITS)
    assert str(resolved) == "baseline:norm=batch"
    assert resolved.component.distribution == "jembench-wrn"
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def test_default_has_no_norm_and_takes_the_small_net_on_digits():
    model = registry.resolve("models", "baseline").make(DIGITS)
    assert sum(p.numel() for p in model.parameters()) == 77_418


def test_unknown_norm_is_answered_with_the_known_ones():
    with pytest.raises(SpecError, match="none, batch, instance, layer"):
        registry.resolve("models", "baseline:norm=spectral")


def test_classifies_and_has_an_energy_but_generates_nothing():
    model = registry.resolve("models", "baseline").make(DIGITS)
    assert isinstance(model, Classifier)
    assert isinstance(model, Energy)
    assert isinstance(model, Trainable)
    assert not isinstance(model, Generative)
    assert not isinstance(model, Density)
    assert model.chains == "none"


def test_loss_is_the_mean_surprise_of_the_labels():
    shape = (1, 1, 2)
    data = DataSpec(name="pixels", shape=shape, num_classes=2)
    model = Baseline(nn.Flatten())  # the two pixels are the logits
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).view(2, *data.shape)
    labelled = Batch(torch.full_like(x, torch.nan), x, torch.tensor([1, 0]))
    loss = model.training_loss(labelled, None)
    surprises = torch.log1p(torch.tensor([-1.0, -2.0]).exp())
    expected = surprises.mean()
    assert_close(loss.total, expected)
    assert loss.parts.keys() == {"cross_entropy"}
    assert_close(loss.parts["cross_entropy"], expected)
    assert not loss.parts["cross_entropy"].requires_grad


def test_loss_trains_every_parameter():
    torch.manual_seed(0)
    model = registry.resolve("models", "baseline:net=small-4").make(DIGITS)
    model.training_loss(batch(DIGITS), None).total.backward()
    for parameter in model.parameters():
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("norm", ["none", "batch", "instance", "layer"])
def test_learns_with_every_norm(norm):
    with seeds.drawing(0, "initialisation"):
        model = registry.resolve("models", f"baseline:net=small-4,norm={norm}").make(DIGITS)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        loss = model.train().training_loss(batch(DIGITS), None)
        losses.append(loss.total)
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]
