import hashlib

import pytest
import torch

from jembench.data import digits as digits_module
from jembench.data.datasets import LazyDataset
from jembench.data.factories import digits
from jembench.errors import JembenchError
from jembench.interfaces import DataSpec, Split, SplitName


@pytest.fixture(scope="module")
def splits() -> tuple[Split, Split]:
    dataset = digits()
    return dataset.split("train"), dataset.split("test")


def test_spec_agrees_with_the_images(splits: tuple[Split, Split]) -> None:
    spec = digits().spec
    assert spec.class_names == tuple("0123456789")
    for split, n in zip(splits, (1400, 397), strict=True):
        assert split.images.shape == (n, *spec.shape)
        assert (split.images.dtype, split.labels.dtype) == (torch.uint8, torch.int64)
        assert split.images.device.type == "cpu"


def test_pixels_are_the_seventeen_levels_rounded(splits: tuple[Split, Split]) -> None:
    from sklearn.datasets import load_digits

    levels = load_digits().data
    images = torch.cat([split.images for split in splits]).flatten(1)
    assert set(images.unique().tolist()) == {round(level * 255 / 16) for level in range(17)}
    recovered = sorted((images.double() * 16 / 255).round().tolist())
    assert recovered == sorted(levels.tolist())


def test_the_split_is_the_published_one(splits: tuple[Split, Split]) -> None:
    digests = [
        hashlib.sha256(split.images.numpy().tobytes() + split.labels.numpy().tobytes()).hexdigest()[
            :16
        ]
        for split in splits
    ]
    assert digests == ["b11b011390a66533", "985941ec711ea40b"]


def test_a_split_is_read_once_and_is_not_spoilt_by_who_writes_to_it() -> None:
    reads: list[str] = []

    def load(name: SplitName) -> Split:
        reads.append(name)
        return Split(torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0, 1]))

    dataset = LazyDataset(DataSpec(name="blank", shape=(1, 3, 3), num_classes=2), load)
    first = dataset.split("train")
    first.images.fill_(7)
    first.labels.fill_(1)
    second = dataset.split("train")
    assert (int(second.images.max()), second.labels.tolist(), reads) == (0, [0, 1], ["train"])


def test_other_images_under_the_same_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits_module, "_CONTENT", "0" * 32)
    digits_module._splits.cache_clear()
    with pytest.raises(JembenchError, match="are not the images that results are known for"):
        digits().split("train")
