"""The models of the three libraries: the conformance kit, adapted images, weights of files, and
what is missing.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.catalog.spec import Spec
from jembench.errors import Remark, SpecError, Unavailable
from jembench.interfaces import DataSpec
from jembench.testing import check_model, parametrize

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)
COLOURED = DataSpec(name="coloured", shape=(3, 8, 8), num_classes=4, bounds=(0.0, 1.0))
VIT = Path(__file__).with_name("vit")  # the configuration of a small vision transformer


def installed(name):
    is_missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(is_missing, reason=f"{name} is not installed")


def make(text, data=DIGITS):
    with seeds.drawing(0, "initialisation"):
        return registry.resolve("models", text).make(data)


@parametrize(check_model("torchvision:squeezenet1_1"))
def test_torchvision(check):
    check()


if importlib.util.find_spec("timm"):

    @parametrize(check_model("timm:test_vit"))
    def test_timm(check):
        check()


if importlib.util.find_spec("transformers"):

    @parametrize(check_model(f"hf:{VIT}"))
    def test_transformers(check):
        check()


@pytest.mark.parametrize("data", [DIGITS, COLOURED])
@pytest.mark.parametrize(
    "text",
    [
        "torchvision:squeezenet1_1",
        pytest.param("timm:test_vit", marks=installed("timm")),
        pytest.param("timm:test_resnet,size=40", marks=installed("timm")),
        pytest.param(f"hf:{VIT}", marks=installed("transformers")),
    ],
)
def test_any_library_gives_a_classifier_of_the_data(text, data):
    model = make(text, data)
    low, high = data.bounds
    x = torch.rand(3, *data.shape) * (high - low) + low
    logits = model.eval().logits(x)
    assert logits.shape == (3, data.num_classes)
    assert model.chains == "none"
    assert model.preparation.method == "bilinear"


@pytest.mark.parametrize("library", ["torchvision", pytest.param("timm", marks=installed("timm"))])
def test_weights_of_a_file_are_taken_except_of_other_classes(library, tmp_path):
    name = {"torchvision": "torchvision:resnet18", "timm": "timm:test_resnet"}[library]
    trained = make(name, COLOURED).net.state_dict()
    trained = {key: value + 1 for key, value in trained.items()}
    torch.save(trained, tmp_path / "a.pth")
    text = f"{name},size=32,train=true,weights={tmp_path / 'a.pth'}"
    with pytest.warns(Remark) as said:
        weights = make(text).net.state_dict()
    assert any("10 classes: its last layer is drawn" in str(remark.message) for remark in said)
    last = [key for key in weights if weights[key].shape[:1] == (10,)]
    assert last
    for key in weights.keys() - set(last):
        assert_close(weights[key], trained[key])


@installed("transformers")
def test_weights_of_a_folder_of_transformers(tmp_path):
    trained = make(f"hf:{VIT}", COLOURED).net
    trained.save_pretrained(tmp_path)
    with pytest.warns(Remark) as said:
        weights = make(f"hf:{tmp_path},train=true,weights={tmp_path}").net
    assert any("10 classes: its last layer is drawn" in str(remark.message) for remark in said)
    for key, value in weights.vit.state_dict().items():
        assert_close(value, trained.vit.state_dict()[key])
    with pytest.raises(SpecError, match="weights=cache measures them"):
        make(f"hf:{tmp_path}")


def test_an_input_of_the_users_own_replaces_that_of_a_library(tmp_path):
    network = "torchvision:mobilenet_v3_small"
    net = make(network, COLOURED).eval().net
    torch.save(net.state_dict(), tmp_path / "net.pt")
    stated = f"size=40,mean=.4,std=.2,weights={tmp_path / 'net.pt'}"
    x = torch.rand(2, 3, 8, 8)
    resized = F.interpolate(x, size=40, mode="bicubic", antialias=True)
    model = make(f"adapted:model={network},{stated}", COLOURED).eval()
    assert_close(model.logits(x), net((resized - 0.4) / 0.2))
    inner = f'"{network},weights={tmp_path / "net.pt"}"'
    refused = pytest.raises(SpecError, match="has weights, and the input that belongs to them")
    with pytest.warns(Remark), refused:
        make(f"adapted:model={inner},mean=.4,std=.2", COLOURED)


@pytest.mark.parametrize(
    ("options", "is_pretrained"),
    [("", False), (",weights=cache", True), (",weights=cache,train=true", False)],
)
@pytest.mark.parametrize("library", ["timm", "torchvision", "hf"])
def test_given_weights_are_measured_unless_they_are_to_be_trained(library, options, is_pretrained):
    assert registry.resolve("models", f"{library}:x{options}").is_pretrained == is_pretrained


def test_weights_without_the_classes_are_trained_on_or_refused(tmp_path):
    net = make("torchvision:squeezenet1_1", COLOURED).net
    torch.save(net.state_dict(), tmp_path / "a.pth")
    text = f"torchvision:squeezenet1_1,size=32,weights={tmp_path / 'a.pth'}"
    with pytest.raises(SpecError, match=r"10 classes\. Given weights .* train=true"):
        make(text)
    with pytest.warns(Remark):
        make(f"{text},train=true")
    with pytest.raises(SpecError, match=r"weights is none\. Leave train out"):
        make("torchvision:squeezenet1_1,train=true")


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"x": torch.zeros(1)}, tmp_path / "a.pth")
    wrong = r"do not fit torchvision:resnet18: .* differ or are missing"
    with pytest.raises(SpecError, match=wrong):
        make(f"torchvision:resnet18,weights={tmp_path / 'a.pth'}")


def test_content_of_a_file_is_the_identity(tmp_path):
    contents = {"a": b"1", "b": b"1", "c": b"2"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    a, b, c = (registry.resolve("models", f"timm:x,weights={tmp_path / name}").id for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    "changed",
    ["config.json", "preprocessor_config.json", "model.safetensors", "model-2.safetensors"],
)
@pytest.mark.parametrize("text", ["hf:{0},weights=cache", "hf:vit,weights={0}"])
def test_every_file_of_a_folder_is_the_identity(tmp_path, text, changed):
    for name in ("config.json", "preprocessor_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes(b"{}")
    before = registry.resolve("models", text.format(tmp_path)).id
    (tmp_path / "README.md").write_bytes(b"")
    registry.content_of.cache_clear()
    assert registry.resolve("models", text.format(tmp_path)).id == before
    (tmp_path / changed).write_bytes(b"changed")
    registry.content_of.cache_clear()
    assert registry.resolve("models", text.format(tmp_path)).id != before


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("timm:resnet18", "timm", "timm"),
        ("torchvision:x", "torchvision", "torchvision"),
        ("hf:vit", "transformers", "hf"),
    ],
)
def test_a_missing_library_is_one_sentence_with_the_command(name, library, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unavailable) as error:
        make(name)
    assert str(error.value) == f"{library} is not installed: pip install 'jembench-zoo[{extra}]'."


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:resnet18,weights=cache",
        pytest.param("timm:resnet18,weights=cache", marks=installed("timm")),
        pytest.param("hf:nobody/nothing", marks=installed("transformers")),
    ],
)
def test_nothing_is_downloaded(name, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection"))
    with pytest.raises(Unavailable, match=r"fetch https|hf download"):
        make(name)


def test_unknown_network_and_unfit_images_are_refused():
    with pytest.raises(
        SpecError, match=r"no network 'resnet1'\. Some of its \d+ names are .*resnet18"
    ):
        make("torchvision:resnet1")
    with pytest.raises(SpecError, match="2 channels"):
        make("torchvision:resnet18", DataSpec(name="pairs", shape=(2, 8, 8), num_classes=2))
    with pytest.raises(SpecError, match="0 classes; networks of libraries need labelled images"):
        make(
            "torchvision:resnet18,weights=none",
            DataSpec(name="bare", shape=(3, 8, 8), num_classes=0),
        )


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:alexnet,size=32",
        "torchvision:vit_b_16,size=40",
        pytest.param("timm:test_vit,size=40", marks=installed("timm")),
    ],
)
def test_a_size_that_a_network_cannot_have_is_refused(name):
    with pytest.raises(SpecError, match=r"fails for images of \d+ pixels: .*Give another size="):
        make(name)


@installed("transformers")
def test_a_model_that_is_no_image_classifier_gets_one_short_message():
    for name in ("hf:nosuch", "hf:bert"):
        with pytest.raises(SpecError, match="no image classifier") as error:
            make(name)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "text", ["timm:resnet18", "hf:google/vit-base-patch16-224", "jembench-zoo/timm:a.b,size=8"]
)
def test_the_short_form_is_the_model_option(text):
    parsed = Spec(text)
    assert next(iter(parsed.options)) == "model"
    assert ":" not in parsed.name
    assert str(parsed) == text
    assert Spec(text.replace(":", ":model=")) == parsed


@installed("transformers")
def test_code_in_a_folder_is_refused_without_a_question(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'marked')!r}, 'w')\n")
    config = {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(SpecError, match="no image classifier of transformers"):
        make(f"hf:{tmp_path}", COLOURED)
    assert not (tmp_path / "marked").exists()


@pytest.fixture
def weights(tmp_path):
    """Weights of a ResNet-18 of the library for seven classes."""
    net = importlib.import_module("torchvision").models.resnet18(num_classes=7)
    torch.save(net.state_dict(), tmp_path / "seven.pth")
    return f"torchvision:resnet18,size=32,weights={tmp_path / 'seven.pth'}"


@pytest.mark.filterwarnings("ignore::jembench.errors.Remark")  # its last layer is drawn
@pytest.mark.parametrize("part", ["none", "statistics", "trunk"])
def test_frozen_parts_stay_as_they_are(weights, part):
    model = make(f"{weights},train=true,freeze={part}")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.1)
    images, labels = torch.rand(6, *DIGITS.shape), torch.arange(6)
    F.cross_entropy(model(images), labels).backward()
    optimiser.step()
    changed = {name for name, value in model.state_dict().items() if not value.equal(before[name])}
    statistics = {name for name in before if "running" in name or "batches" in name}
    expected = {
        "none": before.keys(),
        "statistics": before.keys() - statistics,
        "trunk": {"net.fc.weight", "net.fc.bias"},
    }
    assert changed == expected[part]


def test_what_would_freeze_nothing_is_refused(weights):
    with pytest.raises(SpecError, match=r"freeze=trunk keeps .* Set train=true"):
        make(f"{weights},freeze=trunk")


@pytest.mark.filterwarnings("ignore::jembench.errors.Remark")
def test_any_model_of_a_network_begins_with_its_weights(weights):
    inner = Spec(weights).with_(train=True, freeze="statistics")
    outer = Spec.of("baseline", {"net": str(inner)})
    x = torch.rand(2, *DIGITS.shape)
    expected, model = make(inner).eval(), make(outer).eval()
    assert torch.equal(model.logits(x), expected.logits(x))
    assert not model.train().net.net.bn1.training
    resolved = registry.resolve("models", outer)
    assert resolved.identity["arguments"]["net"] == registry.resolve("models", inner).identity
    assert not resolved.is_pretrained
