"""Test-time adaptation: one step of each by hand, and a fit that it leaves unchanged."""

import copy
import json

import pytest
import torch
from fake_evaluation import FakeEvaluation, random_images
from torch import Generator, nn
from torch.nn import functional as F

import jembench
from jembench.data.images import Images
from jembench.interfaces import DataSpec
from jembench.parts import LogitModel
from jembench.plugin import NotApplicable, resolve
from jembench_robustness.adaptation import TEA, BatchStatistics, Tent
from jembench_robustness.shift_metric import adapted_logits

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
RATE = 0.05
PLAIN = torch.ones(5), torch.zeros(5)
ADAPTATIONS = ["none", "norm", "tent", 'tea:sampler="pcd:steps=1,buffer=500"']


def small_net(*norm):
    torch.manual_seed(0)
    layers = (nn.SiLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(20, 3))
    net = nn.Sequential(nn.Conv2d(1, 5, 3), *norm, *layers)
    return LogitModel(net)


@pytest.fixture
def model():
    norm = nn.BatchNorm2d(5)
    norm.running_mean += 3  # of a training on other images
    return small_net(norm)


@pytest.fixture
def images():
    generator = Generator().manual_seed(1)
    return torch.rand(6, *SHAPE, generator=generator) * 2 - 1


def logits_of(x, model, scale, shift):
    """Return the logits of a batch by its own statistics."""
    conv, *_, head = model.net
    hidden = F.conv2d(x, conv.weight, conv.bias)
    mean = hidden.mean(dim=(0, 2, 3), keepdim=True)
    dim = (0, 2, 3)
    var = hidden.var(dim=dim, correction=0, keepdim=True)
    normalised = (hidden - mean) / (var + 1e-5).sqrt()
    hidden = scale[:, None, None] * normalised + shift[:, None, None]
    return F.silu(hidden).flatten(1) @ head.weight.T + head.bias


def after_one_step(loss, model):
    """Return scale and shift after the first step of Adam.

    Its moments' biases are corrected: rate g / (|g| + 1e-8).
    """
    weights = [weight.clone().requires_grad_() for weight in PLAIN]
    grads = torch.autograd.grad(loss(*weights), weights)
    pairs = zip(weights, grads, strict=True)
    return [weight - RATE * grad / (grad.abs() + 1e-8) for weight, grad in pairs]


def adapted(adaptation, model, images):
    generator = Generator().manual_seed(2)
    return adaptation.logits(copy.deepcopy(model), images, DATA, generator=generator)


def test_norm_takes_the_statistics_of_each_batch(model, images):
    logits = adapted(BatchStatistics(), model, images)
    assert torch.allclose(logits, logits_of(images, model, *PLAIN))
    generator = Generator().manual_seed(2)
    order = torch.randperm(6, generator=generator)
    logits = adapted(BatchStatistics(batch=4), model, images)  # two batches of three
    for places in order.split(3):
        expected = logits_of(images[places], model, *PLAIN)
        assert torch.allclose(logits[places], expected)


def test_tent_steps_on_the_entropy_and_classifies_before_the_step(model, images):
    def entropy(*weights):
        p = logits_of(batch, model, *weights).softmax(dim=1)
        return -(p * p.log()).sum() / 3

    logits = adapted(Tent(batch=3, learning_rate=RATE), model, images)
    generator = Generator().manual_seed(2)
    first, second = torch.randperm(6, generator=generator).split(3)
    batch = images[first]
    assert torch.allclose(logits[first], logits_of(batch, model, *PLAIN))
    stepped = after_one_step(entropy, model)
    expected = logits_of(images[second], model, *stepped)
    assert torch.allclose(logits[second], expected)


def test_tea_steps_on_the_energy_of_images_less_that_of_samples_and_classifies_after_the_step(
    model, images
):
    spec = "pcd:steps=2,step_size=0.1,noise=0.01,buffer=20"
    logits = adapted(TEA(learning_rate=RATE, sampler=spec), model, images)
    generator = Generator().manual_seed(2)
    torch.randperm(6, generator=generator)
    sampler = resolve("samplers", spec).make(DATA)
    x = sampler.init(6, generator=generator).x
    assert x.abs().max() <= 1
    for _ in range(2):
        x = x.detach().requires_grad_()
        density = logits_of(x, model, *PLAIN).logsumexp(dim=1)
        (ascent,) = torch.autograd.grad(density.sum(), x)
        noise = torch.randn(x.shape, generator=generator)
        x = x + 0.1 * ascent + 0.01 * noise

    def contrast(*weights):
        energies = [
            -logits_of(of, model, *weights).logsumexp(dim=1).mean() for of in (images, x.detach())
        ]
        return energies[0] - energies[1]

    expected = logits_of(images, model, *after_one_step(contrast, model))
    assert torch.allclose(logits, expected, atol=1e-5)
    plain = logits_of(images, model, *PLAIN)
    assert not torch.allclose(logits, plain, atol=1e-2)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_images_that_are_read_in_parts_give_the_same_logits(model, noise):
    pixels = random_images(30, 0)
    rows = torch.arange(30)
    lazy = Images(pixels.__getitem__, rows, SHAPE)
    logits = []
    for images in (pixels, lazy):
        evaluation = FakeEvaluation(model=model, sets={"shifted": images})
        tent = resolve("adaptations", "tent:batch=7")
        logits.append(adapted_logits(tent, evaluation, "shifted", noise))
    assert torch.equal(*logits)


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
    values = {}
    for name, metric in zip(ADAPTATIONS, specs, strict=True):
        values[name] = metric.make().compute(fit._evaluation).values
    labels = {tuple(of_metric) for of_metric in values.values()}
    assert labels == {("accuracy", "ece", "auroc"), ("accuracy", "ece")}
    errors = {of_metric["ece"].value for of_metric in values.values()}
    assert len(errors) == len(ADAPTATIONS)
    assert fit.model.state_dict().keys() == before.keys()
    for name, tensor in fit.model.state_dict().items():
        assert torch.equal(tensor, before[name])
    for weight in fit.model.parameters():
        assert weight.requires_grad
    assert (fit.folder / "model.safetensors").read_bytes() == written
