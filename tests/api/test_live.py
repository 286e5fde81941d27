"""Modules of a program: each is measured under its own identity."""

import copy
import functools
import os
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jembench as jb
from jembench.api.live import model_spec
from jembench.catalog import registry
from jembench.errors import PluginError, Remark, SpecError

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* are also among its training:jembench.errors.Remark"
)


class Divided(nn.Module):
    """Logits divided by a temperature, which is a plain attribute."""

    def __init__(self, temperature=1.0):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        self.temperature = temperature
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.1)
        with torch.no_grad():
            self.net[1].weight[1] += 1

    def forward(self, x):
        return self.net(x) / self.temperature


@pytest.fixture
def loss(tmp_path):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (30, 4, 4), dtype=torch.uint8, generator=generator)
    labels = torch.arange(30) % 3
    data = {"train": (images, labels), "test": (images, labels)}

    def measure(model, folder=tmp_path):
        (record,) = jb.run(
            "hybrid", models=model, datasets=data, metrics="nll", store=folder, progress=False
        )
        logits = model(images[:, None].float() / 127.5 - 1)
        assert record.value == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
        return record.value

    return measure


def test_equal_weights_with_another_attribute_have_their_own_numbers(loss):
    net = Divided()
    first = loss(net)
    net.temperature = 1e6
    assert loss(net) == pytest.approx(torch.tensor(3.0).log().item(), abs=1e-4) != first
    handle = net.register_forward_hook(lambda module, x, y: y * 1e6)
    assert loss(net) == pytest.approx(first, rel=1e-3)
    handle.remove()
    net.temperature = 1.0
    assert loss(net) == first


def test_a_tensor_outside_of_the_module_is_the_one_of_the_last_object(loss, tmp_path):
    def hooked(by):
        net = Divided()
        net.register_forward_hook(lambda module, x, y: y * by)
        return net

    outer = torch.tensor(1.0)
    loss(hooked(outer))
    outer.fill_(5.0)  # which changes the object of the first run as well
    loss(hooked(torch.tensor(1.0)), tmp_path / "other")


def test_a_module_that_changes_later_is_measured_as_it_was(monkeypatch):
    net = Divided()
    spec = model_spec(net)
    with torch.no_grad():
        net.net[1].weight.zero_()
    made = registry.resolve("models", spec).make(None)
    made.temperature = 2.0
    assert made.net[1].weight.any()
    assert registry.resolve("models", spec).make(None).temperature == 1.0
    assert model_spec(net) != spec


def test_what_cannot_be_compared_has_a_name_of_its_own_and_a_note():
    net = Divided()
    net.dynamic = functools.partial(lambda x: eval("1") * x)
    with pytest.warns(Remark, match=r"parts that cannot be compared: .*dynamic.*eval\(\)"):
        first = model_spec(net)
    with pytest.warns(Remark):
        assert model_spec(net) != first


class Itself(nn.Module):
    def __deepcopy__(self, memo):
        return self


class Sharing(nn.Linear):
    def __deepcopy__(self, memo):
        return copy.copy(self)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Divided, r'object of the class: Divided\(\), or, .* the text "[\w.]*test_live:Divided"\.'),
        (lambda x: x, "given as function"),
        (Itself(), "same tensors"),
        (Sharing(1, 1), "same tensors"),
        (Divided(threading.Lock()), "Remove what cannot be copied"),
    ],
)
def test_what_is_no_model_is_refused(model, message):
    with pytest.raises(SpecError, match=message):
        model_spec(model)


@pytest.mark.parametrize(
    "net", [nn.LazyLinear(3), nn.Linear(4, 3, device="meta")], ids=["lazy", "meta"]
)
def test_weights_without_values_are_refused(net):
    with pytest.raises(SpecError, match="has weights without values"):
        model_spec(net)


def test_weights_in_float64_are_refused(loss):
    with pytest.raises(PluginError, match="It has weights in float64"):
        loss(nn.Sequential(nn.Flatten(), nn.Linear(16, 3).double()))


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.zeros(2, 1, 4, 4))]
)
@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.:FutureWarning", "ignore:.*torch.jit.:DeprecationWarning"
)
def test_scripts_are_measured(make, loss):
    loss(make(nn.Sequential(nn.Flatten(), nn.Linear(16, 3))))


def test_outputs_that_a_forward_pass_kept_do_not_prevent_a_copy():
    net = Divided()
    net.last = net(torch.zeros(1, 4, 4))
    assert model_spec(net) == model_spec(net)


class Wandering(Divided):
    def forward(self, x):
        os.chdir("/")
        return super().forward(x)


def test_a_model_that_changes_the_folder_moves_no_store(loss, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    first = loss(Wandering(), "runs")
    os.chdir(tmp_path / "here")  # the test itself calls the model
    assert len(list(Path("runs", "cells").iterdir())) == 1
    assert not list(Path("runs", "leases").iterdir())
    assert loss(Wandering(), "runs") == first


@pytest.mark.parametrize(
    ("last", "noticed"), [(nn.Softmax(1), True), (nn.LogSoftmax(1), False), (nn.Identity(), False)]
)
def test_a_softmax_at_the_end_is_noticed_in_the_table(last, noticed, tmp_path):
    images, labels = torch.arange(160, dtype=torch.uint8).reshape(10, 4, 4), torch.arange(10) % 2
    data = {"train": (images, labels), "test": (images, labels)}
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2), last)
    metrics = "nll,ece:data_noise=.03"
    results = jb.run(
        "hybrid", models=net, datasets=data, metrics=metrics, store=tmp_path, progress=False
    )
    assert [("softmax at the end" in record.reason) for record in results] == [noticed, noticed]
    assert ("softmax at the end" in " ".join(str(results).split())) == noticed
