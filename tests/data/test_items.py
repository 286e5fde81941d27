"""Map-style datasets of PyTorch: items become arrays, or are refused with the remedy."""

import functools
import tempfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset
from torchvision import transforms

from jembench.api.live import dataset_spec
from jembench.data.arrays import of_arrays
from jembench.data.images import Images
from jembench.errors import Remark, SpecError, Unavailable

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (12, 3, 6, 5), dtype=np.uint8)
LABELS = np.arange(12) % 3


class Photos(Dataset):
    """Pillow's images with labels, as the datasets of torchvision are."""

    classes = ("cat", "dog", "zebra")

    def __init__(self, transform=None, pixels=PIXELS):
        self.transform, self.pixels = transform, pixels

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, number):
        image = Image.fromarray(self.pixels[number].transpose(1, 2, 0))
        return image if self.transform is None else self.transform(image), int(LABELS[number])


class Listed(Dataset):
    """Items that are given."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


def made(train, test=None):
    return of_arrays({"train": train, "test": train if test is None else test})


pytestmark = pytest.mark.filterwarnings(
    "ignore:.* are also among its training:jembench.errors.Remark"
)


@pytest.mark.parametrize(
    "transform", [None, transforms.ToTensor(), transforms.PILToTensor()], ids=str
)
def test_transforms_without_normalisation_give_the_pixels(transform):
    dataset = made(Photos(transform))
    images, labels = dataset.split("train")
    assert torch.equal(images[:], torch.tensor(PIXELS))
    assert labels.tolist() == LABELS.tolist()
    assert dataset.spec.name == "Photos"
    assert dataset.spec.class_names == ("cat", "dog", "zebra")


def test_the_pixels_are_the_identity():
    photos = {"train": Photos(), "test": Photos(transforms.ToTensor())}
    assert dataset_spec(photos) == dataset_spec({"train": Photos(), "test": Photos()})
    other = {"train": Photos(), "test": Photos(pixels=255 - PIXELS)}
    assert dataset_spec(photos) != dataset_spec(other)


def test_a_part_of_a_dataset_keeps_the_names():
    dataset = made(Subset(Photos(), range(0, 12, 2)), Subset(Photos(), [1, 3]))
    assert dataset.spec.class_names == ("cat", "dog", "zebra")
    assert dataset.split("test").labels.tolist() == [1, 0]
    assert torch.equal(dataset.split("test").images[:], torch.tensor(PIXELS[[1, 3]]))


def test_images_alone_are_unlabelled():
    dataset = made(Listed(*torch.tensor(PIXELS)))
    assert dataset.spec.num_classes == 0
    assert dataset.split("test").labels is None


def test_a_random_transform_is_noticed():
    with pytest.warns(Remark, match="The transform of train is random"):
        made(Photos(transforms.RandomResizedCrop(4)), Photos(transforms.CenterCrop(4)))


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


class Broken(Listed):
    def __getitem__(self, number):
        raise OSError("no such file: 0.png")


NORMALISED = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)])
IMAGE = torch.tensor(PIXELS[0])
REFUSED = {
    "normalised": (Photos(NORMALISED), r"from -1 to .*; .* Leave transforms.Normalize out"),
    "a stream": (Stream(), "has no items that are read by their number"),
    "empty": (Listed(), "has no items"),
    "dictionaries": (Listed({"image": IMAGE, "label": 0}), "pair"),
    "triples": (Listed((IMAGE, 0, 0)), "is a tuple of 3. Each item must be a pair"),
    "sizes": (Listed((IMAGE, 0), (IMAGE[:, 1:], 1)), r"Item 1 of train .*transforms.Resize"),
    "channels last": (Listed((PIXELS[0].transpose(1, 2, 0), 0)), r"transpose\(2, 0, 1\)"),
    "palette": (Listed((Image.new("P", (4, 4)), 0)), r"mode P. Add image.convert\('RGB'\)"),
    "words": (Listed(("image", 0)), "images must be uint8"),
    "a label too many": (Listed((IMAGE, 0), (IMAGE, 2)), "without a gap"),
    "unreadable": (Broken(0), "Item 0 of train cannot be read: .*no such file: 0.png"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_the_remedy_is_said(data, message):
    with pytest.raises(SpecError, match=message):
        made(data)


def test_classes_in_another_order_are_refused():
    other = Photos()
    other.classes = ("dog", "cat", "zebra")
    with pytest.raises(SpecError, match="train and test have different classes"):
        made(Photos(), other)


@pytest.fixture
def in_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_large_items_are_read_once_and_are_the_same_dataset(in_parts, monkeypatch):
    photos = Photos()
    numbers = []
    monkeypatch.setattr(Photos, "__len__", lambda self: numbers.append("len") or len(self.pixels))
    original = Photos.__getitem__
    monkeypatch.setattr(
        Photos, "__getitem__", lambda self, row: numbers.append(row) or original(self, row)
    )
    dataset = made(photos)
    images = dataset.split("train").images
    assert isinstance(images, Images)
    numbers.clear()
    assert torch.equal(images[:], torch.tensor(PIXELS))
    assert numbers == []  # from the file, which no folder shows
    monkeypatch.undo()
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    parts = {"train": photos, "test": Photos()}
    name = dataset_spec(parts)
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")
    assert dataset_spec(parts) == name


def test_a_random_transform_is_drawn_once_for_large_items(in_parts):
    crop = transforms.RandomCrop(4)
    with pytest.warns(Remark, match="The transform of train is random"):
        images = made(Photos(crop), Photos(transforms.CenterCrop(4))).split("train").images
    assert torch.equal(images[:], images[:])


def test_a_full_disk_is_named(in_parts, monkeypatch):
    full = functools.partial(open, "/dev/full", "r+b", buffering=0)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: full())
    with pytest.raises(Unavailable, match=r"images of train.*No space left.*JEMBENCH_IMAGES_GIB"):
        made(Photos())
