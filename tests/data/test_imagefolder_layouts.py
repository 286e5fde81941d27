"""Folders of images as people have them: which folders are classes, and what is said."""

import os
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jembench.data import folders
from jembench.data.factories import imagefolder
from jembench.errors import JembenchError, Remark, Unavailable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(256, size=(4, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def make(root: Path, *places: str) -> Path:
    """Write two images into each of the folders, all of them different."""
    for number, place in enumerate(places):
        for image in range(2):
            save(root / place / f"{image}.png", 2 * number + image)
    return root


def remarks(root: Path) -> list[str]:
    """Return the notes that reading both splits gives."""
    dataset = imagefolder(root=str(root))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset.split("train"), dataset.split("test")
    assert all(issubclass(warning.category, Remark) for warning in caught)
    return [str(warning.message) for warning in caught]


SPLIT = ("cat", "dog")


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "Test"), ("training", "testing"), ("TRAINING", "test")]
)
def test_folders_of_splits_have_any_of_their_names(tmp_path: Path, train: str, test: str) -> None:
    places = [f"{part}/{name}" for part in (train, test) for name in SPLIT]
    usual = [f"{part}/{name}" for part in ("train", "test") for name in SPLIT]
    dataset = imagefolder(root=str(make(tmp_path / "a", *places)))
    assert (dataset.spec.class_names, dataset.train_size, dataset.test_size) == (SPLIT, 4, 4)
    files = folders.files_of_imagefolder(str(tmp_path / "a"))
    assert [*files] == [*folders.files_of_imagefolder(str(make(tmp_path / "b", *usual)))]


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (
            ["photos/train/cat", "photos/train/dog", "photos/test/cat", "photos/test/dog"],
            "no images: photos",
        ),
        (["all/cat", "all/dog"], "are named like splits: all"),
        (["dataset/cat"], "hold folders and no images: dataset"),
        (["a/cat", "a/dog"], "hold folders and no images: a"),
        (
            ["fold1/cat", "fold1/dog", "fold2/cat", "fold2/dog"],
            "hold folders and no images: fold1, fold2",
        ),
        (["val/cat", "val/dog"], "are named like splits: val"),
        (["train_images", "val2017"], "are named like splits: train_images, val2017"),
        (["cat", "dog", "Validation/cat", "Validation/dog"], "folders of splits: Validation"),
        (["cat/train", "cat/test", "dog/train", "dog/test"], "no images: cat, dog"),
        (["cat/train", "dog/more"], "folders of splits: cat, dog"),
    ],
)
def test_folders_of_splits_are_no_classes(tmp_path: Path, places: list[str], text: str) -> None:
    root = make(tmp_path / "set", *places)
    with pytest.raises(
        Unavailable, match="Give imagefolder's root the folder that holds the classes"
    ) as raised:
        imagefolder(root=str(root))
    assert text in str(raised.value)


def test_two_folders_of_one_split_are_refused(tmp_path: Path) -> None:
    root = make(tmp_path / "set", "Train/cat", "train/cat", "test/cat")
    with pytest.raises(Unavailable, match=r"has Train/ and train/, two folders of one split"):
        imagefolder(root=str(root))


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["car", "train"], ("car", "train")),  # a class of vehicles
        (["train/car", "train/train", "test/car", "test/train"], ("car", "train")),
        (["invalid", "valid"], ("invalid", "valid")),
        (["cat/images", "dog/images"], ("cat", "dog")),  # as in Tiny ImageNet
        (["cat/siamese", "cat/persian", "dog/boxer", "dog/beagle"], ("cat", "dog")),
        (["one"], ("one",)),
    ],
)
def test_classes_are_taken_whatever_lies_within(
    tmp_path: Path, places: list[str], names: tuple[str, ...]
) -> None:
    assert imagefolder(root=str(make(tmp_path / "set", *places))).spec.class_names == names


def test_the_classes_have_the_order_of_their_names(tmp_path: Path) -> None:
    root = make(
        tmp_path / "set",
        *(f"{part}/{name}" for part in ("train", "test") for name in ("10", "2", "é", "a")),
    )
    assert imagefolder(root=str(root)).spec.class_names == ("10", "2", "a", "é")
    assert remarks(root) == []


def test_what_lies_beside_the_classes_is_named(tmp_path: Path) -> None:
    root = make(tmp_path / "set", "train/cat", "test/cat", "val/cat", "train")
    (root / "README.md").touch()
    (root / "train/cat/2.heic").touch()
    beside, unread = remarks(root)
    paths = ", ".join(str(root / name) for name in ("train/0.png", "train/1.png", "val"))
    assert beside == f"Not read, since they lie beside the folders of classes: {paths}."
    assert (
        unread == f"Not read, since .heic is no format of imagefolder: {root / 'train/cat/2.heic'}."
    )


def test_copies_of_training_images_among_the_test_images_are_counted(tmp_path: Path) -> None:
    root = make(tmp_path / "set", "train/cat", "train/dog", "test/cat", "test/dog")
    (root / "test/dog/9.png").write_bytes((root / "train/cat/1.png").read_bytes())
    (text,) = remarks(root)
    assert text.startswith(f"1 of 5 test images of {root} are also among its training images")
    assert text.endswith(
        f"The first is {root / 'test/dog/9.png'}, a copy of {root / 'train/cat/1.png'}."
    )


def test_of_many_test_images_some_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "set", "train/cat", "train/dog", "test/cat", "test/dog")
    for file in sorted(root.glob("test/*/*")):
        file.write_bytes((root / "train/cat/1.png").read_bytes())
    monkeypatch.setattr(folders, "_COMPARED", 3)
    (text,) = remarks(root)
    assert text.startswith(f"2 of 2 compared test images of {root} are also among its training")


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    root = make(tmp_path / "set", "train/cat", "train/dog", "test/cat", "test/dog")
    make(tmp_path / "elsewhere", "more", "bird")
    (root / "train/cat/more").symlink_to(tmp_path / "elsewhere/more")
    for part in ("train", "test"):
        (root / part / "bird").symlink_to(tmp_path / "elsewhere/bird")
    assert imagefolder(root=str(root)).train_size == 8
    assert imagefolder(root=str(root)).spec.class_names == ("bird", "cat", "dog")


@pytest.mark.parametrize(
    "links", [{"cat/up": "cat"}, {"cat/up": "."}, {"cat/x": "dog", "dog/y": "cat"}]
)
def test_links_without_an_end_are_refused(tmp_path: Path, links: dict[str, str]) -> None:
    root = make(tmp_path / "set", *SPLIT)
    for link, target in links.items():
        (root / link).symlink_to(root / target)
    with pytest.raises(
        Unavailable, match=r"is a link to .*, in which it lies, so that it has no end\. Remove"
    ):
        imagefolder(root=str(root))


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_link_to_nothing_is_named(tmp_path: Path, part: str) -> None:
    root = make(tmp_path / "set", "train/cat", "train/dog", "test/cat", "test/dog")
    (root / part / "cat/9.png").symlink_to("nowhere")
    dataset = imagefolder(root=str(root))
    dataset.split("test" if part == "train" else "train")
    with pytest.raises(
        JembenchError, match=r"cat/9\.png cannot be decoded as an image: No such file"
    ):
        dataset.split("test" if part == "test" else "train")


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, scan = make(tmp_path / "set", "cat", "cat/old", "dog"), os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("old"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        Unavailable, match=r"The folder .*cat/old cannot be read: Permission denied\."
    ):
        imagefolder(root=str(root))


def test_names_of_other_systems_are_the_same_names(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "été") for form in ("NFC", "NFD"))
    mixed = make(tmp_path / "a", f"train/{composed}", "train/f", f"test/{decomposed}", "test/f")
    plain = make(tmp_path / "b", f"train/{composed}", "train/f", f"test/{composed}", "test/f")
    assert imagefolder(root=str(mixed)).spec.class_names == ("f", composed)
    assert [*folders.files_of_imagefolder(str(mixed))] == [
        *folders.files_of_imagefolder(str(plain))
    ]
    make(mixed, f"train/{decomposed}")
    with pytest.raises(Unavailable, match="differ only in their Unicode form"):
        imagefolder(root=str(mixed))


def test_folders_that_systems_add_are_no_classes(tmp_path: Path) -> None:
    root = make(tmp_path / "set", *SPLIT, "__MACOSX/cat", "@eaDir", "cat/@eaDir")
    assert imagefolder(root=str(root)).spec.class_names == SPLIT
    assert len(folders.files_of_imagefolder(str(root))) == 4
