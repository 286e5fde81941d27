"""The authors' checkpoints: a synthetic one with their names and shapes, and others that do not
fit.
"""

import dataclasses

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from jembench.catalog import registry
from jembench.errors import CheckpointError
from jembench.interfaces import DataSpec
from jembench.models.importing import fit_together

SHAPE = (3, 32, 32)
DATA = DataSpec(name="cifar10", shape=SHAPE, num_classes=10)


class PublishedBlock(nn.Module):
    """A block under the published names, written apart from the network here."""

    def __init__(self, before, after, stride, norm):
        super().__init__()
        self.bn1 = norm(before)
        self.bn2 = norm(after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, stride=stride, padding=1)
        shape_changes = stride != 1 or before != after
        self.shortcut = nn.Sequential()
        if shape_changes:
            self.shortcut.append(nn.Conv2d(before, after, 1, stride=stride))

    def forward(self, x):
        relu = nn.functional.leaky_relu
        inner = self.conv1(relu(self.bn1(x), 0.2))
        return self.conv2(relu(self.bn2(inner), 0.2)) + self.shortcut(x)


class Published(nn.Module):
    """Depth 10 or 16, width k, with the two unused heads."""

    def __init__(self, blocks=1, k=2, norm=lambda width: nn.Identity()):
        super().__init__()
        self.f = nn.Module()
        self.f.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        before = 16
        sizes = [(16 * k, 1), (32 * k, 2), (64 * k, 2)]
        for place, (after, stride) in enumerate(sizes, 1):
            layers = [PublishedBlock(before, after, stride, norm)]
            layers += [PublishedBlock(after, after, 1, norm) for _ in range(blocks - 1)]
            setattr(self.f, f"layer{place}", nn.Sequential(*layers))
            before = after
        self.f.bn1 = norm(before)
        self.f.linear = nn.Linear(before, 10)
        self.class_output = nn.Linear(before, 10)
        self.energy_output = nn.Linear(before, 1)

    def forward(self, x):
        maps = self.f.layer1(self.f.conv1(x))
        maps = self.f.layer3(self.f.layer2(maps))
        maps = nn.functional.leaky_relu(self.f.bn1(maps), 0.2)
        pooled = nn.functional.avg_pool2d(maps, 8)
        return self.class_output(pooled.flatten(1))


def published(seed=0, **options):
    torch.manual_seed(seed)
    return Published(**options).eval()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "CIFAR10_MODEL.pt"


def write(path, model, buffer=20):
    checkpoint = {"model_state_dict": model.state_dict()}
    if buffer:
        checkpoint["replay_buffer"] = torch.rand(buffer, 3, 32, 32) * 2 - 1
    torch.save(checkpoint, path)
    return checkpoint


def read(path, data=DATA, model=None):
    importer = registry.resolve("importers", "jem").make()
    return importer.read(path, data, model)


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({}, "jem:net=wrn-10-2"),
        ({"blocks": 2, "k": 1}, "jem:net=wrn-16-1"),
        ({"norm": nn.BatchNorm2d}, "jem:net=wrn-10-2,norm=batch"),
    ],
    ids=["plain", "deeper", "batch norm"],
)
def test_the_network_is_recognised_and_gives_the_same_logits(options, spec, path):
    model = published(**options)
    write(path, model)
    content = read(path)
    assert content.model == spec
    assert content.unused == (
        "energy_output.bias",
        "energy_output.weight",
        "f.linear.bias",
        "f.linear.weight",
    )
    x = torch.rand(4, 3, 32, 32) * 2 - 1
    with torch.no_grad():
        ours = fit_together(content, DATA, path).eval().logits(x)
        assert_close(ours, model(x), atol=1e-5, rtol=1e-5)


def test_the_replay_buffer_becomes_that_of_the_sampler(path):
    checkpoint = write(path, published())
    content = read(path)
    assert content.sampler == "pcd:buffer=20"
    sampler = registry.resolve("samplers", content.sampler).make(DATA)
    sampler.load_state_dict(content.chains)
    assert torch.equal(sampler.kept().x, checkpoint["replay_buffer"])


def test_a_checkpoint_without_a_buffer_has_no_chains(path):
    write(path, published(), buffer=0)
    assert read(path).sampler == ""
    assert read(path).chains == {}


def test_wrappers_and_other_entries_do_no_harm(path):
    checkpoint = write(path, published())
    weights = {
        f"_orig_mod.module.{name}": value for name, value in checkpoint["model_state_dict"].items()
    }
    wrapped = {**checkpoint, "model_state_dict": weights, "ema": checkpoint["model_state_dict"]}
    torch.save(wrapped, path)
    content = read(path)
    torch.save(checkpoint, path)
    assert content.weights.keys() == read(path).weights.keys()


def test_a_model_may_be_named(path):
    write(path, published())
    assert read(path, model="baseline:net=wrn-10-2").model == "baseline:net=wrn-10-2"


@pytest.mark.parametrize(
    "norm",
    [lambda width: nn.InstanceNorm2d(width, affine=True), lambda width: nn.GroupNorm(1, width)],
)
def test_norms_that_look_the_same_must_be_named(norm, path):
    write(path, published(norm=norm))
    with pytest.raises(CheckpointError, match="norm=instance, or norm=layer"):
        read(path)
    fit_together(read(path, model="jem:net=wrn-10-2,norm=layer"), DATA, path)


def test_other_networks_are_refused(path):
    weights = nn.Linear(3, 3).state_dict()
    torch.save({"model_state_dict": weights}, path)
    with pytest.raises(
        CheckpointError, match="holds no wide residual network in the names that JEM's authors use"
    ):
        read(path)


def test_another_number_of_classes_is_listed(path):
    write(path, published())
    shape = (3, 32, 32)
    data = DataSpec(name="cifar100", shape=shape, num_classes=100)
    with pytest.raises(
        CheckpointError, match=r"net.class_output.weight is \(10, 128\) instead of \(100, 128\)"
    ):
        fit_together(read(path, data), data, path)


@pytest.mark.parametrize(
    "weight", [torch.tensor(3.0), torch.ones(16), torch.ones(0, 16, 3, 3), torch.ones(20, 16, 3, 3)]
)
def test_a_kernel_that_is_none_is_refused(weight, path):
    checkpoint = write(path, published())
    checkpoint["model_state_dict"]["f.layer1.0.conv1.weight"] = weight
    torch.save(checkpoint, path)
    with pytest.raises(CheckpointError, match="holds no wide residual network"):
        read(path)


def with_buffer(path, buffer):
    weights = published().state_dict()
    torch.save({"model_state_dict": weights, "replay_buffer": buffer}, path)
    return path


def chains(n=30):
    """Half uniform noise, half mostly grey, within [-1, 1]."""
    torch.manual_seed(1)
    noise = torch.rand(n, 3, 32, 32) * 2 - 1
    grey = torch.randn(n, 3, 32, 32).clamp(-2, 2) / 2
    return torch.cat([noise, grey])


@pytest.mark.parametrize(
    ("buffer", "text"),
    [
        (
            torch.rand(5, 1, 8, 8),
            r"is \(5, 1, 8, 8\); it must be \(N, 3, 32, 32\) with N of 1 or more",
        ),
        (
            torch.rand(0, 3, 32, 32),
            r"is \(0, 3, 32, 32\); it must be \(N, 3, 32, 32\) with N of 1 or more",
        ),
        (torch.tensor(1.0), r"is \(\); it must be"),
        ("images", "is str; it must be"),
        (chains().to_sparse(), "is not stored as plain numbers"),
        (chains().to("meta"), "is not stored as plain numbers"),
        (((chains() + 1) * 127).to(torch.uint8), "holds uint8; chains are floating-point numbers"),
        (chains().to(torch.complex64), "holds complex64; chains are floating-point numbers"),
        (
            torch.cat([chains(), torch.full((1, 3, 32, 32), torch.nan)]),
            "holds numbers that are not finite",
        ),
        (
            torch.cat([chains(), torch.full((1, 3, 32, 32), torch.inf)]),
            "holds numbers that are not finite",
        ),
    ],
)
def test_a_replay_buffer_that_is_none_is_told_of(buffer, text, path):
    with pytest.raises(
        CheckpointError,
        match=f"The replay buffer in {path} {text}.* Save it as it was trained, or take",
    ):
        read(with_buffer(path, buffer))


@pytest.mark.parametrize(
    ("bounds", "images"),
    [
        ((-1.0, 1.0), (chains() + 1) / 2),
        ((-1.0, 1.0), (chains() + 1) / 2 + 0.1 * torch.randn(60, 3, 32, 32)),
        ((-1.0, 1.0), (chains() + 1) * 127.5),
        ((-1.0, 1.0), (chains() > 0.8) * 255.0),
        ((0.0, 1.0), chains()),
        ((0.0, 1.0), (chains() + 1) * 127.5),
    ],
    ids=[
        "0..1",
        "0..1, not clamped",
        "0..255",
        "0..255, mostly black",
        "-1..1 for 0..1",
        "0..255 for 0..1",
    ],
)
def test_pixels_in_another_range_are_told_of(bounds, images, path):
    data = dataclasses.replace(DATA, bounds=bounds)
    interval = rf"\[{bounds[0]:g}, {bounds[1]:g}\]"
    range_ = f"has pixels between .*, unlike chains of a model whose images lie in {interval}"
    with pytest.raises(CheckpointError, match=range_):
        read(with_buffer(path, images), data)


def stray():
    """Chains of which one has diverged."""
    images = chains(300)
    images[7] *= 1e4
    return images


@pytest.mark.parametrize(
    ("bounds", "images"),
    [
        ((-1.0, 1.0), chains()),
        ((0.0, 1.0), (chains() + 1) / 2),
        ((-1.0, 1.0), chains().half()),
        ((-1.0, 1.0), chains() + 0.2 * torch.randn(60, 3, 32, 32)),
        ((-1.0, 1.0), stray()),
        ((-1.0, 1.0), (chains() > 0.8) * 2.0 - 1),
    ],
    ids=["within", "0..1", "half", "moved by noise", "one of 600 diverged", "mostly black"],
)
def test_chains_are_not_clamped_and_need_not_be(bounds, images, path):
    data = dataclasses.replace(DATA, bounds=bounds)
    content = read(with_buffer(path, images), data)
    assert torch.equal(content.chains["images"], images.float())
