"""From the text of ``net=`` to a network, and every way in which it can be wrong."""

import sys
import types
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from jembench.errors import PluginError, SpecError
from jembench.interfaces import DataSpec
from jembench.models.energies import LogitModel
from jembench.models.nets import build_net

COLOURS = DataSpec(name="colours", shape=(3, 32, 32), num_classes=7)


@pytest.fixture
def own(monkeypatch):
    """Register a function as ``own_nets:build``."""

    def register(build):
        module = types.ModuleType("own_nets")
        module.build = build
        monkeypatch.setitem(sys.modules, "own_nets", module)
        return "own_nets:build"

    return register


def test_wide_resnet_has_the_depth_and_width_of_its_name():
    net = build_net("wrn-16-2", COLOURS, norm="layer")
    assert len(net.layer1) == 2
    assert net.layer1[0].conv1.out_channels == 32
    assert net(torch.zeros(2, *COLOURS.shape)).shape == (2, 7)


@pytest.mark.parametrize(
    ("size", "maps"),
    [
        ((8, 8), (8, 8)),
        ((28, 28), (14, 14)),
        ((32, 32), (16, 16)),
        ((40, 48), (20, 24)),
        ((64, 64), (16, 16)),
        ((128, 200), (16, 25)),
        ((1, 2), (1, 2)),
    ],
)
def test_scaled_net_works_on_maps_of_about_16_pixels(size, maps):
    net = build_net("scaled-4", DataSpec(name="any", shape=(3, *size), num_classes=2))
    assert net.conv1(torch.zeros(2, 3, *size)).shape == (2, 4, *maps)
    assert net(torch.zeros(2, 3, *size)).shape == (2, 2)


@pytest.mark.parametrize("shape", [(2, 1, 1), (3, 5, 4)])
def test_a_perceptron_takes_any_shape_and_brings_no_norm(shape):
    data = DataSpec(name="any", shape=shape, num_classes=4)
    net = build_net("mlp-8", data)
    assert net(torch.zeros(3, *shape)).shape == (3, 4)
    assert sum(p.numel() for p in net.parameters()) == (data.dimensions + 1) * 8 + 9 * 8 + 9 * 4
    for options in ({"norm": "batch"}, {"dropout": 0.1}):
        with pytest.raises(SpecError, match="no effect on the net mlp-8"):
            build_net("mlp-8", data, **options)


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ((8, 8), "small-16"),
        ((31, 40), "small-16"),
        ((32, 32), "wrn-28-10"),
        ((64, 48), "wrn-28-10"),
    ],
)
def test_auto_goes_by_the_smaller_side(size, name):
    with torch.device("meta"):
        found, named = (
            build_net(text, DataSpec(name="any", shape=(3, *size), num_classes=2))
            for text in ("auto", name)
        )
    assert [p.shape for p in found.parameters()] == [p.shape for p in named.parameters()]


@pytest.mark.parametrize(
    "text",
    [
        "wrn",
        "wrn-28",
        "wrn-28-0",
        "wrn-28-2-1",
        "small",
        "small-0",
        "half-0",
        "resnet-50",
        "",
        "WRN-28-2",
    ],
)
def test_unknown_text_names_the_forms(text):
    with pytest.raises(
        SpecError,
        match=r"There is no net named.*wrn-DEPTH-WIDTH.*small-WIDTH.*auto.*mypackage\.nets:build",
    ):
        build_net(text, COLOURS)


def test_unlabelled_data_have_no_logits():
    with pytest.raises(SpecError, match="faces is unlabelled"):
        build_net("auto", DataSpec(name="faces", shape=(3, 32, 32), num_classes=0))


def test_own_net_is_called_with_the_data_and_comes_back_as_it_was(own):
    seen = []

    def build(data):
        seen.append(data)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(data.dimensions, data.num_classes), nn.BatchNorm1d(7)
        ).train()

    net = build_net(own(build), COLOURS)
    assert seen == [COLOURS]
    assert net.training
    assert net[2].training
    assert int(net[2].num_batches_tracked) == 0
    assert all(p.grad is None for p in net.parameters())


def test_own_net_of_the_wrong_shape(own):
    path = own(lambda data: nn.Sequential(nn.Flatten(), nn.Linear(data.dimensions, 10)))
    with pytest.raises(
        PluginError, match=r"own_nets:build gives \(2, 10\).*must give logits of shape \(2, 7\)"
    ):
        build_net(path, COLOURS)


def test_own_net_that_gives_no_tensor(own):
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(PluginError, match="gives tuple for two images of colours"):
        build_net(own(lambda data: Pair()), COLOURS)


def test_own_net_whose_logits_are_part_of_what_it_gives(own):
    class LikeTransformers(nn.Sequential):
        def forward(self, x):
            return SimpleNamespace(logits=super().forward(x))

    net = build_net(
        own(lambda data: LikeTransformers(nn.Flatten(), nn.Linear(data.dimensions, 7))), COLOURS
    )
    assert LogitModel(net).energy(torch.zeros(2, *COLOURS.shape)).shape == (2,)


def test_own_net_that_fails_on_these_images(own):
    path = own(lambda data: nn.Sequential(nn.Flatten(), nn.Linear(64, data.num_classes)))
    with pytest.raises(
        PluginError, match=r"fails on two float32 images of colours, shape .* RuntimeError"
    ):
        build_net(path, COLOURS)


def test_own_function_that_gives_no_module(own):
    with pytest.raises(
        PluginError, match=r"gave a function for colours; it must return a torch\.nn\.Module"
    ):
        build_net(own(lambda data: lambda x: x), COLOURS)


def test_own_net_that_is_not_there():
    with pytest.raises(PluginError, match="no_such_package_anywhere"):
        build_net("no_such_package_anywhere:build", COLOURS)


def test_norm_has_no_effect_on_an_own_net(own):
    with pytest.raises(
        SpecError, match="norm and dropout have no effect on the net own_nets:build"
    ):
        build_net(own(lambda data: nn.Flatten()), COLOURS, norm="batch")
