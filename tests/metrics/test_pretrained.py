"""The weights are files that a test must not fetch: here they are random, with the right names, of small networks."""

from __future__ import annotations

import hashlib
import pickle
import socket
import urllib.error
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_fidelity import feature_extractor_inceptionv3 as reference
from torch_fidelity.feature_extractor_clip import MODEL_URLS, CLIPVisual, FeatureExtractorCLIP
from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x
from torchvision.transforms.functional import normalize

from jembench.errors import CheckpointError, NotApplicable, Unavailable
from jembench.interfaces import DataSpec
from jembench.metrics import pretrained
from jembench.metrics.generation import FID, IS
from jembench.metrics.pretrained import ClipFeatures, DinoV2Features, InceptionFeatures

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def extractor():
    """torch-fidelity's network, with the weights that its constructor draws."""

    class Random(reference.FeatureExtractorInceptionV3):
        def load_state_dict(self, state_dict, *args, **kwargs):
            return None

    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(reference, "load_state_dict_from_url", lambda *args, **kwargs: {})
        torch.manual_seed(0)
        return Random("random", ["2048", "logits_unbiased"])


@pytest.fixture(scope="module")
def weights(extractor, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("inception") / "weights.pth"
    torch.save(extractor.state_dict(), path)
    return path


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """An empty torch hub."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


@pytest.fixture(autouse=True)
def any_weights(monkeypatch):
    for network in (InceptionFeatures, DinoV2Features, ClipFeatures):
        monkeypatch.setattr(network, "published", network.published._replace(digest=""))


@pytest.fixture
def dataset(fake):
    return fake.Dataset(DataSpec(name="toy", shape=(1, 4, 4), num_classes=3), {})


def prepared(dataset, kind=InceptionFeatures, **options):
    network = kind(**options)
    network.prepare(dataset, Path("unused"), CPU)
    return network


def test_features_are_torch_fidelitys_and_grey_is_repeated_to_rgb(weights, extractor, dataset, fake, monkeypatch):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    network = prepared(dataset, weights=str(weights))
    assert torch.equal(torch.get_rng_state(), state)
    images = fake.images(2, 0)
    monkeypatch.setattr(pretrained, "_BATCH", 1)
    pool, logits = network.features(images)
    assert (pool.shape, logits.shape, pool.dtype) == ((2, 2048), (2, 1008), torch.float32)
    expected_pool, expected_logits = extractor(images.repeat(1, 3, 1, 1))
    torch.testing.assert_close(pool, expected_pool, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-5)


def test_weights_that_are_nowhere_are_a_paragraph_with_the_remedy(dataset, hub):
    with pytest.raises(Unavailable) as caught:
        prepared(dataset)
    message = str(caught.value)
    assert "\n" not in message
    assert str(hub / InceptionFeatures.published.cached.name) in message
    for remedy in ("inception:download=true", reference.URL_INCEPTION_V3, "inception:weights=PATH", "features=cnn"):
        assert remedy in message


def test_a_given_file_that_is_not_there_is_named(dataset, tmp_path):
    with pytest.raises(Unavailable, match=r"there is no file .*absent\.pth"):
        prepared(dataset, weights=str(tmp_path / "absent.pth"))


@pytest.mark.parametrize(
    "error", [urllib.error.URLError("Name or service not known"), TimeoutError("timed out"), RuntimeError("hash")]
)
def test_a_download_that_fails_says_why_and_what_else_to_do(error, dataset, monkeypatch):
    def fail(url, path, **options):
        assert (url, options["hash_prefix"]) == (reference.URL_INCEPTION_V3, InceptionFeatures.published.digest)
        assert socket.getdefaulttimeout() == 20
        raise error

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    before = socket.getdefaulttimeout()
    with pytest.raises(Unavailable, match=r"could not be fetched to .* --set fid.features=cnn"):
        prepared(dataset, download=True)
    assert socket.getdefaulttimeout() == before


def test_a_download_lands_in_torch_hubs_cache(weights, dataset, hub, monkeypatch):
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda url, path, **options: Path(path).symlink_to(weights))
    assert prepared(dataset, download=True).identity.startswith("inception-2015-12-05@")
    assert (hub / InceptionFeatures.published.cached.name).is_file()


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_file_that_would_run_code_runs_none_even_if_its_digest_begins_alike(dataset, tmp_path):
    path, mark = tmp_path / "evil.pth", tmp_path / "ran"
    torch.save({"weights": Touch(mark)}, path)
    with pytest.raises(pickle.UnpicklingError):
        prepared(dataset, weights=str(path))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("kind", "title", "spec"),
    [
        (InceptionFeatures, "Inception", "inception"),
        (DinoV2Features, "DINOv2", "dinov2"),
        (ClipFeatures, "CLIP", "clip"),
    ],
)
def test_weights_of_another_digest_are_refused(kind, title, spec, dataset, weights, monkeypatch):
    monkeypatch.setattr(kind, "published", kind.published._replace(digest="6726825d"))
    with pytest.raises(CheckpointError, match=rf"weights.pth does not hold {title}'s weights: its SHA-256") as caught:
        prepared(dataset, kind, weights=str(weights))
    assert f"not with 6726825d. Let jembench fetch them ({kind.published.size})" in str(caught.value)
    assert f"--set fid.features={spec}:weights=PATH" in str(caught.value)


def test_images_of_five_channels_are_refused(fake, weights):
    dataset = fake.Dataset(DataSpec(name="spectral", shape=(5, 32, 32), num_classes=3), {})
    with pytest.raises(Unavailable, match="those of spectral have 5 channels"):
        prepared(dataset, weights=str(weights))


def dinov2_weights(width=128, side=5):
    """Random weights of two blocks, with the names of DINOv2's."""
    tokens = {"cls_token": (1, 1, width), "pos_embed": (1, 1 + side**2, width), "mask_token": (1, width)}
    layers = {"patch_embed.proj": (width, 3, 14, 14), "norm": (width,)}
    for block in ("blocks.0", "blocks.1"):
        layers |= {f"{block}.norm1": (width,), f"{block}.norm2": (width,), f"{block}.attn.qkv": (3 * width, width)}
        layers |= {f"{block}.attn.proj": (width, width), f"{block}.mlp.fc1": (4 * width, width)}
        layers |= {f"{block}.mlp.fc2": (width, 4 * width)}
        tokens |= {f"{block}.ls1.gamma": (width,), f"{block}.ls2.gamma": (width,)}
    shapes = tokens | {f"{name}.weight": shape for name, shape in layers.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in layers.items()}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for name, shape in shapes.items()}


def dinov2(weights, x, heads=2):
    """The forward pass of DINOv2, written out: blocks of attention and MLP, each scaled by its gamma."""

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-6)

    patches = F.conv2d(x, weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"], stride=14)
    places = weights["pos_embed"][:, 1:].reshape(1, 5, 5, -1).permute(0, 3, 1, 2)
    places = F.interpolate(places, scale_factor=(16 + 0.1) / 5, mode="bicubic")
    tokens = (patches + places).flatten(2).transpose(1, 2)
    x = torch.cat([(weights["cls_token"] + weights["pos_embed"][:, :1]).expand(len(x), -1, -1), tokens], dim=1)
    for block in ("blocks.0", "blocks.1"):
        qkv = linear(norm(x, f"{block}.norm1"), f"{block}.attn.qkv")
        q, k, v = qkv.reshape(len(x), -1, 3, heads, 64).permute(2, 0, 3, 1, 4)
        attended = torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1) @ v
        x = x + weights[f"{block}.ls1.gamma"] * linear(attended.transpose(1, 2).flatten(2), f"{block}.attn.proj")
        hidden = F.gelu(linear(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1"))
        x = x + weights[f"{block}.ls2.gamma"] * linear(hidden, f"{block}.mlp.fc2")
    return norm(x, "norm")[:, 0]


def test_dinov2s_features_are_those_of_its_forward_pass(dataset, fake, tmp_path):
    path = tmp_path / "dinov2.pth"
    torch.save(dinov2_weights(), path)
    network = prepared(dataset, DinoV2Features, weights=str(path))
    assert network.identity == f"dinov2-vit-l-14@{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    images = fake.images(3, 0)
    pool, logits = network.features(images)
    x = interpolate_bilinear_2d_like_tensorflow1x(images.expand(-1, 3, -1, -1).float(), (224, 224), align_corners=False)
    x = normalize(x / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    torch.testing.assert_close(pool, dinov2(dinov2_weights(), x), rtol=1e-3, atol=1e-4)
    assert logits.shape == (3, 0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_clips_features_are_torch_fidelitys(dataset, fake, tmp_path):
    class Archive(nn.Module):
        """The parts of CLIP that torch-fidelity reads."""

        def __init__(self):
            super().__init__()
            self.visual = CLIPVisual(16, 64, 1, 64, 32).visual
            self.text_projection = nn.Parameter(torch.zeros(4, 16))

        def forward(self, x):
            return x

    torch.manual_seed(0)
    path = tmp_path / "clip.pt"
    torch.jit.save(torch.jit.trace(Archive().half(), torch.zeros(1)), path)
    network = prepared(dataset, ClipFeatures, weights=str(path))
    images = fake.images(3, 0)
    (expected,) = FeatureExtractorCLIP("clip-vit-b-32", ["clip"], str(path))(images.expand(-1, 3, -1, -1))
    pool, logits = network.features(images)
    torch.testing.assert_close(pool, expected)
    assert (network.identity[:14], logits.shape) == ("clip-vit-b-32@", (3, 0))
    assert ClipFeatures.published.url == MODEL_URLS["clip-vit-b-32"]


def test_the_inception_score_of_a_network_without_classes_is_not_applicable(generation):
    generation.network.classifies = False
    for metric in (IS(), FID(selection="features", top=0.5)):
        with pytest.raises(NotApplicable, match="The feature network pixels predicts no classes"):
            metric.compute(generation)
