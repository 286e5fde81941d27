"""The outputs of pretrained networks that are the classes of a dataset."""

import pytest

from jembench.errors import Remark, SpecError
from jembench.interfaces import DataSpec
from jembench.models import labels
from jembench.models.labels import outputs_of_classes

ANIMALS = ["zebra", "apple, fruit", "Sea_Lion", "crane", "crane, machine"]


def data_of(*names, number=0):
    number = number or len(names)
    shape = (3, 8, 8)
    return DataSpec(name="set", shape=shape, num_classes=number, class_names=names)


def outputs(names, data, number=0, remedy=""):
    return outputs_of_classes("net", names, number or len(names), data, remedy)


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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ids", [("n01440764", "n01443537"), ("n01443537",)])
def test_wordnet_ids_need_timm_where_outputs_are_named_in_words(monkeypatch, ids):
    def no_timm(name):
        raise ImportError

    monkeypatch.setattr(labels, "import_module", no_timm)
    with pytest.raises(SpecError, match=r"names its classes by WordNet ids .* install timm\."):
        outputs(["tench", "goldfish"], data_of(*ids), remedy="Train it.")
    if len(ids) == 2:
        with pytest.raises(SpecError, match=r"timm knows which belong together"):
            outputs(["tench", "goldfish"], data_of(*ids))
    else:  # a new last layer
        with pytest.warns(Remark, match="drawn at random"):
            assert outputs(["tench", "goldfish"], data_of(*ids)) is None


def test_numbers_as_classes_have_one_order():
    for data in (data_of("0", "1"), data_of(number=2)):
        assert outputs([], data, 2) == (0, 1)


@pytest.mark.parametrize(
    ("classes", "text"),
    [(["cat", "dog"], "2 classes: "), (["zebra", "dog"], "of which 1 are named")],
)
def test_another_number_of_outputs_gives_a_new_last_layer(classes, text):
    with pytest.warns(Remark, match=f"{text}.*its last layer is drawn at random"):
        assert outputs(ANIMALS, data_of(*classes)) is None
    with pytest.raises(SpecError, match=r" classes\b.*\. Name the outputs\.$"):
        outputs(ANIMALS, data_of(*classes), remedy="Name the outputs.")
