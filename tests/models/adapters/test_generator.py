"""Anything that makes images."""

import warnings

import pytest
import torch
from torch import nn

from jembench.catalog import registry
from jembench.errors import PluginError, SpecError
from jembench.models.capabilities import capabilities

SOURCE = """
import torch
from torch import nn

def by_number(n, *, generator):
    return torch.rand((n, 1, 8, 8), generator=generator) * 2 - 1

def by_global_chance(n):
    return torch.rand((n, 1, 8, 8))

def bytes_(n):
    return torch.randint(0, 256, (n, 1, 8, 8), dtype=torch.uint8)

def of_classes(n, y):
    return (y.float() / 2)[:, None, None, None].expand(n, 1, 8, 8)

def wrong_shape(n):
    return torch.zeros(n, 8, 8)

def too_bright(n):
    return torch.full((n, 1, 8, 8), 200.0)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 64)

    def forward(self, z):
        return torch.tanh(self.linear(z)).view(-1, 1, 8, 8)
"""


@pytest.fixture(autouse=True)
def gan(tmp_path, monkeypatch):
    (tmp_path / "gan_of_tests.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def make(options, data):
    return registry.resolve("models", f"generator:{options}").make(data)


def draw(model, n=5, seed=0, y=None):
    return model.sample(n, y, generator=torch.Generator().manual_seed(seed))


def test_it_has_samples_and_nothing_else(data):
    assert capabilities(make("module=gan_of_tests:by_number", data)) == {"samples"}


@pytest.mark.parametrize("options", ["by_number", "by_global_chance,pixels=0..1", "Decoder,latent=5"])
def test_images_are_the_same_by_the_same_seed_and_chance_elsewhere_is_left_alone(options, data):
    torch.manual_seed(1)
    model = make(f"module=gan_of_tests:{options}", data)
    before = torch.get_rng_state()
    images = draw(model, 250)
    assert torch.equal(before, torch.get_rng_state())
    assert images.shape == (250, 1, 8, 8)
    assert torch.equal(images, draw(model, 250))
    assert not torch.equal(images, draw(model, 250, seed=1))
    assert len(images.flatten(1).unique(dim=0)) == 250  # no part of the batch repeats another
    assert -1 <= images.min() < -0.5 < 0.5 < images.max() <= 1


def test_ranges_of_pixels_become_the_bounds(data):
    from gan_of_tests import bytes_

    model = make("module=gan_of_tests:bytes_,pixels=0..255", data)
    images = draw(model)
    assert torch.equal(((images + 1) / 2 * 255).round() % 1, torch.zeros_like(images))
    assert images.min() >= -1
    assert bytes_(1).dtype == torch.uint8


def test_a_conditional_one_gets_its_labels(data):
    model = make("module=gan_of_tests:of_classes,conditional=true,pixels=0..1", data)
    assert draw(model, 3, y=torch.tensor([0, 1, 2]))[:, 0, 0, 0].tolist() == [-1, 0, 1]
    assert {-1.0, 0.0, 1.0} == set(draw(model, 50).unique().tolist())  # of all classes, where none is asked for


def test_one_without_classes_refuses_labels(data):
    with pytest.raises(SpecError, match=r"makes images without classes\. Write conditional=true if it takes labels"):
        draw(make("module=gan_of_tests:by_number", data), y=torch.zeros(5, dtype=torch.int64))


def test_a_torchscript_file(data, tmp_path):
    from gan_of_tests import Decoder

    decoder = Decoder()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")  # PyTorch discourages what this file is made by
        torch.jit.script(decoder).save(str(tmp_path / "decoder.pt"))
    model = make(f"module={tmp_path / 'decoder.pt'},latent=5", data)
    images = draw(model, 3)
    z = torch.randn((3, 5), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(images, decoder(z))
    assert dict(model.state_dict()).keys() == {"make.linear.weight", "make.linear.bias"}


def test_what_a_file_holds_makes_its_identity_and_where_it_lies_does_not(tmp_path):
    identities = []
    for name, content in {"a.pt": b"1", "b.pt": b"1", "c.pt": b"2"}.items():
        (tmp_path / name).write_bytes(content)
        identities.append(registry.resolve("models", f"generator:module={name}").identity)
    assert identities[0] == identities[1] != identities[2]


def test_the_module_is_recorded_with_the_results():
    used = registry.resolve("models", "generator:module=gan_of_tests:by_number").uses
    assert [component.target for component in used] == [
        "jembench.models.adapters.factories:generator",
        "gan_of_tests:by_number",
    ]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            "module=gan_of_tests:wrong_shape",
            PluginError,
            r"gives \(5, 8, 8\) when asked for 5 images of tiny; it must",
        ),
        ("module=gan_of_tests:too_bright", PluginError, "gives pixels from 200 to 200, outside of -1 to 1. Say what"),
        (
            "module=gan_of_tests:by_number,latent=3",
            PluginError,
            r"by_number fails when it is called with latents \(5, 3\)",
        ),
        (
            "module=gan_of_tests:of_classes",
            PluginError,
            r"fails when it is called with n = 5: TypeError.* conditional=t",
        ),
        ("module=gan_of_tests:nothing", PluginError, "cannot be loaded from gan_of_tests:nothing"),
        ("module=nowhere.pt", SpecError, "There is no generator nowhere.pt. Name a TorchScript file, or a function by"),
        ("module=gan_of_tests.py", PluginError, "is no TorchScript module"),
        ("module=gan_of_tests:by_number,latent=-1", SpecError, "latent of generator is -1; it must be at least 0"),
    ],
)
def test_what_does_not_work_is_told(options, error, text, data):
    with pytest.raises(error, match=text):
        draw(make(options, data))


def test_weights_are_part_of_the_model(data):
    model = make("module=gan_of_tests:Decoder,latent=5", data)
    assert isinstance(model.make, nn.Module)
    assert not model.make.training
    assert len(list(model.parameters())) == 2
