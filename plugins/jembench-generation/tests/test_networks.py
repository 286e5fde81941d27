"""DINOv2 and CLIP with random weights, against their forward passes."""

import hashlib
from pathlib import Path

import pytest
import torch
from fake_evaluation import TOY, FakeDataset, random_images
from torch import Generator, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch_fidelity.feature_extractor_clip import MODEL_URLS, CLIPVisual, FeatureExtractorCLIP
from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x
from torchvision.transforms.functional import normalize

from jembench.errors import CheckpointError
from jembench_generation.networks import ClipFeatures, DinoV2Features


@pytest.fixture
def any_weights(monkeypatch):
    for network in (DinoV2Features, ClipFeatures):
        monkeypatch.setattr(network, "published", network.published._replace(digest=""))


def prepared(kind, path):
    network = kind(weights=str(path))
    device = torch.device("cpu")
    network.prepare(FakeDataset(TOY, {}), Path("unused"), device)
    return network


def dinov2_weights(width=128, side=5):
    """Random weights of two blocks, with the names of DINOv2's."""
    embedding = (1, 1 + side**2, width)
    tokens = {"cls_token": (1, 1, width), "pos_embed": embedding, "mask_token": (1, width)}
    layers = {"patch_embed.proj": (width, 3, 14, 14), "norm": (width,)}
    for block in ("blocks.0", "blocks.1"):
        for norm in ("norm1", "norm2"):
            layers[f"{block}.{norm}"] = (width,)
        layers[f"{block}.attn.qkv"] = (3 * width, width)
        layers[f"{block}.attn.proj"] = (width, width)
        layers[f"{block}.mlp.fc1"] = (4 * width, width)
        layers |= {f"{block}.mlp.fc2": (width, 4 * width)}
        tokens |= {f"{block}.ls1.gamma": (width,), f"{block}.ls2.gamma": (width,)}
    shapes = tokens | {f"{name}.weight": shape for name, shape in layers.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in layers.items()}
    generator = Generator().manual_seed(0)
    weights = {}
    for name, shape in shapes.items():
        weights[name] = torch.randn(shape, generator=generator) / shape[-1] ** 0.5
    return weights


def dinov2(weights, x, heads=2):
    """Return DINOv2's features by its forward pass, written out.

    Blocks of attention and MLP are each scaled by a gamma.
    """

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        weight = weights[f"{name}.weight"]
        return F.layer_norm(x, x.shape[-1:], weight, weights[f"{name}.bias"], 1e-6)

    kernel = weights["patch_embed.proj.weight"]
    patches = F.conv2d(x, kernel, weights["patch_embed.proj.bias"], stride=14)
    embedding = weights["pos_embed"]
    places = embedding[:, 1:].reshape(1, 5, 5, -1).permute(0, 3, 1, 2)
    scale_factor = (16 + 0.1) / 5
    places = F.interpolate(places, scale_factor=scale_factor, mode="bicubic")
    tokens = (patches + places).flatten(2).transpose(1, 2)
    first = weights["cls_token"] + embedding[:, :1]
    x = torch.cat([first.expand(len(x), -1, -1), tokens], dim=1)
    for block in ("blocks.0", "blocks.1"):
        qkv = linear(norm(x, f"{block}.norm1"), f"{block}.attn.qkv")
        heads_of = qkv.reshape(len(x), -1, 3, heads, 64)
        q, k, v = heads_of.permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1)
        attended = (attention @ v).transpose(1, 2).flatten(2)
        scaled = weights[f"{block}.ls1.gamma"] * linear(attended, f"{block}.attn.proj")
        x = x + scaled
        hidden = F.gelu(linear(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1"))
        x = x + weights[f"{block}.ls2.gamma"] * linear(hidden, f"{block}.mlp.fc2")
    return norm(x, "norm")[:, 0]


def test_dinov2s_features_are_those_of_its_forward_pass(any_weights, tmp_path):
    path = tmp_path / "dinov2.pth"
    torch.save(dinov2_weights(), path)
    network = prepared(DinoV2Features, path)
    assert (
        network.identity == f"dinov2-vit-l-14@{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    )
    images = random_images(3, 0)
    pool, logits = network.features(images)
    rgb = images.expand(-1, 3, -1, -1).float()
    x = interpolate_bilinear_2d_like_tensorflow1x(rgb, (224, 224), align_corners=False)
    x = normalize(x / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    expected = dinov2(dinov2_weights(), x)
    assert_close(pool, expected, rtol=1e-3, atol=1e-4)
    assert logits.shape == (3, 0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_clips_features_are_torch_fidelitys(any_weights, tmp_path):
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
    traced = torch.jit.trace(Archive().half(), torch.zeros(1))
    torch.jit.save(traced, path)
    network = prepared(ClipFeatures, path)
    images = random_images(3, 0)
    extractor = FeatureExtractorCLIP("clip-vit-b-32", ["clip"], str(path))
    (expected,) = extractor(images.expand(-1, 3, -1, -1))
    pool, logits = network.features(images)
    assert_close(pool, expected)
    assert network.identity[:14] == "clip-vit-b-32@"
    assert logits.shape == (3, 0)
    assert ClipFeatures.published.url == MODEL_URLS["clip-vit-b-32"]


@pytest.mark.parametrize(("kind", "name"), [(DinoV2Features, "dinov2"), (ClipFeatures, "clip")])
def test_weights_of_another_digest_are_refused(kind, name, tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"other")
    with pytest.raises(
        CheckpointError, match=rf"weights: its SHA-256 .*--set fid.features={name}:weights=PATH"
    ):
        prepared(kind, path)
