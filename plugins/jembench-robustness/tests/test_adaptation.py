"""Test-time adaptation: one step of each by hand, and a fit that it leaves unchanged."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jembench
from jembench.interfaces import DataSpec
from jembench.parts import LogitModel
from jembench.plugin import NotApplicable, resolve
from jembench_robustness.adaptation import TEA, BatchStatistics, Tent

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
RATE = 0.05
PLAIN = torch.ones(5), torch.zeros(5)
ADAPTATIONS = ["none", "norm", "tent", 'tea:sampler="pcd:steps=1,buffer=500"']


def small_net(*norm):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 5, 3), *norm, nn.SiLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(20, 3)
    )
    return LogitModel(net)


@pytest.fixture
def model():
    norm = nn.BatchNorm2d(5)
    norm.running_mean += 3  # of a training on other images
    return small_net(norm)


@pytest.fixture
def images():
    return torch.rand(6, *DATA.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def logits_of(x, model, scale, shift):
    """The logits of a batch by its own statistics, the norm written out."""
    conv, *_, head = model.net
    hidden = F.conv2d(x, conv.weight, conv.bias)
    mean, var = (
        hidden.mean(dim=(0, 2, 3), keepdim=True),
        hidden.var(dim=(0, 2, 3), correction=0, keepdim=True),
    )
    hidden = scale[:, None, None] * (hidden - mean) / (var + 1e-5).sqrt() + shift[:, None, None]
    return F.silu(hidden).flatten(1) @ head.weight.T + head.bias


def after_one_step(loss, model):
    """Scale and shift after the first step of Adam, whose moments' biases are corrected: rate g /
    (|g| + 1e-8).
    """
    weights = [weight.clone().requires_grad_() for weight in PLAIN]
    grads = torch.autograd.grad(loss(*weights), weights)
    return [
        weight - RATE * grad / (grad.abs() + 1e-8)
        for weight, grad in zip(weights, grads, strict=True)
    ]


def adapted(adaptation, model, images):
    return adaptation.logits(
        copy.deepcopy(model), images, DATA, generator=torch.Generator().manual_seed(2)
    )


def test_norm_takes_the_statistics_of_each_batch(model, images):
    assert torch.allclose(
        adapted(BatchStatistics(), model, images), logits_of(images, model, *PLAIN)
    )
    order = torch.randperm(6, generator=torch.Generator().manual_seed(2))
    found = adapted(BatchStatistics(batch=4), model, images)  # two batches of three
    for places in order.split(3):
        assert torch.allclose(found[places], logits_of(images[places], model, *PLAIN))


def test_tent_steps_on_the_entropy_and_classifies_before_the_step(model, images):
    def entropy(*weights):
        p = logits_of(batch, model, *weights).softmax(dim=1)
        return -(p * p.log()).sum() / 3

    found = adapted(Tent(batch=3, learning_rate=RATE), model, images)
    first, second = torch.randperm(6, generator=torch.Generator().manual_seed(2)).split(3)
    batch = images[first]
    assert torch.allclose(found[first], logits_of(batch, model, *PLAIN))
    assert torch.allclose(
        found[second], logits_of(images[second], model, *after_one_step(entropy, model))
    )


def test_tea_steps_on_the_energy_of_images_less_that_of_samples_and_classifies_after_the_step(
    model, images
):
    spec = "pcd:steps=2,step_size=0.1,noise=0.01,buffer=20"
    found = adapted(TEA(learning_rate=RATE, sampler=spec), model, images)
    generator = torch.Generator().manual_seed(2)
    torch.randperm(6, generator=generator)
    x = resolve("samplers", spec).make(DATA).init(6, generator=generator).x
    assert x.abs().max() <= 1
    for _ in range(2):
        x = x.detach().requires_grad_()
        (ascent,) = torch.autograd.grad(logits_of(x, model, *PLAIN).logsumexp(dim=1).sum(), x)
        x = x + 0.1 * ascent + 0.01 * torch.randn(x.shape, generator=generator)

    def contrast(*weights):
        energies = [
            -logits_of(of, model, *weights).logsumexp(dim=1).mean() for of in (images, x.detach())
        ]
        return energies[0] - energies[1]

    expected = logits_of(images, model, *after_one_step(contrast, model))
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found, logits_of(images, model, *PLAIN), atol=1e-2)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        ([], "has no batch norm.*baseline:norm=batch"),
        ([nn.BatchNorm2d(5, affine=False)], "neither scales nor shifts"),
    ],
)
def test_a_network_without_anything_to_adapt_is_refused_in_words(norm, message, images):
    with pytest.raises(NotApplicable, match=message):
        adapted(TEA(), small_net(*norm), images)


def test_a_trained_fit_stays_as_it_is_on_disk_and_in_memory(tmp_path):
    model = "baseline:net=small-2,norm=batch"
    fit = jembench.train(model, settings={"epochs": 1}, store=tmp_path, progress=False)
    before = {name: tensor.clone() for name, tensor in fit.model.state_dict().items()}
    written = (fit.folder / "model.safetensors").read_bytes()
    specs = [
        resolve("metrics", f'shift:set="corrupted:by=fog",adapt={json.dumps(name)}')
        for name in ADAPTATIONS
    ]
    found = {
        name: metric.make().compute(fit._evaluation).values
        for name, metric in zip(ADAPTATIONS, specs, strict=True)
    }
    assert {tuple(values) for values in found.values()} == {
        ("accuracy", "ece", "auroc"),
        ("accuracy", "ece"),
    }
    assert len({values["ece"].value for values in found.values()}) == len(ADAPTATIONS)
    assert fit.model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in fit.model.state_dict().items())
    assert all(weight.requires_grad for weight in fit.model.parameters())
    assert (fit.folder / "model.safetensors").read_bytes() == written
