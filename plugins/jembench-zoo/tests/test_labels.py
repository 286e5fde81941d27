"""The outputs of pretrained networks that are the classes of a dataset."""

import importlib.util

import pytest
import torch
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import Remark, SpecError
from jembench.interfaces import DataSpec
from jembench_zoo.labels import outputs_of_classes

ANIMALS = ["zebra", "apple, fruit", "Sea_Lion", "crane", "crane, machine"]


def data_of(*names, number=0):
    number = number or len(names)
    shape = (3, 8, 8)
    return DataSpec(name="set", shape=shape, num_classes=number, class_names=names)


def outputs(names, data, number=0, *, train=True):
    return outputs_of_classes("net", names, number or len(names), data, train=train)


@pytest.mark.parametrize(
    ("names", "classes", "expected"),
    [
        (["zebra", "apple", "leaf"], ["apple", "leaf", "zebra"], (1, 2, 0)),
        (ANIMALS, ["Apple", "sea lion"], (1, 2)),
        (ANIMALS, ["apple, Fruit", "SEA-LION", "zebra"], (1, 2, 0)),
        (ANIMALS, ["crane"], (3,)),  # the whole name comes first
        ([*map(str, range(12))], ["1", "10", "2"], (1, 10, 2)),
        (["7", "3", "5"], ["3", "5", "7"], (1, 2, 0)),
    ],
)
def test_outputs_are_chosen_by_name(names, classes, expected):
    with pytest.warns(Remark, match=rf"net has {len(names)} outputs, taken by name: "):
        assert outputs(names, data_of(*classes)) == expected


def test_equal_names_in_one_order_are_not_worth_a_word():
    data = data_of("A_B", "c")
    assert outputs(["a b", "C"], data) == (0, 1)


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["cat", "dog", "cow"], ["cat", "dog", "kuh"]),  # one is spelt otherwise
        (["crane, bird", "crane, machine"], ["crane", "zebra"]),
        (["cat", "cat"], ["cat", "dog"]),
        (["cat", "dog"], ["Cat", "cat"]),
    ],
)
def test_names_that_agree_in_part_are_refused_where_each_output_is_a_class(names, classes):
    with pytest.raises(
        SpecError, match=r"So the order of the outputs is not known\. Name the folders"
    ):
        outputs(names, data_of(*classes))


@pytest.mark.parametrize(
    "names", [[], ["LABEL_0", "LABEL_1"], ["0", "1"], ["class 0", "class 1"], ["x", "y"]]
)
def test_outputs_without_names_are_taken_in_order(names):
    with pytest.warns(
        Remark, match="not name its outputs, .* for the classes as they are sorted: cat, dog"
    ):
        assert outputs(names, data_of("cat", "dog"), 2) == (0, 1)
    with pytest.warns(Remark, match="taken for the classes\\."):
        assert outputs(names, data_of(number=2), 2) == (0, 1)


@pytest.mark.parametrize(
    ("classes", "text"),
    [(["cat", "dog"], "2 classes: "), (["zebra", "dog"], "of which 1 are named")],
)
def test_another_number_of_outputs_gives_a_new_last_layer(classes, text):
    with pytest.warns(Remark, match=f"{text}.*its last layer is drawn at random"):
        assert outputs(ANIMALS, data_of(*classes)) is None
    with pytest.raises(SpecError, match=r"train the weights on: train=true"):
        outputs(ANIMALS, data_of(*classes), train=False)


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
