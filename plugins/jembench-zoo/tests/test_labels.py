"""The outputs of the libraries' networks that are the classes of a dataset."""

import importlib.util

import pytest
import torch
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import Remark
from jembench.interfaces import DataSpec
from jembench.models.labels import outputs_of_classes


def data_of(*names):
    return DataSpec(name="set", shape=(3, 8, 8), num_classes=len(names), class_names=names)


def outputs(names, data):
    return outputs_of_classes("net", names, len(names), data)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.filterwarnings("ignore:net has .* outputs, taken by name")
def test_imagenet_s_folders_are_known_by_their_ids():
    import timm.data

    info = timm.data.ImageNetInfo()
    ids = info.label_names()
    words = info.label_descriptions()
    # a tench, a bird and a machine: cranes
    folders = data_of("n01440764", "n02012849", "n03126707")
    expected = tuple(map(ids.index, folders.class_names))
    shuffled = [*reversed(words[:134])]  # with no machine
    assert outputs(ids, folders) == expected
    assert outputs(words, folders) == expected
    assert outputs(shuffled, data_of("n01440764", "n01443537")) == (133, 132)
    assert outputs(ids, data_of("tench", "golden_retriever")) == (0, 207)
    whole = data_of(*sorted(ids))
    assert outputs(words, whole) == tuple(range(1000))


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="it is not installed")
def test_the_logits_of_a_network_follow_the_classes(tmp_path):
    import transformers

    names = ("zebra", "apple", "leaf", "cat")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 16, "image_size": 32}
    config = transformers.AutoConfig.for_model("vit", **small, id2label=dict(enumerate(names)))
    with seeds.drawing(0, "initialisation"):
        net = transformers.ViTForImageClassification(config).eval()
    net.save_pretrained(tmp_path)
    size = {"height": 32, "width": 32}
    transformers.ViTImageProcessor(size=size).save_pretrained(tmp_path)
    classes = ("apple", "zebra")
    data = DataSpec(name="set", shape=(3, 32, 32), num_classes=2, class_names=classes)
    with pytest.warns(Remark):
        model = registry.resolve("models", f"hf:{tmp_path},weights=cache").make(data).eval()
    x = torch.rand(4, 3, 32, 32) * 2 - 1
    expected = net(x).logits[:, [1, 0]]
    assert_close(model.logits(x), expected)
