"""Arrays at the door: each form is measured as meant, or refused with the remedy."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import jembench as jb
from jembench.api.live import dataset_spec
from jembench.catalog import registry
from jembench.data.arrays import label_array, of_arrays
from jembench.errors import NotApplicable, Remark, SpecError
from jembench.experiment.recipe import default
from jembench.interfaces import DataSpec, Split
from jembench.parts import LogitModel

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* are also among its training:jembench.errors.Remark"
)
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 2, 5), dtype=np.uint8)
LABELS = np.arange(12) % 3


def both(images=IMAGES, labels=LABELS):
    return {"train": (images, labels), "test": (images, labels)}


def saved(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def frozen():
    images = IMAGES.copy()
    images.flags.writeable = False
    return images


ALIKE = {
    "channels": lambda: (IMAGES[:, None], LABELS),
    "reversed twice": lambda: (IMAGES[::-1].copy()[::-1], LABELS[::-1].copy()[::-1]),
    "other order in memory": lambda: (np.asfortranarray(IMAGES), LABELS),
    "read only": lambda: (frozen(), LABELS),
    "tensors": lambda: (torch.tensor(IMAGES), torch.tensor(LABELS)),
    "sparse": lambda: (torch.tensor(IMAGES).to_sparse(), torch.tensor(LABELS)),
    "list": lambda: (list(IMAGES), LABELS.tolist()),
    "list of tensors": lambda: (list(torch.tensor(IMAGES)), list(torch.tensor(LABELS))),
    "array of objects": lambda: (
        np.array([*IMAGES, None], object)[:-1],
        LABELS.astype(object).astype(int),
    ),
    "pandas": lambda: (IMAGES, pd.Series(LABELS)),
    **{
        f"labels of {kind}": lambda kind=kind: (IMAGES, LABELS.astype(kind))
        for kind in (">i4", "u2", "u8", "i1")
    },
    "labels of a tensor of other type": lambda: (IMAGES, torch.tensor(LABELS, dtype=torch.uint16)),
}


@pytest.mark.parametrize("made", ALIKE.values(), ids=ALIKE)
def test_forms_of_the_same_arrays(made):
    assert dataset_spec(both(*made())) == dataset_spec(both())


def test_a_file_in_memory_and_a_dataset_of_one_tensor(tmp_path):
    assert dataset_spec(both(saved(tmp_path))) == dataset_spec(both())
    images = TensorDataset(torch.tensor(IMAGES))
    split = of_arrays({"train": images, "test": images}).split("train")
    assert split.images.shape == (12, 1, 2, 5)
    assert split.labels is None


def test_images_are_kept_pixel_by_pixel():
    kept = of_arrays(both(IMAGES[:, ::-1], LABELS.astype(bool))).split("test")
    assert torch.equal(kept.images[:, 0], torch.tensor(IMAGES[:, ::-1].copy()))
    assert kept.labels.tolist() == (LABELS > 0).tolist()


def test_names_of_classes_become_numbers_with_a_note():
    made = of_arrays(both(labels=np.array(["dog", "cat", "zebra"])[LABELS]))
    with pytest.warns(Remark, match="classes 0 to 2 are, in this order: cat, dog, zebra"):
        labels = made.split("test").labels
    assert made.spec.class_names == ("cat", "dog", "zebra")
    assert labels.tolist() == np.array([1, 0, 2])[LABELS].tolist()
    with pytest.warns(Remark):
        of_texts = dataset_spec(both(labels=pd.Series(np.array(["a", "b", "c"])[LABELS])))
    assert of_texts != dataset_spec(both())  # which has no names


wide = np.zeros((12, 8, 8, 3), np.uint8)
REFUSED = {
    "channels last": (wide, LABELS, r"channels last.*transpose\(0, 3, 1, 2\)"),
    "one channel last": (wide[..., :1], LABELS, "channels last"),
    "transparency last": (np.zeros((12, 8, 8, 4), np.uint8), LABELS, "channels last"),
    "transparency": (np.zeros((12, 4, 8, 8), np.uint8), LABELS, r"images\[:, :3\]"),
    "flat": (IMAGES.reshape(12, -1), LABELS, r"images.reshape\(-1, C, H, W\)"),
    "floats to 1": (IMAGES / 255, LABELS, r"\(255 \* images\)"),
    "floats from -1": (torch.tensor(IMAGES) / 127.5 - 1, LABELS, r"127.5 \* \(images \+ 1\)"),
    "normalised": (IMAGES / 40 - 2, LABELS, "undo their normalisation"),
    "16 bits": (IMAGES.astype("u2") * 257, LABELS, "images // 257"),
    "16 bits, other order": (IMAGES.astype(">u2") * 257, LABELS, "images // 257"),
    "floats to 16": (IMAGES // 16 * 1.0, LABELS, "so that 255 is white"),
    "floats above 1 by resizing": (IMAGES / 200, LABELS, "so that 255 is white"),
    "labels first": (LABELS, IMAGES, "in this order"),
    "pairs": ([(IMAGES[0], 0), (IMAGES[1], 1), (IMAGES[2], 2)], LABELS, "make two arrays"),
    "long": (IMAGES.astype(int), LABELS, r"images.round\(\).astype\(np.uint8\)"),
    "black and white": (IMAGES > 99, LABELS, "black and white"),
    "nan": (np.full(IMAGES.shape, np.nan), LABELS, "NaN"),
    "none": (IMAGES[:0], LABELS[:0], "at least one"),
    "no rows": (IMAGES[:, :0], LABELS, "at least one"),
    "gradients": (torch.ones(12, 2, 5, requires_grad=True), LABELS, r"\(255 \* images\)"),
    "sizes": ([IMAGES[0], IMAGES[1, :1]] * 6, LABELS, "one size"),
    "masked": (np.ma.masked_array(IMAGES, IMAGES > 9), LABELS, "masked"),
    "text": ("images", LABELS, "given as str"),
    "gap": (IMAGES, LABELS * 2, r"0, 2, 4; .*np.unique\(labels"),
    "from 1": (IMAGES, LABELS + 1, "labels = labels - 1"),
    "huge": (IMAGES, LABELS * 10**8, "without a gap"),
    "negative": (IMAGES, LABELS - 1, "from -1 to 1"),
    "one-hot": (IMAGES, np.eye(3)[LABELS], r"labels.argmax\(1\)"),
    "floats": (IMAGES, LABELS * 1.0, r"labels.astype\(int\)"),
    "labels with nan": (IMAGES, np.where(LABELS, LABELS, np.nan), "NaN"),
    "objects": (IMAGES, np.array([0, "a", None] * 4, object), "names of classes, one for each"),
    "fewer": (IMAGES, LABELS[:-1], "one for each of 12 images"),
    "of no kind": (IMAGES, 3, "labels of train are given as int"),
}


@pytest.mark.parametrize(("images", "labels", "message"), REFUSED.values(), ids=REFUSED)
def test_the_remedy_is_said(images, labels, message):
    with pytest.raises(SpecError, match=message) as error:
        dataset_spec(both(images, labels))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ((IMAGES[:3], np.array([0, 1, 3])), "labels 3 of test"),
        ((IMAGES[:2], np.array(["a", "b"])), "Only one part's labels are names"),
        ((IMAGES, LABELS, LABELS), "given as tuple"),
        ({"x": IMAGES}, "has the keys x"),
        (TensorDataset(*[torch.zeros(2)] * 3), "3 tensors"),
    ],
)
def test_a_test_part_that_does_not_fit(test, message):
    with pytest.raises(SpecError, match=message):
        dataset_spec({"train": (IMAGES, LABELS), "test": test})


class Given:
    """A dataset of the user, which hands out its own tensors."""

    def __init__(self, **spec):
        self.spec = DataSpec(**{"name": "given", "shape": (1, 2, 5), "num_classes": 3, **spec})
        self.images, self.labels = torch.tensor(IMAGES)[:, None], torch.tensor(LABELS)

    def split(self, name):
        return Split(self.images, self.labels)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"num_classes": 2}, "from 0 to 2; of 2 classes"),
        ({"shape": (1, 5, 2)}, r"it must be \(N, 1, 5, 2\)"),
    ],
)
def test_a_dataset_that_is_not_as_it_says(spec, message):
    with pytest.raises(SpecError, match=message):
        dataset_spec(Given(**spec))


def test_what_changes_later_changes_no_result(tmp_path):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(10, 3))

    def loss(data):
        (record,) = jb.run(
            "hybrid", models=net, datasets=data, metrics="nll", store=tmp_path, progress=False
        )
        return record.value

    images, data = IMAGES.copy(), Given()
    first = loss(both(images)), loss(data)
    images[:] = 255 - images
    data.images.copy_(255 - data.images)
    others = loss(both(images)), loss(data)
    assert (loss(both()), loss(Given())) == first
    assert first[0] not in others
    assert others[0] == pytest.approx(others[1])


def test_the_number_of_images_chooses_the_recipe():
    few = dataset_spec(both())
    many = np.zeros((20_000, 1, 1), np.uint8)
    assert default("jem", few) == "digits"
    large = np.tile(IMAGES, (1, 8, 4))  # 16 x 20
    assert default("jem", dataset_spec(both(large))) == "small-images"
    assert (
        default("jem", dataset_spec({"train": (many, None), "test": (many[:3], None)})) == "paper"
    )
    assert registry.resolve("datasets", few).make().train_size == 12


def test_no_form_gives_a_warning_but_names():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset_spec({"train": (frozen(), LABELS[::-1]), "test": (255 - IMAGES, LABELS)})


def test_test_images_among_the_training_images_are_counted():
    others = {
        "train": (IMAGES, LABELS),
        "test": (np.concatenate([255 - IMAGES, IMAGES[:2]]), LABELS[[*range(12), 0, 1]]),
    }
    with pytest.warns(
        Remark, match="2 of 14 test images of arrays are also among its training images"
    ):
        of_arrays(others).split("test")


@pytest.mark.parametrize(("most", "factor"), [(1, 255), (16, 15)])
def test_images_that_are_almost_black_are_noticed(most, factor):
    images = IMAGES % (most + 1)
    with pytest.warns(Remark, match=rf"levels up to {most} of 255, .* images \* {factor}\."):
        of_arrays({"train": (images, LABELS), "test": (most - images, LABELS)}).split("test")


class OfTheFirstPixel(nn.Module):
    """A network that needs no training: the first pixel is the class."""

    def forward(self, x):
        level = 255 * (x[:, 0, 0, 0] + 1) / 2
        return -((level[:, None] - torch.arange(3)) ** 2)


def test_test_images_alone_measure_a_network_and_train_none(tmp_path):
    images = IMAGES.copy()
    images[:, 0, 0] = LABELS
    images[0, 0, 0] = 2  # of class 0
    options = {"datasets": {"test": (images, LABELS)}, "store": tmp_path, "progress": False}
    metrics = ["accuracy", "fid:images=64"]
    sampler = "sgld:steps=1"
    net = LogitModel(OfTheFirstPixel())
    rows = jb.run("hybrid", models=net, metrics=metrics, sampler=sampler, **options)
    values = {row.metric.bare: row for row in rows}
    assert values["accuracy"].value == pytest.approx(100 * 11 / 12)
    assert values["fid"].status == "na"
    assert "arrays has test images alone" in values["fid"].reason
    with pytest.raises(NotApplicable, match="arrays has test images alone, and baseline must be"):
        jb.run("hybrid", models="baseline", metrics="accuracy", **options)


def test_running_statistics_are_left_alone_without_training_images(tmp_path, capsys):
    size = IMAGES[0].size
    net = LogitModel(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(size), nn.Linear(size, 3)))
    test = {"test": (IMAGES, LABELS)}
    jb.run("hybrid", models=net, metrics="accuracy", datasets=test, store=tmp_path)
    assert "were not compared" not in capsys.readouterr().err


def test_names_have_one_unicode_form():
    labels = np.array(["caf\u00e9", "cafe\u0301", "tea"])[LABELS]
    made = of_arrays(both(labels=labels))
    with pytest.warns(Remark, match="classes 0 to 1"):
        made.split("test")
    assert made.spec.class_names == ("caf\u00e9", "tea")


@pytest.mark.parametrize("labels", [LABELS, np.array(["ant", "bee", "cat"] * 4)])
def test_a_column_of_labels_is_read_as_labels(labels):
    assert label_array("train", labels[:, None], 12).tolist() == labels.tolist()
    with pytest.raises(SpecError, match="one for each of 12 images"):
        label_array("train", np.stack([labels, labels], axis=1), 12)
