"""Files of arrays: what they hold is read as meant, or refused with the remedy."""

import os
import re

import numpy as np
import pytest
import torch

from jembench.catalog import registry
from jembench.catalog.spec import Spec
from jembench.data.images import Images
from jembench.data.npz import npz
from jembench.errors import JembenchError, Remark, SpecError, Unavailable
from jembench.experiment.recipe import default

RANDOM = np.random.default_rng(0)
TRAIN = RANDOM.integers(0, 256, (12, 3, 4, 5), dtype=np.uint8)
TEST = RANDOM.integers(0, 256, (6, 3, 4, 5), dtype=np.uint8)
LABELS = np.arange(12) % 3
FOUR = {"x_train": TRAIN, "y_train": LABELS, "x_test": TEST, "y_test": LABELS[:6]}


def saved(tmp_path, **arrays):
    np.savez(tmp_path / "my.npz", **arrays)
    return str(tmp_path / "my.npz")


def renamed(*names):
    return dict(zip(names, FOUR.values(), strict=True))


@pytest.mark.parametrize(
    "arrays",
    [
        FOUR,
        renamed("train_images", "train_labels", "test_images", "test_labels"),
        renamed("X_train", "Y_train", "X_test", "Y_test"),
        renamed("trainX", "trainY", "testX", "testY"),
        renamed("images_training", "targets_training", "data_testing", "label_testing"),
    ],
)
def test_every_spelling_is_the_same_dataset(tmp_path, arrays):
    dataset = npz(file=saved(tmp_path, **arrays))
    assert dataset.spec.shape == (3, 4, 5)
    assert (dataset.spec.name, dataset.spec.num_classes) == ("my", 3)
    assert (dataset.train_size, dataset.test_size) == (12, 6)
    images, labels = dataset.split("train")
    assert torch.equal(images[:], torch.tensor(TRAIN))
    assert labels.tolist() == LABELS.tolist()
    images, labels = dataset.split("test")
    assert torch.equal(images[:], torch.tensor(TEST))
    assert labels.tolist() == LABELS[:6].tolist()


def test_a_folder_and_a_compressed_file_hold_the_same(tmp_path):
    folder = tmp_path / "arrays"
    folder.mkdir()
    for name, array in FOUR.items():
        np.save(folder / f"{name}.npy", array)
    np.savez_compressed(tmp_path / "small.npz", **FOUR)
    for file in (folder, tmp_path / "small.npz"):
        dataset = npz(file=str(file))
        assert torch.equal(dataset.split("test").images[:], torch.tensor(TEST))
        assert dataset.split("train").labels.tolist() == LABELS.tolist()


def test_images_of_no_part_are_split_by_class(tmp_path):
    images = RANDOM.integers(0, 256, (50, 8, 8), dtype=np.uint8)
    labels = np.arange(50) % 5
    file = saved(tmp_path, images=images, labels=labels)
    dataset = npz(file=file)
    train, test = dataset.split("train"), dataset.split("test")
    assert (dataset.train_size, dataset.test_size) == (len(train.images), len(test.images))
    assert train.labels.bincount().tolist() == [8] * 5
    assert test.labels.bincount().tolist() == [2] * 5

    # each image once, with its own label
    label_of = {image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)}
    for part in (train, test):
        for image, label in zip(part.images[:].numpy(), part.labels.tolist(), strict=True):
            assert label_of.pop(image.tobytes()) == label
    assert not label_of

    assert torch.equal(npz(file=file).split("test").images[:], test.images[:])
    assert not torch.equal(npz(file=file, seed=1).split("test").images[:], test.images[:])
    assert npz(file=file, split=0.5).test_size == 25


def test_one_array_is_unlabelled(tmp_path):
    np.save(tmp_path / "faces.npy", TRAIN)
    dataset = npz(file=str(tmp_path / "faces.npy"), split=0.75)
    assert (dataset.spec.name, dataset.spec.num_classes) == ("faces", 0)
    assert (dataset.train_size, dataset.test_size) == (9, 3)
    assert dataset.split("train").labels is None


def test_test_images_alone_are_measured_and_train_nothing(tmp_path):
    names = np.array(["dog", "cat"])[LABELS[:6] % 2]
    alone = npz(file=saved(tmp_path, x_test=TEST, y_test=names))
    assert (alone.train_size, alone.test_size) == (0, 6)
    assert alone.spec.class_names == ("cat", "dog")
    with pytest.warns(Remark, match="0 to 1 are, in this order: cat, dog"):
        images, _ = alone.split("test")
    assert torch.equal(images[:], torch.tensor(TEST))
    assert [len(values) for values in alone.split("train")] == [0, 0]


def test_names_of_classes_are_numbered(tmp_path):
    names = np.array(["dog", "cat", "zebra"])
    texts = {"y_train": names[LABELS], "y_test": names[LABELS[:6]]}
    dataset = npz(file=saved(tmp_path, **{**FOUR, **texts}))
    assert dataset.spec.class_names == ("cat", "dog", "zebra")
    with pytest.warns(Remark, match="classes 0 to 2 are, in this order: cat, dog, zebra"):
        assert dataset.split("test").labels.tolist() == [1, 0, 2, 1, 0, 2]


def test_what_is_not_read_and_what_leaks_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")  # copies are looked for in memory alone
    leaking = {**FOUR, "x_test": TRAIN[:6], "x_val": TEST}
    with pytest.warns(Remark, match=r"Not read in .*my.npz: x_val\."):
        dataset = npz(file=saved(tmp_path, **leaking))
    with pytest.warns(Remark, match="6 of 6 test images of my are also among its training"):
        dataset.split("test")


def test_the_content_is_the_identity(tmp_path):
    def identity(file):
        return registry.resolve("datasets", f"npz:{file}").identity

    first = identity(saved(tmp_path, **FOUR))
    moved = tmp_path / "elsewhere.npz"
    moved.write_bytes((tmp_path / "my.npz").read_bytes())
    assert identity(moved) == first
    np.savez(tmp_path / "other.npz", **{**FOUR, "x_test": TEST ^ 1})
    assert identity(tmp_path / "other.npz") != first


def test_the_name_of_the_option_may_be_left_out():
    assert Spec("npz:/data/my.npz") == Spec("npz:file=/data/my.npz") == "npz:/data/my.npz"
    assert Spec("npz:a.npz,seed=1").options == {"file": "a.npz", "seed": "1"}


def test_few_images_choose_the_recipe_of_few(tmp_path):
    large = {name: np.tile(FOUR[name], (1, 1, 4, 4)) for name in ("x_train", "x_test")}
    assert default("jem", f"npz:{saved(tmp_path, **FOUR)}") == "digits"
    assert default("jem", f"npz:{saved(tmp_path, **FOUR | large)},name=large") == "small-images"


REFUSED = {
    "channels last": ({"x_train": TRAIN.transpose(0, 2, 3, 1)}, r"transpose\(0, 3, 1, 2\)"),
    "floats": (
        {"x_train": TRAIN / 255},
        r"The images of .*my.npz\['x_train'\] .*\(255 \* images\)",
    ),
    "flat": ({"x_test": TEST.reshape(6, -1)}, r"images.reshape\(-1, C, H, W\)"),
    "other shape": ({"x_test": TEST[:, :1]}, r"different shapes: \(3, 4, 5\), \(1, 4, 5\)"),
    "pairs of labels": ({"y_train": LABELS.repeat(2).reshape(-1, 2)}, r"of shape \(12, 2\)"),
    "labels from 1": ({"y_train": LABELS + 1}, "labels = labels - 1"),
    "a class of test alone": ({"y_test": LABELS[:6] + 1}, "has the labels 3 of test"),
    "fewer labels": ({"y_train": LABELS[:-1]}, "one for each of 12 images"),
    "two of one meaning": ({"train_images": TRAIN}, "x_train and train_images, two arrays"),
    "two layouts": ({"images": TRAIN}, "It must hold x_train, y_train"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_the_remedy_is_said_before_images_are_read(tmp_path, change, message):
    with pytest.raises(SpecError, match=message):
        npz(file=saved(tmp_path, **{**FOUR, **change}))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_train": LABELS}, "holds y_train. It must hold x_train"),
        ({"first": TRAIN, "second": TEST}, "holds first, second. It must"),
        ({"images": TRAIN[:1]}, "has one image, and needs two"),
        ({"images": TRAIN, "labels": np.array([0] * 11 + [1])}, "missing classes"),
    ],
)
def test_what_is_missing_is_said(tmp_path, arrays, message):
    with pytest.raises(SpecError, match=message):
        npz(file=saved(tmp_path, **arrays), split=0.1).split("train")


def test_a_split_of_the_file_is_kept(tmp_path):
    with pytest.raises(SpecError, match="split and seed have no effect"):
        npz(file=saved(tmp_path, **FOUR), seed=1)


def test_a_missing_file_and_an_empty_folder(tmp_path):
    with pytest.raises(Unavailable, match=r"There is no file .*no\.npz"):
        npz(file=str(tmp_path / "no.npz"))
    with pytest.raises(Unavailable, match=r"holds no \.npy files"):
        npz(file=str(tmp_path))


@pytest.mark.parametrize("length", [0, 3, 100, 1000, -1])
def test_a_file_cut_short_is_named(tmp_path, length):
    file = saved(tmp_path, **FOUR)
    (tmp_path / "my.npz").write_bytes((tmp_path / "my.npz").read_bytes()[:length])
    with pytest.raises(JembenchError, match=re.escape(f"{file} cannot be read as arrays")):
        npz(file=file).split("train")


def test_no_pickle_is_loaded(tmp_path):
    with pytest.raises(JembenchError, match="arrays of objects, such as images of several sizes"):
        npz(file=saved(tmp_path, **{**FOUR, "y_train": np.array([object()] * 12)}))


@pytest.mark.parametrize("kind", ["npz", "folder", "by columns", "compressed"])
def test_arrays_larger_than_the_limit_are_read_row_by_row(tmp_path, monkeypatch, kind):
    arrays = {**FOUR, "x_test": TEST[:, 0]}  # without an axis of channels
    arrays["x_train"] = TRAIN[:, :1]
    if kind == "folder":
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        file = str(tmp_path)
    elif kind == "compressed":
        file = str(tmp_path / "my.npz")
        np.savez_compressed(file, **arrays)
    else:
        if kind == "by columns":
            arrays = {name: np.asfortranarray(array) for name, array in arrays.items()}
        file = saved(tmp_path, **arrays)
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")
    dataset = npz(file=file)
    whole = {name: dataset.split(name) for name in ("train", "test")}
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    in_parts = npz(file=file)
    for name, expected in whole.items():
        images, labels = in_parts.split(name)
        assert isinstance(images, Images) == (kind in ("npz", "folder"))
        assert torch.equal(images[:], expected.images)
        assert torch.equal(images[torch.tensor([4, 1])], expected.images[[4, 1]])
        assert torch.equal(labels, expected.labels)


def test_arrays_larger_than_memory_are_read(tmp_path):
    shape = (2**21, 3, 64, 64)  # 24 GiB, of which the disk has nothing
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    with (tmp_path / "x_test.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + np.prod(shape, dtype=np.int64).item())
        stream.seek(-1, 2)
        stream.write(b"\7")
    images = npz(file=str(tmp_path)).split("test").images
    assert images.shape == shape
    assert images[-1].flatten()[-2:].tolist() == [0, 7]
    os.truncate(tmp_path / "x_test.npy", 100_000)
    with pytest.raises(JembenchError, match="it ends before image 9"):
        images[9]
