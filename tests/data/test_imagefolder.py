"""Folders of images: what is read and kept, and errors of faulty folders."""

import ast
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from jembench.catalog import registry
from jembench.catalog.spec import stable_hash
from jembench.data import decoding, folders, image_files
from jembench.data.factories import imagefolder
from jembench.errors import Fallback, JembenchError, Remark, SpecError, Unavailable


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
    expected = torch.stack(
        [torch.from_numpy(random_pixels(seed)).permute(2, 0, 1) for seed in range(6)]
    )
    assert torch.equal(train.images[:], expected[:4])
    assert torch.equal(test.images[:], expected[4:])
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 1, 1], [0, 1])
    assert (train.labels.dtype, train.images.is_contiguous()) == (torch.int64, True)


def test_the_spec_is_known_without_decoding(root: Path, cache: Path) -> None:
    spec = imagefolder(root=str(root)).spec
    assert (spec.name, spec.shape, spec.num_classes) == ("animals", (3, 4, 6), 2)
    assert spec.class_names == ("cat", "dog")
    assert imagefolder(root=str(root), name="pets").spec.name == "pets"
    assert not cache.exists()


def test_grey_palette_and_transparent_images_become_rgb(root: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(root / "train/cat/1.png")
    Image.fromarray(np.dstack([random_pixels(1), np.full((4, 6), 9, np.uint8)])).save(
        root / "train/dog/0.png"
    )
    Image.fromarray(grey).convert("P").save(root / "train/dog/1.png")
    with pytest.warns(Remark, match="1 of 4 images have transparent pixels"):
        images = imagefolder(root=str(root)).split("train").images[:]
    assert torch.equal(images[1], torch.from_numpy(grey).expand(3, -1, -1))
    assert torch.equal(images[2], torch.from_numpy(random_pixels(1)).permute(2, 0, 1))
    assert torch.equal(images[3], torch.from_numpy(grey).expand(3, -1, -1))


def test_grey_keeps_one_channel(root: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(grey).save(root / "train/cat/0.png")
    dataset = imagefolder(root=str(root), grey=True)
    assert dataset.spec.shape == (1, 4, 6)
    assert torch.equal(dataset.split("train").images[0][0], torch.from_numpy(grey))


def test_size_crops_the_central_square(root: Path) -> None:
    save(root / "train/cat/1.png", random_pixels(1, 20, 10))
    dataset = imagefolder(root=str(root), size=4)
    assert dataset.spec.shape == (3, 4, 4)
    first = torch.from_numpy(random_pixels(0)).permute(2, 0, 1)
    assert torch.equal(dataset.split("train").images[0], first[:, :, 1:5])


def test_only_images_that_are_not_hidden_count_in_folders_below_a_class_too(root: Path) -> None:
    (root / "train/cat/._0.png").write_bytes(b"a resource fork")
    (root / "train/.cache").mkdir()
    (root / "train/cat/Thumbs.db").write_bytes(b"thumbs")
    save(root / "train/dog/old/9.PNG", random_pixels(9))
    (root / "train/cat/0.png").rename(root / "elsewhere")
    (root / "train/cat/0.png").symlink_to(root / "elsewhere")
    assert [*folders.files_of_imagefolder(str(root))][:5] == [
        f"train/{name}"
        for name in ("cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png", "dog/old/9.PNG")
    ]
    assert imagefolder(root=str(root)).split("train").labels.tolist() == [0, 0, 1, 1, 1]


def all_grey(root: Path, *, mode: str = "L") -> None:
    for path in root.rglob("*.png"):
        Image.open(path).convert("L").convert(mode).save(path)


@pytest.mark.parametrize("mode", ["L", "LA", "1"])
def test_images_stored_in_one_channel_have_one(root: Path, mode: str) -> None:
    all_grey(root, mode=mode)
    assert imagefolder(root=str(root)).split("train").images.shape == (4, 1, 4, 6)
    assert imagefolder(root=str(root), grey=False).split("train").images.shape == (4, 3, 4, 6)


def test_the_first_image_decides_and_one_in_colour_is_refused_after_a_grey_one(root: Path) -> None:
    all_grey(root)
    save(root / "train/dog/1.png", random_pixels(5))
    assert (
        f"{root / 'train/dog/1.png'} is in colour, and the first image is grey. Add grey=false"
        in message(JembenchError, root, read=True)
    )
    assert imagefolder(root=str(root), grey=True).split("train").images.shape == (4, 1, 4, 6)
    save(root / "train/cat/0.png", random_pixels(5))
    assert imagefolder(root=str(root)).split("train").images.shape == (4, 3, 4, 6)


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Ten images of cats and three of dogs."""
    for name, count in (("cat", 10), ("dog", 3)):
        for number in range(count):
            save(tmp_path / "flat" / name / f"{number}.png", random_pixels(number))
    return tmp_path / "flat"


def split_of(folder: Path, **options: float) -> list[tuple[int, ...]]:
    """The labels of train and of test."""
    dataset = imagefolder(root=str(folder), **options)
    return [tuple(dataset.split(part).labels.tolist()) for part in ("train", "test")]


@pytest.mark.filterwarnings("ignore:.* are also among its training images")
def test_each_class_is_split(flat: Path) -> None:
    assert split_of(flat) == [(0,) * 8 + (1,) * 2, (0,) * 2 + (1,)]
    assert split_of(flat, split=0.5) == [(0,) * 5 + (1,) * 2, (0,) * 5 + (1,)]
    # at least one of each in each part
    assert split_of(flat, split=0.99) == [(0,) * 9 + (1,) * 2, (0, 1)]
    assert split_of(flat, split=0.01) == [(0, 1), (0,) * 9 + (1,) * 2]


def images_for_tests(flat: Path, seed: int) -> set[bytes]:
    """The pixels of the test images."""
    dataset = imagefolder(root=str(flat), seed=seed)
    assert (dataset.train_size, dataset.test_size) == (10, 3)
    images = {
        part: {image.numpy().tobytes() for image in dataset.split(part).images[:]}
        for part in ("train", "test")
    }
    assert len(images["train"] | images["test"]) == 10  # the dogs are three of the cats
    return images["test"]


@pytest.mark.filterwarnings("ignore:.* are also among its training images")
def test_the_seed_chooses_the_images(flat: Path) -> None:
    assert images_for_tests(flat, 0) == images_for_tests(flat, 0)
    assert len({frozenset(images_for_tests(flat, seed)) for seed in range(10)}) > 5


def test_the_split_is_frozen(flat: Path) -> None:
    place = {
        number: hashlib.sha256(f"7/cat/{number}.png".encode()).digest() for number in range(10)
    }
    last = sorted(place, key=place.__getitem__)[8:]
    assert {
        random_pixels(number).transpose(2, 0, 1).tobytes() for number in last
    } <= images_for_tests(flat, 7)


def test_a_new_image_moves_few_others(flat: Path) -> None:
    before = {*folders._split_parts(str(flat), 0.8, 0)["test"]}
    save(flat / "cat" / "new.png", random_pixels(99))
    assert len(before ^ {*folders._split_parts(str(flat), 0.8, 0)["test"]}) <= 2


def test_the_split_is_part_of_the_identity(flat: Path) -> None:
    def identity(options: str) -> object:
        return registry.resolve("datasets", f"imagefolder:root={flat}{options}").identity

    assert identity("") == identity(",split=0.8,seed=0") == identity(",split=.8")
    assert (
        len(
            {
                stable_hash(identity(options))
                for options in ("", ",split=.7", ",seed=1", ",grey=false")
            }
        )
        == 4
    )


def test_without_a_share_for_training_all_images_are_for_tests(flat: Path) -> None:
    dataset = imagefolder(root=str(flat), split=0.0)
    assert (dataset.train_size, dataset.test_size) == (0, 13)
    assert dataset.split("test").labels.tolist() == [0] * 10 + [1] * 3
    assert len(dataset.split("train").images) == 0


def test_images_are_resized_bilinearly_by_choice(root: Path) -> None:
    square = Image.fromarray(random_pixels(0)[:, 1:5])
    for method, expected in (("bicubic", Image.BICUBIC), ("bilinear", Image.BILINEAR)):
        image = imagefolder(root=str(root), size=3, method=method).split("train").images[0]
        assert np.array_equal(image.permute(1, 2, 0), square.resize((3, 3), expected))
    assert "method of imagefolder has no effect" in message(SpecError, root, method="bilinear")


def test_imagenet_s_flat_validation_images_have_a_remedy_of_their_own(tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / "val" / f"ILSVRC2012_val_{number:08}.JPEG", random_pixels(number))
    text = message(Unavailable, tmp_path / "val")
    assert "torchvision.datasets.ImageNet(FOLDER, 'val') unpacks" in text


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(path: str, *further: object) -> np.ndarray:
        raise AssertionError(f"decoded {path}")

    monkeypatch.setattr(decoding, "_decode", decode)


def test_a_second_start_decodes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = imagefolder(root=str(root)).split("train")
    pixels = first.images[:]
    forbid_decoding(monkeypatch)
    second = imagefolder(root=str(root), name="pets").split("train")
    assert torch.equal(second.images[:], pixels)
    assert torch.equal(first.labels, second.labels)


@pytest.mark.parametrize("change", ["rewritten", "touched", "added", "renamed", "moved"])
def test_a_changed_folder_is_decoded_again_and_replaces_its_cache(
    root: Path, cache: Path, change: str
) -> None:
    imagefolder(root=str(root)).split("train").images[:]
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
        torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)
        for path in sorted(root.glob("train/*/*.png"))
    ]
    assert torch.equal(split.images[:], torch.stack(expected))
    assert len(list(cache.iterdir())) == 1


def test_a_torn_cache_is_made_anew(root: Path, cache: Path) -> None:
    first = imagefolder(root=str(root)).split("train").images[:]
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:40], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.warns(Fallback, match=f"{file} is damaged .*The images are decoded again"):
            assert torch.equal(imagefolder(root=str(root)).split("train").images[:], first)
        assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_only_costs_time(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    assert len(imagefolder(root=str(root)).split("train").images) == 4


def message(error: type[JembenchError], root: Path, read: bool = False, **options: float) -> str:
    dataset = imagefolder(root=str(root), **options) if read else None
    with pytest.raises(error) as raised:
        dataset.split("train").images[:] if dataset else imagefolder(root=str(root), **options)
    text = str(raised.value)
    assert "\n" not in text
    assert str(root) in text
    return text


def test_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert "There is no folder" in message(Unavailable, tmp_path / "loop")
    assert "It must hold train/<class>/*" in message(Unavailable, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("test", "more", "has train/ and no test/."),
        ("test/dog", "test/wolf", "differ: dog, wolf is in only one of them"),
        ("test/dog/0.png", "test/dog/0.txt", "test/dog holds no images (.apng"),
    ],
)
def test_a_folder_whose_parts_do_not_match(root: Path, before: str, after: str, text: str) -> None:
    (root / before).rename(root / after)
    assert text in message(Unavailable, root)


def test_test_images_alone_have_the_classes(root: Path) -> None:
    whole = imagefolder(root=str(root))
    shutil.rmtree(root / "train")
    alone = imagefolder(root=str(root))
    assert alone.spec == whole.spec
    assert (alone.train_size, alone.test_size) == (0, whole.test_size)
    for values, expected in zip(alone.split("test"), whole.split("test"), strict=True):
        assert torch.equal(values[:], expected[:])
    assert [len(values) for values in alone.split("train")] == [0, 0]
    assert "has test/, so split and seed" in message(SpecError, root, seed=1)


def test_images_without_classes(tmp_path: Path) -> None:
    for number in range(10):
        save(tmp_path / "set" / f"{number}.png", random_pixels(number))
    text = message(Unavailable, tmp_path / "set")
    assert "has no class folders" in text
    assert "add unlabelled=true" in text
    flat = imagefolder(root=str(tmp_path / "set"), unlabelled=True)
    assert (flat.spec.num_classes, flat.train_size, flat.test_size) == (0, 8, 2)
    parts = [flat.split(name) for name in ("train", "test")]
    assert [part.labels for part in parts] == [None, None]
    pixels = {image.numpy().tobytes() for part in parts for image in part.images[:]}
    assert len(pixels) == 10

    (tmp_path / "whole").mkdir()
    (tmp_path / "set").rename(tmp_path / "whole" / "test")
    alone = imagefolder(root=str(tmp_path / "whole"), unlabelled=True)
    assert (alone.train_size, alone.test_size) == (0, 10)
    assert {image.numpy().tobytes() for image in alone.split("test").images[:]} == pixels


def test_class_folders_are_ignored_in_unlabelled_images(root: Path) -> None:
    labelled, unlabelled = (imagefolder(root=str(root), unlabelled=flag) for flag in (False, True))
    assert unlabelled.spec.num_classes == 0
    assert torch.equal(unlabelled.split("train").images[:], labelled.split("train").images[:])


def test_a_folder_without_classes(tmp_path: Path) -> None:
    save(tmp_path / "set" / "0.png", random_pixels(0))
    assert f"{tmp_path / 'set'} has no class folders" in message(Unavailable, tmp_path / "set")
    text = message(Unavailable, tmp_path / "set", unlabelled=True)
    assert "has one image, and needs two" in text


def test_an_image_of_another_size_is_named(root: Path) -> None:
    save(root / "train/dog/0.png", random_pixels(0, 5, 7))
    text = message(JembenchError, root, read=True)
    assert (
        f"{root / 'train/dog/0.png'} has 7x5 pixels (width x height), and the first image "
        "6x4. Add" in text
    )


def test_a_class_of_one_image_cannot_be_split(flat: Path) -> None:
    save(flat / "bird" / "0.png", random_pixels(0))
    assert "has one image of bird, and a class needs two" in message(Unavailable, flat)


def test_a_folder_that_is_split_already(root: Path) -> None:
    assert "has train/ and test/, so split and seed" in message(SpecError, root, split=0.5)


def test_no_file_starts_ghostscript(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(
        EpsImagePlugin,
        "Ghostscript",
        lambda *given: started.append(given) or Image.new("RGB", (6, 4)),
    )
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n%%EndComments\nshowpage\n%%EOF\n"
    (root / "train/cat/0.png").write_bytes(eps)
    assert f"{root / 'train/cat/0.png'} cannot be decoded" in message(JembenchError, root)
    with pytest.raises(JembenchError, match="cannot be decoded"):
        decoding.decoded(
            "cats",
            root,
            {"0.png": root / "train/cat/0.png"},
            decoding.Form(mode="RGB", height=4, width=6, square=False),
        )[:]
    assert not started


@pytest.mark.parametrize("suffix", image_files.SUFFIXES)
def test_every_suffix_is_that_of_a_format_that_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"0{suffix}"
    Image.fromarray(random_pixels(0)).convert("L").save(path)
    with decoding.opened(str(path)) as image:
        assert image.size == (6, 4)
        image.load()


def test_the_formats_are_named_wherever_an_image_is_opened() -> None:
    repository = Path(__file__).parents[2]
    sources = {}
    for folder in ("jembench", "plugins"):
        for path in (repository / folder).rglob("*.py"):
            sources[path] = path.read_text()
    calls = [
        (path, call)
        for path, text in sources.items()
        if "open" in text and "PIL" in text  # parsing takes long
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Image.open"
    ]
    assert calls
    assert not [
        str(path)
        for path, call in calls
        if "formats" not in {keyword.arg for keyword in call.keywords}
    ]


def test_an_image_cut_short_is_named(root: Path) -> None:
    for image in root.rglob("*.png"):
        save(image, random_pixels(0, 60, 60))
    path = root / "train/dog/1.png"
    path.write_bytes(path.read_bytes()[:-2000])
    assert f"{path} cannot be decoded" in message(JembenchError, root, read=True)


def test_more_than_eight_bits_are_not_cut_off_silently(root: Path) -> None:
    save(root / "train/dog/0.png", np.full((4, 6), 40_000, np.uint16))
    assert "more than 8 bits" in message(JembenchError, root, read=True)
