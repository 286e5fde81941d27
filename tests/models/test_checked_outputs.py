"""Outputs of networks, on every path that reads them."""

import types

import numpy as np
import pytest
import torch

from jembench.attacks.gradient import logits_of
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Target
from jembench.data.pixels import to_float
from jembench.errors import PluginError
from jembench.interfaces import Batch, DataSpec, Energies, Loss
from jembench.models import predictions
from jembench.models.energies import LogitModel, energy_function, grad_energy
from jembench.models.objective import Weights, checked_loss, hybrid_loss

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
CPU = torch.device("cpu")


def images(n=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, *DATA.shape), dtype=torch.uint8, generator=generator)


class Net(torch.nn.Module):
    """Three pixels as logits, and what a function makes of them."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x.flatten(1)[:, :3])


class Plain(Net):
    """A classifier without annotations, whose energies follow from its logits."""

    energy_follows_from_logits = True

    def logits(self, x):
        return self(x)

    def energy(self, x, y=None):
        raise AssertionError("it follows from the logits")


class OfEnergy(torch.nn.Module):
    """Has an energy alone."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def energy(self, x):
        return self.change(x.flatten(1).sum(1))


WRONG_LOGITS = {
    "too few columns": lambda f: f[:, :2],
    "an image less": lambda f: f[1:],
    "one number an image": lambda f: f[:, 0],
    "a further dimension": lambda f: f[:, None],
    "squeezed": lambda f: f.mean(0),
    "complex": lambda f: f.to(torch.complex64),
    "whole numbers": lambda f: f.long(),
    "booleans": lambda f: f > 0,
    "sparse": lambda f: f.to_sparse(),
    "a tuple": lambda f: (f, f),
    "a dictionary": lambda f: {"out": f},
    "a NumPy array": lambda f: f.detach().numpy(),
    "nothing": lambda f: None,
}

WRONG_ENERGIES = {
    "a column": lambda e: e[:, None],
    "an image less": lambda e: e[1:],
    "a sum": lambda e: e.sum(),
    "complex": lambda e: e.to(torch.complex64),
    "whole numbers": lambda e: e.long(),
    "a NumPy array": lambda e: e.detach().numpy(),
}


@pytest.mark.parametrize("change", WRONG_LOGITS.values(), ids=WRONG_LOGITS)
def test_logits_of_another_form_are_refused_wherever_they_are_read(change):
    model, shown = Plain(change), images()
    x = shown.float() / 255
    refined = Refined(model, None, steps=0, chains=1, grad="bpda", generator=torch.Generator())
    readers = [
        lambda: predictions.read(model, shown, DATA, CPU, {"logits"}),
        lambda: predictions.read(model, shown, DATA, CPU, {"energy"}),
        lambda: Target(model, DATA).logits(x),
        lambda: Target(model, DATA).slope(x, torch.zeros(5, dtype=torch.int64)),
        lambda: logits_of(refined, DATA, x),
    ]
    for read in readers:
        with pytest.raises(PluginError, match=r"^(Plain.logits|Refined.logits) returns "):
            read()


@pytest.mark.parametrize("change", WRONG_ENERGIES.values(), ids=WRONG_ENERGIES)
def test_energies_of_another_form_are_refused_wherever_they_are_read(change):
    model, x = OfEnergy(change), to_float(images(), DATA.bounds)
    readers = [
        lambda: predictions.read(model, images(), DATA, CPU, {"energy"}),
        lambda: predictions.read(model, images(), DATA, CPU, {"grad-norm"}),
        lambda: energy_function(model)(x),
        lambda: grad_energy(model)(x, None),
    ]
    for read in readers:
        with pytest.raises(
            PluginError, match=r"OfEnergy.energy returns .*return (a dense tensor )?(\(B,\)|real)"
        ):
            read()


def test_a_squeezed_batch_of_one_is_refused():
    model = Plain(torch.squeeze)
    assert len(predictions.read(model, images(2), DATA, CPU, {"logits"})["logits"]) == 2
    with pytest.raises(
        PluginError, match=r"Plain.logits returns \(3,\) for 1 images; return \(B, 3\)"
    ):
        predictions.read(model, images(1), DATA, CPU, {"logits"})


RIGHT = {
    "half precision": lambda f: f.half(),
    "bfloat16": lambda f: f.bfloat16(),
    "double precision": lambda f: f.double(),
    "an output of Hugging Face": lambda f: types.SimpleNamespace(logits=f),
    "not contiguous": lambda f: f.t().contiguous().t(),
}


@pytest.mark.parametrize("change", RIGHT.values(), ids=RIGHT)
def test_other_floating_point_types_and_containers_are_taken(change):
    expected = to_float(images(), DATA.bounds).flatten(1)[:, :3]
    found = predictions.read(LogitModel(Net(change)), images(), DATA, CPU, {"logits"})["logits"]
    assert found.dtype in (torch.float32, torch.float64)
    assert torch.allclose(found.float(), expected, atol=1e-2)


class Reused(torch.nn.Module):
    """Writes all of its outputs into one buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("out", torch.zeros(2, 3))

    def forward(self, x):
        self.out[: len(x)] = x.flatten(1)[:, :3]
        return self.out[: len(x)]


def test_an_output_that_the_next_pass_overwrites_is_copied(monkeypatch):
    monkeypatch.setattr(predictions, "CPU_BATCH", 2)
    expected = to_float(images(), DATA.bounds).flatten(1)[:, :3]
    model = LogitModel(Reused())
    assert torch.equal(predictions.read(model, images(), DATA, CPU, {"logits"})["logits"], expected)
    with torch.no_grad():
        assert torch.equal(
            Target(model, DATA).logits((expected.new_ones(1)) * images().float() / 255), expected
        )


class InPlace(torch.nn.Module):
    """Normalises its images where they lie."""

    def forward(self, x):
        x -= 0.5
        return x.flatten(1)[:, :3]


class InPlaceEnergy(InPlace):
    def energy(self, x):
        return self(x).sum(1)

    def logits(self, x):
        return self(x)


def test_a_network_that_changes_its_images_changes_no_others():
    expected = to_float(images(), DATA.bounds).flatten(1)[:, :3] - 0.5
    model, floats = InPlaceEnergy(), to_float(images(), DATA.bounds)
    before = floats.clone()
    found = predictions.read(model, floats, DATA, CPU, {"logits", "energy", "grad-norm"})
    assert torch.equal(floats, before)
    assert torch.equal(found["logits"], expected)
    assert torch.equal(found["energy"], expected.sum(1))
    assert torch.allclose(found["grad-norm"], torch.full((5,), 3**0.5))
    energies, gradients = grad_energy(model)(floats, None)
    with torch.no_grad():
        assert torch.equal(energy_function(model)(floats), energies)
    assert torch.equal(floats, before)
    assert gradients.shape == floats.shape


class Learner(torch.nn.Module):
    """Has batch norm, so that each batch passes alone."""

    def __init__(self, net):
        super().__init__()
        self.net = torch.nn.Sequential(net, torch.nn.BatchNorm1d(3))

    def logits(self, x):
        return self.net(x)


def test_training_reads_images_that_no_pass_has_changed():
    x = to_float(images(), DATA.bounds)
    batch = Batch(x.clone(), x.clone(), torch.tensor([0, 1, 2, 0, 1]))
    hybrid_loss(Learner(InPlace()), batch, None, Weights(cross_entropy=1))
    assert torch.equal(batch.x_labelled, x)
    with pytest.raises(PluginError, match=r"Learner.logits returns \(4, 3\) for 5 images"):
        hybrid_loss(Learner(Net(lambda f: f[1:])), batch, None, Weights(cross_entropy=1))


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        (
            Loss(torch.zeros(1), {}),
            r"has total of shape \(1,\), torch.float32; it must be \(\) and real",
        ),
        (Loss(torch.zeros(()), {"a": torch.zeros(2)}), r"has a of shape \(2,\)"),
        (Loss(torch.zeros((), dtype=torch.complex64), {}), "has total of shape .*complex64"),
        (
            Loss(torch.zeros(()), {}, Energies(torch.zeros(3, 1), torch.zeros(3))),
            r"energies.data of shape \(3, 1\)",
        ),
    ],
)
def test_a_loss_that_would_be_broadcast_is_refused(loss, wrong):
    with pytest.raises(PluginError, match=wrong):
        checked_loss(loss, np)
