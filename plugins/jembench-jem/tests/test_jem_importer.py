"""The authors' checkpoints: a synthetic one with their names and shapes, and others that do not fit."""

import pytest
import torch
from torch import nn

from jembench import registry
from jembench.adapters.imported import fit_together
from jembench.errors import CheckpointError
from jembench.interfaces import DataSpec

DATA = DataSpec(name="cifar10", shape=(3, 32, 32), num_classes=10)


class PublishedBlock(nn.Module):
    """A block under the published names, written apart from the network here."""

    def __init__(self, before, after, stride, norm):
        super().__init__()
        self.bn1, self.bn2 = (norm(width) for width in (before, after))
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, stride=stride, padding=1)
        shape_changes = stride != 1 or before != after
        self.shortcut = nn.Sequential(*([nn.Conv2d(before, after, 1, stride=stride)] if shape_changes else []))

    def forward(self, x):
        inner = self.conv1(nn.functional.leaky_relu(self.bn1(x), 0.2))
        return self.conv2(nn.functional.leaky_relu(self.bn2(inner), 0.2)) + self.shortcut(x)


class Published(nn.Module):
    """Depth 10 or 16, width k, with the two heads that nobody uses."""

    def __init__(self, blocks=1, k=2, norm=lambda width: nn.Identity()):
        super().__init__()
        self.f = nn.Module()
        self.f.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        before = 16
        for place, (after, stride) in enumerate([(16 * k, 1), (32 * k, 2), (64 * k, 2)], 1):
            layers = [PublishedBlock(before, after, stride, norm)]
            layers += [PublishedBlock(after, after, 1, norm) for _ in range(blocks - 1)]
            setattr(self.f, f"layer{place}", nn.Sequential(*layers))
            before = after
        self.f.bn1 = norm(before)
        self.f.linear = nn.Linear(before, 10)
        self.class_output = nn.Linear(before, 10)
        self.energy_output = nn.Linear(before, 1)

    def forward(self, x):
        maps = self.f.layer3(self.f.layer2(self.f.layer1(self.f.conv1(x))))
        maps = nn.functional.leaky_relu(self.f.bn1(maps), 0.2)
        return self.class_output(nn.functional.avg_pool2d(maps, 8).flatten(1))


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
    return registry.resolve("importers", "jem").make().read(path, data, model)


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
    found = read(path)
    assert found.model == spec
    assert found.unused == ("energy_output.bias", "energy_output.weight", "f.linear.bias", "f.linear.weight")
    x = torch.rand(4, 3, 32, 32) * 2 - 1
    with torch.no_grad():
        ours = fit_together(found, DATA, path).eval().logits(x)
        torch.testing.assert_close(ours, model(x), atol=1e-5, rtol=1e-5)


def test_the_replay_buffer_becomes_that_of_the_sampler(path):
    checkpoint = write(path, published())
    found = read(path)
    assert found.chains.sampler == "pcd:buffer=20"
    sampler = registry.resolve("samplers", found.chains.sampler).make(DATA)
    sampler.load_state_dict(found.chains.state)
    assert torch.equal(sampler.kept().x, checkpoint["replay_buffer"])


def test_a_checkpoint_without_a_buffer_has_no_chains(path):
    write(path, published(), buffer=0)
    assert read(path).chains is None


def test_a_model_may_be_named(path):
    write(path, published())
    assert read(path, model="baseline:net=wrn-10-2").model == "baseline:net=wrn-10-2"


@pytest.mark.parametrize(
    "norm", [lambda width: nn.InstanceNorm2d(width, affine=True), lambda width: nn.GroupNorm(1, width)]
)
def test_norms_that_look_the_same_must_be_named(norm, path):
    write(path, published(norm=norm))
    with pytest.raises(CheckpointError, match="norm=instance, or norm=layer"):
        read(path)
    fit_together(read(path, model="jem:net=wrn-10-2,norm=layer"), DATA, path)


def test_other_networks_are_refused(path):
    torch.save({"model_state_dict": nn.Linear(3, 3).state_dict()}, path)
    with pytest.raises(CheckpointError, match="holds no wide residual network in the names that JEM's authors use"):
        read(path)


def test_another_number_of_classes_is_listed(path):
    write(path, published())
    data = DataSpec(name="cifar100", shape=(3, 32, 32), num_classes=100)
    with pytest.raises(CheckpointError, match=r"net.class_output.weight is \(10, 128\) instead of \(100, 128\)"):
        fit_together(read(path, data), data, path)


@pytest.mark.parametrize(("buffer", "text"), [(torch.rand(5, 1, 8, 8), r"\(5, 1, 8, 8\)"), ("images", "str")])
def test_a_replay_buffer_of_another_shape_is_told_of(buffer, text, path):
    torch.save({"model_state_dict": published().state_dict(), "replay_buffer": buffer}, path)
    with pytest.raises(CheckpointError, match=f"The replay buffer in .* is {text}; it must be"):
        read(path)
