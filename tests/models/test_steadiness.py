"""Outputs that are random or depend on the batch are found; rounding is not."""

import pytest
import torch

from jembench.interfaces import DataSpec
from jembench.models.nets import build_net
from jembench.models.steadiness import unsteady

DATA = DataSpec(name="toy", shape=(1, 8, 8), num_classes=3)
CPU = torch.device("cpu")
RANDOM, BATCH = "it draws random numbers", "depend on the other images of a pass"


def images(n=9):
    return torch.randint(
        256, (n, *DATA.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


class Model(torch.nn.Module):
    """The mean and two pixels as logits, and what a function makes of them; the energy is their
    sum.
    """

    def __init__(self, change=lambda f: f):
        super().__init__()
        self.change, self.passes = change, 0
        self.register_buffer("seen", torch.zeros(()))

    def logits(self, x):
        self.passes += 1
        self.seen += len(x)
        pixels = x.flatten(1)
        return self.change(torch.cat([pixels.mean(1, keepdim=True), pixels[:, :2]], dim=1))

    def energy(self, x, y=None):
        return self.logits(x).sum(1)


def _attention(f):
    return torch.softmax(f @ f.t(), dim=1) @ f


UNSTEADY = {
    "dropout": (lambda f: torch.nn.functional.dropout(f, 0.1), RANDOM),
    "a little noise": (lambda f: f + 0.05 * torch.randn_like(f), RANDOM),
    "statistics of the batch": (lambda f: (f - f.mean(0)) / f.std(0), BATCH),
    "attention over the batch": (_attention, BATCH),
    "the first image": (lambda f: f - 0.5 * f[:1], BATCH),
    "a small part of the mean of the batch": (lambda f: f - 0.1 * f.mean(), BATCH),
    "the size of the batch": (lambda f: f / len(f), BATCH),
    "the place in the batch": (lambda f: f + 0.1 * torch.arange(len(f))[:, None], BATCH),
    "huge energies": (lambda f: 1e4 + 30 * (f - f[:1]), BATCH),
}


@pytest.mark.parametrize("quantity", ["logits", "energy"])
@pytest.mark.parametrize(("change", "remark"), UNSTEADY.values(), ids=UNSTEADY)
def test_unsteady_outputs_are_found_and_told_apart(change, remark, quantity):
    model = Model(change)
    before = torch.get_rng_state()
    assert remark in unsteady(model, images(), DATA, CPU, {quantity})
    assert torch.equal(torch.get_rng_state(), before)
    assert model.seen == 0


class Counter(Model):
    """Changes with each pass."""

    def logits(self, x):
        return super().logits(x) + self.passes


def test_a_model_that_changes_in_evaluation_is_found():
    assert "or changes in evaluation" in unsteady(Counter(), images(), DATA, CPU, {"logits"})


@pytest.mark.parametrize("net", ["small-8", "mlp-16", "half-8"])
@pytest.mark.parametrize("norm", ["none", "batch", "instance", "layer"])
def test_networks_of_this_project_are_steady(net, norm):
    if net == "mlp-16" and norm != "none":
        return
    torch.manual_seed(0)
    made = build_net(net, DATA, norm=norm, dropout=0.0 if net == "mlp-16" else 0.5)
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model = Model()
    model.logits = lambda x: made(x)
    model.net = made
    assert unsteady(model, images(), DATA, CPU, {"logits"}) == ""
    made.train()
    # in evaluation mode during the passes
    assert unsteady(model, images(), DATA, CPU, {"logits"}) == ""


def test_steady_outputs_take_two_passes_and_failures_are_left_to_the_metrics():
    model = Model()
    assert unsteady(model, images(), DATA, CPU, {"logits"}) == ""
    assert model.passes == 2
    assert unsteady(model, images(1), DATA, CPU, {"logits"}) == ""
    assert unsteady(Model(lambda f: f / 0), images(), DATA, CPU, {"logits"}) == ""
    assert unsteady(Model(lambda f: f[1:]), images(), DATA, CPU, {"logits"}) == ""
    assert unsteady(Model(lambda f: f[:, 0] / 0), images(), DATA, CPU, {"energy"}) == ""
