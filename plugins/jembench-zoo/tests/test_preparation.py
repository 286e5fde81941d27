"""Pretrained networks are shown what the libraries' own functions make of an image."""

import importlib.util
import json
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Generator
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.errors import Remark
from jembench.interfaces import DataSpec


def installed(name):
    is_missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(is_missing, reason=f"{name} is not installed")


def pictures(height, width, count=6):
    """Smooth random images, as photographs are, uint8 (N, 3, H, W)."""
    generator = Generator().manual_seed(1)
    coarse = torch.rand((count, 3, 4, 4), generator=generator)
    size = (height, width)
    fine = torch.nn.functional.interpolate(coarse, size, mode="bicubic")
    return (255 * fine.clamp(0, 1)).round().byte()


def data_of(images, names=("apple", "leaf", "zebra")):
    shape = tuple(images.shape[1:])
    count = len(names)
    return DataSpec(name="set", shape=shape, num_classes=count, class_names=tuple(names))


def make(text, data):
    """The model, and what was said as it was made."""
    with warnings.catch_warnings(record=True) as caught, seeds.drawing(0, "initialisation"):
        warnings.simplefilter("always")
        model = registry.resolve("models", text).make(data).eval()
    remarks = [warning for warning in caught if issubclass(warning.category, Remark)]
    return model, [str(remark.message) for remark in remarks]


def logits(model, images, data):
    with torch.no_grad():
        return model.logits(to_float(images, data.bounds))


def as_pictures(images):
    arrays = [image.permute(1, 2, 0).numpy() for image in images]
    return [Image.fromarray(array) for array in arrays]


OF_TRANSFORMERS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 48,
}
STAGES = {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "image_size": 48}
FAMILIES = {
    "vit": OF_TRANSFORMERS,
    "deit": OF_TRANSFORMERS,
    "resnet": {"embedding_size": 8, **STAGES, "layer_type": "basic"},
    "convnext": STAGES,
    "swin": {
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [1, 1],
        "window_size": 3,
        "image_size": 48,
    },
    "efficientnet": {
        "width_coefficient": 0.2,
        "depth_coefficient": 0.2,
        "hidden_dim": 256,
        "image_size": 48,
    },
    "mobilevit": {
        "hidden_sizes": [8, 8, 8],
        "neck_hidden_sizes": [8] * 7,
        "image_size": 64,
        "num_attention_heads": 2,
    },
}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CROPPED = {"size": {"height": 60, "width": 60}, "crop_size": {"height": 48, "width": 48}}
SETTINGS = {
    "vit": {"size": {"height": 48, "width": 48}},
    "deit": {**CROPPED, "do_center_crop": True, **IMAGENET},
    "resnet": {"size": {"shortest_edge": 48}, "crop_pct": 0.875, **IMAGENET},
    "convnext": {"size": {"shortest_edge": 48}, "crop_pct": 0.7, "resample": 3, **IMAGENET},
    "swin": {"size": {"height": 48, "width": 48}, **IMAGENET},
    "efficientnet": {**CROPPED, "do_center_crop": True, **IMAGENET, "include_top": True},
    "mobilevit": {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}},
}


def saved(folder, family, settings, names=("apple", "leaf", "zebra")):
    """Save a network of a family with random weights, and its processor."""
    import transformers

    labels = {"id2label": dict(enumerate(names)), "num_labels": len(names)}
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family], **labels)
    config.architectures = []
    with seeds.drawing(1, "initialisation"):
        net = transformers.AutoModelForImageClassification.from_config(config).eval()
        for name, tensor in net.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.01, 0.02)
            elif tensor.is_floating_point():
                tensor += 0.1 * torch.randn_like(tensor)
    net.save_pretrained(folder)
    kind = transformers.models.auto.image_processing_auto.IMAGE_PROCESSOR_MAPPING[type(config)]
    processor = kind["torchvision"] if isinstance(kind, dict) else kind[-1]
    processor(**settings).save_pretrained(folder)
    return net


def shown(model, images, data):
    """Return the images that a network gets, in the library's units."""
    seen = []
    net = model.net
    with net.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
        logits(model, images, data)
    return seen[0]


def assert_same(ours, theirs, std):
    """Check that both agree but for the rounding to whole levels."""
    assert ours.shape == theirs.shape
    levels = 255 * torch.tensor(std).view(3, 1, 1)
    levels = (ours - theirs).abs() * levels
    assert float(levels.mean()) < 0.6
    assert float(levels.max()) < 3


@installed("transformers")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [(66, 40), (48, 49)])
def test_each_family_is_shown_what_its_own_processor_makes(tmp_path, family, size):
    import transformers

    saved(tmp_path, family, SETTINGS[family])
    images = pictures(*size)
    data = data_of(images)
    model, (text,) = make(f"hf:{tmp_path},weights=cache", data)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    theirs = processor(images=as_pictures(images), return_tensors="pt")["pixel_values"]
    assert_same(shown(model, images, data), theirs, model.preparation.std)
    assert text.startswith(f"hf:{tmp_path} sees images of {size[0]}x{size[1]} pixels as: ")


@installed("transformers")
@pytest.mark.parametrize(
    "settings",
    [
        {"do_normalize": False},
        {"do_rescale": False},
        {"do_normalize": False, "do_rescale": False},
        {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1]},
        {"do_resize": False},
        IMAGENET,
    ],
)
def test_every_switch_of_a_processor_counts(tmp_path, settings):
    import transformers

    saved(tmp_path, "resnet", {"size": {"shortest_edge": 384}} | settings)
    images = pictures(384 if "do_resize" not in settings else 48, 384, 1)
    data = data_of(images)
    model, _ = make(f"hf:{tmp_path},weights=cache", data)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    theirs = processor(images=as_pictures(images), return_tensors="pt")["pixel_values"]
    ours = shown(model, images, data)
    assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-4)


@installed("transformers")
def test_logits_are_those_of_a_script_with_the_library_alone(tmp_path):
    import transformers

    saved(tmp_path, "swin", SETTINGS["swin"])
    images = pictures(48, 48, 20)
    data = data_of(images)
    model, _ = make(f"hf:{tmp_path},weights={tmp_path}", data)

    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    net = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        inputs = processor(images=as_pictures(images), return_tensors="pt")
        expected = net(**inputs).logits
    ours = logits(model, images, data)
    assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@installed("transformers")
def test_a_size_of_the_users_own_leaves_out_the_crop(tmp_path):
    saved(tmp_path, "convnext", SETTINGS["convnext"])
    images = pictures(64, 64)
    model, (text,) = make(f"hf:{tmp_path},weights=cache,size=64", data_of(images))
    seen = shown(model, images, data_of(images))
    assert seen.shape[-2:] == (64, 64)
    assert "size 64x64 (bicubic); mean 0.485, 0.456, 0.406" in text


@installed("transformers")
def test_a_folder_without_a_processor_is_remarked_on(tmp_path):
    saved(tmp_path, "swin", SETTINGS["swin"])
    (tmp_path / "preprocessor_config.json").unlink()
    data = data_of(pictures(48, 48))
    _, (text, _) = make(f"hf:{tmp_path},weights=cache", data)
    assert text.startswith(f"{tmp_path} has no preprocessor_config.json: its mean and standard dev")


@installed("transformers")
def test_what_cannot_be_done_here_is_remarked_on(tmp_path):
    """A processor pads before it resizes, which no option here does."""
    saved(tmp_path, "resnet", {"size": {"shortest_edge": 384}})
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
    settings |= {"image_processor_type": "PerceiverImageProcessor", "do_center_crop": True}
    settings |= {"size": {"height": 32, "width": 32}, "crop_size": {"height": 64, "width": 64}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    _, said = make(f"hf:{tmp_path},weights=cache", data_of(pictures(64, 64)))
    assert any("The library's own preparation of images for" in text for text in said)


@installed("timm")
@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet"])
def test_timm_shows_what_its_own_transform_makes(tmp_path, name):
    import timm

    net = timm.create_model(name, num_classes=3)
    torch.save(net.state_dict(), tmp_path / "a.pth")
    images = pictures(90, 66)
    data = data_of(images)
    model, said = make(f"timm:{name},weights={tmp_path / 'a.pth'}", data)
    settings = timm.data.resolve_model_data_config(net)
    transform = timm.data.create_transform(**settings, is_training=False)
    theirs = torch.stack([transform(picture) for picture in as_pictures(images)])
    assert_same(shown(model, images, data), theirs, settings["std"])
    assert len(said) == 2  # and that the outputs have no names


@pytest.mark.parametrize("name", ["squeezenet1_1", "efficientnet_b3", "googlenet"])
def test_torchvision_shows_what_its_own_transform_makes(tmp_path, name):
    torchvision = pytest.importorskip("torchvision")
    models = torchvision.models
    options = {"init_weights": False} if name == "googlenet" else {}
    entry = models.get_model_weights(name).DEFAULT
    net = models.get_model(name, weights=None, num_classes=1000, **options)
    file = tmp_path / Path(entry.url).name
    torch.save(net.state_dict(), file)
    images = pictures(90, 66, 2)
    data = data_of(images, ("tench", "goldfish", "hen"))
    model, said = make(f"torchvision:{name},weights={file}", data)
    transform = entry.transforms()
    theirs = torch.stack([transform(picture) for picture in as_pictures(images)])
    assert_same(shown(model, images, data), theirs, transform.std)
    assert (
        f"torchvision:{name} has 1,000 outputs, taken by name: tench (0), goldfish (1), hen (8)."
        in said
    )
    assert getattr(model.net, "transform_input", None) in (None, True)


def test_torchvision_knows_weights_by_their_file(tmp_path):
    models = pytest.importorskip("torchvision").models
    sizes = set()
    for entry in models.MobileNet_V2_Weights:
        file = tmp_path / Path(entry.url).name
        torch.save(models.mobilenet_v2(num_classes=3).state_dict(), file)
        model, _ = make(f"torchvision:mobilenet_v2,weights={file}", data_of(pictures(64, 64)))
        assert model.preparation.resize == entry.transforms().resize_size[0]
        sizes.add(model.preparation.resize)
    assert len(sizes) == 2
