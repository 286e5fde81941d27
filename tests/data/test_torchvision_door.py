"""The classification sets of torchvision, read from files in their authors' format."""

import gzip
import re

import numpy as np
import pytest
import torch
import torchvision.datasets as tv
import typechecking

from jembench.catalog import registry
from jembench.data.factories import torchvision
from jembench.data.torchvision_door import TorchvisionDataset
from jembench.errors import SpecError, Unavailable
from jembench.experiment import recipe

RANDOM = np.random.default_rng(0)
SIZES = {"train": 20, "t10k": 10}


def idx(array):
    """Return the bytes of an array in the format of MNIST: a magic number, sizes, values."""
    header = np.array([0x0800 + array.ndim, *array.shape], ">u4")
    return header.tobytes() + array.tobytes()


@pytest.fixture
def arrays(tmp_path):
    """The images and labels of FashionMNIST's files, which are written to tmp_path."""
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    made = {}
    for part, size in SIZES.items():
        images = RANDOM.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        labels = (np.arange(size) % 10).astype(np.uint8)
        made[part] = images, labels
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return made


def test_the_pixels_and_names_of_fashion_mnist(tmp_path, arrays):
    dataset = torchvision(name="FashionMNIST", root=str(tmp_path))
    assert (dataset.spec.name, dataset.spec.shape) == ("fashionmnist", (1, 28, 28))
    assert dataset.spec.class_names == tuple(tv.FashionMNIST.classes)
    assert dataset.train_size == 20
    for name, part in (("train", "train"), ("test", "t10k")):
        images, labels = dataset.split(name)
        assert torch.equal(images[:][:, 0], torch.tensor(arrays[part][0]))
        assert labels.tolist() == arrays[part][1].tolist()


def test_large_sets_are_read_in_parts(tmp_path, arrays, monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    rows = []
    original = tv.FashionMNIST.__getitem__

    def read(self, row):
        rows.append(row)
        return original(self, row)

    monkeypatch.setattr(tv.FashionMNIST, "__getitem__", read)
    images, labels = torchvision(name="FashionMNIST", root=str(tmp_path)).split("train")
    assert set(rows) == {0}  # which describes the set
    rows.clear()
    assert torch.equal(images[torch.tensor([7, 3])][:, 0], torch.tensor(arrays["train"][0][[7, 3]]))
    assert rows == [7, 3]
    assert labels.tolist() == arrays["train"][1].tolist()


def test_few_images_choose_the_recipe_of_few(tmp_path, arrays):
    text = f"torchvision:name=FashionMNIST,root={tmp_path}"
    assert recipe.default("jem", text) == "small-images"
    assert recipe.default("jem", f"{text},size=8") == "digits"
    assert recipe.extent_of(text) == (20, 28)


def test_a_small_set_chooses_its_recipe_before_it_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(typechecking, "FIRST", 0)  # its check of a Dataset reads the spec
    for name in ("STL10", "Flowers102", "FashionMNIST"):
        monkeypatch.setattr(getattr(tv, name), "download", lambda self: pytest.fail("downloaded"))
    text = f"root={tmp_path},download=true"
    names = {"STL10": (5000, 96), "Flowers102": (1020, 96), "FashionMNIST": None}
    for name, extent in names.items():
        assert recipe.extent_of(f"torchvision:name={name},{text}") == extent
    assert recipe.default("jem", f"torchvision:name=STL10,{text}") == "small-images"
    assert recipe.default("jem", f"torchvision:name=Flowers102,{text},size=8") == "digits"
    assert recipe.default("jem", f"torchvision:name=FashionMNIST,{text}") == "paper"


def test_images_are_resized(tmp_path, arrays):
    dataset = torchvision(name="FashionMNIST", root=str(tmp_path), size=14)
    assert dataset.split("test").images.shape == (10, 1, 14, 14)


def test_sets_with_splits(tmp_path, monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    pixels = RANDOM.integers(0, 256, (10, 3, 96, 96), dtype=np.uint8)
    for part in ("train", "test"):
        (folder / f"{part}_X.bin").write_bytes(pixels.transpose(0, 1, 3, 2).tobytes())
        (folder / f"{part}_y.bin").write_bytes(np.arange(1, 11, dtype=np.uint8).tobytes())
    (folder / "class_names.txt").write_text("\n".join("abcdefghij"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tv.STL10, "_check_integrity", lambda self: True)
        dataset = torchvision(name="STL10", root=str(tmp_path))
    assert dataset.spec.class_names == tuple("abcdefghij")
    with pytest.warns(UserWarning, match="10 of 10 test images"):
        images, labels = dataset.split("test")
    assert torch.equal(images[:], torch.tensor(pixels))
    assert labels.tolist() == list(range(10))


def test_missing_files_are_not_fetched(tmp_path, monkeypatch):
    def download(self):
        pytest.fail("downloaded without being asked")

    monkeypatch.setattr(tv.FashionMNIST, "download", download)
    text = rf"FashionMNIST is not available in {re.escape(str(tmp_path))}.*download=true"
    with pytest.raises(Unavailable, match=text):
        torchvision(name="FashionMNIST", root=str(tmp_path))
    # nothing is fetched before the dataset is described
    asked = TorchvisionDataset("FashionMNIST", str(tmp_path), download=True, size=0)
    assert asked.train_size is None


def test_a_file_cut_short_is_named(tmp_path, arrays):
    file = tmp_path / "FashionMNIST" / "raw" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises((Unavailable, SpecError), match="FashionMNIST"):
        torchvision(name="FashionMNIST", root=str(tmp_path))


def test_a_download_is_asked_for(tmp_path, arrays, monkeypatch):
    raw = tmp_path / "FashionMNIST" / "raw"
    kept = {file.name: file.read_bytes() for file in raw.iterdir()}
    for file in raw.iterdir():
        file.unlink()

    def download(self):
        for name, content in kept.items():
            (raw / name).write_bytes(gzip.decompress(gzip.compress(content)))

    monkeypatch.setattr(tv.FashionMNIST, "download", download)
    dataset = torchvision(name="FashionMNIST", root=str(tmp_path), download=True)
    assert dataset.split("train").images.shape == (20, 1, 28, 28)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FashionMnist", "no set named 'FashionMnist'. Nearest: FashionMNIST"),
        ("Omniglot", "has no parts for training and tests"),
        ("UCF101", "has no parts for training and tests"),
    ],
)
def test_other_sets_are_refused(tmp_path, name, message):
    with pytest.raises(SpecError, match=message):
        torchvision(name=name, root=str(tmp_path))


def test_where_files_lie_is_no_part_of_the_identity(tmp_path):
    spec = f"torchvision:name=FashionMNIST,root={tmp_path},download=true"
    assert (
        registry.resolve("datasets", spec).identity
        == registry.resolve("datasets", "torchvision:name=FashionMNIST").identity
    )
