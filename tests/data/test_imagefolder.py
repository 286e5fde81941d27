"""Folders of images: what is read, what is kept, and what is said of a folder that is not in order."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from jembench.data import decoding
from jembench.data.factories import imagefolder
from jembench.errors import Fallback, JembenchError, SpecError, Unavailable

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jembench" / "decoded"


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def random_pixels(seed: int, height: int = 4, width: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes, 4 high and 6 wide: two training images and one test image of each."""
    folder = tmp_path / "animals"
    for index, path in enumerate(
        ("train/cat/0", "train/cat/1", "train/dog/0", "train/dog/1", "test/cat/0", "test/dog/0")
    ):
        save(folder / f"{path}.png", random_pixels(index))
    return folder


def test_images_and_labels_come_sorted_by_class_and_name(root: Path) -> None:
    dataset = imagefolder(root=str(root))
    train, test = dataset.split("train"), dataset.split("test")
    expected = torch.stack([torch.from_numpy(random_pixels(seed)).permute(2, 0, 1) for seed in range(6)])
    assert torch.equal(train.images, expected[:4])
    assert torch.equal(test.images, expected[4:])
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 1, 1], [0, 1])
    assert (train.labels.dtype, train.images.is_contiguous()) == (torch.int64, True)


def test_the_spec_is_known_without_decoding(root: Path, cache: Path) -> None:
    spec = imagefolder(root=str(root)).spec
    assert (spec.name, spec.shape, spec.num_classes) == ("animals", (3, 4, 6), 2)
    assert spec.class_names == ("cat", "dog")
    assert imagefolder(root=str(root), name="pets").spec.name == "pets"
    assert not cache.exists()


def test_classes_are_numbered_as_cifar10_numbers_them(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in reversed(CIFAR10):
            save(tmp_path / "set" / part / name / "0000.png", random_pixels(0))
    dataset = imagefolder(root=str(tmp_path / "set"))
    assert dataset.spec.class_names == CIFAR10
    assert dataset.split("test").labels.tolist() == list(range(10))


def test_grey_palette_and_transparent_images_become_rgb(root: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(root / "train/cat/0.png")
    Image.fromarray(np.dstack([random_pixels(1), np.full((4, 6), 9, np.uint8)])).save(root / "train/cat/1.png")
    Image.fromarray(grey).convert("P").save(root / "train/dog/0.png")
    images = imagefolder(root=str(root)).split("train").images
    assert torch.equal(images[0], torch.from_numpy(grey).expand(3, -1, -1))
    assert torch.equal(images[1], torch.from_numpy(random_pixels(1)).permute(2, 0, 1))
    assert torch.equal(images[2], torch.from_numpy(grey).expand(3, -1, -1))


def test_grey_keeps_one_channel(root: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(root / "train/cat/0.png")
    dataset = imagefolder(root=str(root), grey=True)
    assert dataset.spec.shape == (1, 4, 6)
    assert torch.equal(dataset.split("train").images[0, 0], torch.from_numpy(grey))


def test_size_crops_the_central_square(root: Path) -> None:
    dataset = imagefolder(root=str(root), size=4)
    assert dataset.spec.shape == (3, 4, 4)
    first = torch.from_numpy(random_pixels(0)).permute(2, 0, 1)
    assert torch.equal(dataset.split("train").images[0], first[:, :, 1:5])


def test_size_makes_images_of_different_sizes_alike(root: Path) -> None:
    tall = np.zeros((20, 10, 3), np.uint8)
    tall[5:15] = (10, 200, 30)  # the central square
    save(root / "train/cat/0.png", tall)
    image = imagefolder(root=str(root), size=2).split("train").images[0]
    assert torch.equal(image, torch.tensor([10, 200, 30], dtype=torch.uint8)[:, None, None].expand(3, 2, 2))


def test_hidden_and_foreign_files_are_passed_over(root: Path) -> None:
    (root / "train/cat/._0.png").write_bytes(b"a resource fork")
    (root / "train/cat/Thumbs.db").write_bytes(b"thumbs")
    (root / "train/.cache").mkdir()
    dataset = imagefolder(root=str(root))
    assert dataset.spec.class_names == ("cat", "dog")
    assert len(dataset.split("train").images) == 4


# --- the cache of decoded images --------------------------------------------------------------------------------------


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(path: str, form: object) -> np.ndarray:
        raise AssertionError(f"decoded {path}")

    monkeypatch.setattr(decoding, "_decode", decode)


def test_a_second_start_decodes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = imagefolder(root=str(root)).split("train")
    forbid_decoding(monkeypatch)
    second = imagefolder(root=str(root), name="pets").split("train")
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_options_do_not_share_a_cache(root: Path) -> None:
    shapes = [
        tuple(imagefolder(root=str(root), **options).split("test").images.shape)
        for options in ({}, {"size": 2}, {"size": 4}, {"grey": True}, {})
    ]
    assert shapes == [(2, 3, 4, 6), (2, 3, 2, 2), (2, 3, 4, 4), (2, 1, 4, 6), (2, 3, 4, 6)]


@pytest.mark.parametrize("change", ["rewritten", "touched", "added", "renamed", "moved"])
def test_a_changed_folder_is_decoded_again_and_replaces_its_cache(root: Path, cache: Path, change: str) -> None:
    imagefolder(root=str(root)).split("train")
    first, last = root / "train/cat/0.png", root / "train/dog/1.png"
    if change == "rewritten":
        save(first, random_pixels(77))
    elif change == "touched":
        os.utime(first, ns=(1, 1))
    elif change == "added":
        save(root / "train/dog/9.png", random_pixels(77))
    elif change == "renamed":
        first.rename(root / "train/cat/2.png")
    else:
        last.rename(root / "train/cat/9.png")
    split = imagefolder(root=str(root)).split("train")
    expected = [
        torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) for path in sorted(root.glob("train/*/*.png"))
    ]
    assert torch.equal(split.images, torch.stack(expected))
    assert len(list(cache.iterdir())) == 1


def test_a_torn_cache_is_made_anew(root: Path, cache: Path) -> None:
    first = imagefolder(root=str(root)).split("train").images
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:40], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.warns(Fallback, match=f"{file} is damaged .*The images are decoded again"):
            assert torch.equal(imagefolder(root=str(root)).split("train").images, first)
        assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_only_costs_time(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    assert len(imagefolder(root=str(root)).split("train").images) == 4


# --- folders that are not in order ------------------------------------------------------------------------------------


def message(error: type[JembenchError], root: Path, read: bool = False) -> str:
    """What is said of the folder: when it is opened, or when its images are read."""
    if read:
        dataset = imagefolder(root=str(root))
        with pytest.raises(error) as raised:
            dataset.split("train")
    else:
        with pytest.raises(error) as raised:
            imagefolder(root=str(root))
    text = str(raised.value)
    assert "\n" not in text
    assert str(root) in text
    return text


def test_a_missing_folder(tmp_path: Path) -> None:
    assert "It must hold train/<class>/*" in message(Unavailable, tmp_path / "nowhere")


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_missing_part(root: Path, part: str) -> None:
    (root / part).rename(root / "other")
    assert f"has no {part}/." in message(Unavailable, root)


def test_images_without_class_folders(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / part / "0.png", random_pixels(0))
    assert "has no class folders" in message(Unavailable, tmp_path)


def test_a_class_of_one_part_only(root: Path) -> None:
    (root / "test/dog").rename(root / "test/wolf")
    assert "differ: test/dog, train/wolf missing" in message(Unavailable, root)


def test_a_class_without_images(root: Path) -> None:
    for path in (root / "train/dog").iterdir():
        path.unlink()
    assert f"{root / 'train/dog'} holds no images" in message(Unavailable, root, read=True)


@pytest.mark.parametrize(("path", "read"), [("train/cat/0.png", False), ("train/dog/1.png", True)])
def test_an_image_that_cannot_be_decoded_is_named(root: Path, cache: Path, path: str, read: bool) -> None:
    (root / path).write_bytes(b"not an image")
    assert f"{root / path} cannot be decoded" in message(JembenchError, root, read=read)
    assert not cache.exists()


def test_an_image_cut_short_is_named(root: Path) -> None:
    path = root / "train/dog/1.png"
    save(path, random_pixels(0, 60, 60))
    path.write_bytes(path.read_bytes()[:-2000])
    assert f"{path} cannot be decoded" in message(JembenchError, root, read=True)


def test_an_image_of_another_size_is_named(root: Path) -> None:
    save(root / "train/dog/0.png", random_pixels(0, 5, 7))
    text = message(JembenchError, root, read=True)
    assert f"{root / 'train/dog/0.png'} is 7x5 and the first image 6x4" in text
    assert "size=" in text


def test_more_than_eight_bits_are_not_cut_off_silently(root: Path) -> None:
    save(root / "train/dog/0.png", np.full((4, 6), 40_000, np.uint16))
    assert "more than 8 bits" in message(JembenchError, root, read=True)


def test_a_size_below_zero(root: Path) -> None:
    with pytest.raises(SpecError, match="size of imagefolder is -1"):
        imagefolder(root=str(root), size=-1)
