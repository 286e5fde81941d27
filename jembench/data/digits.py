"""scikit-learn's digits: the dataset that is always there.

1,797 handwritten digits of 8x8 pixels with 17 grey levels, from the test part of E. Alpaydin and C. Kaynak, "Optical
Recognition of Handwritten Digits" (UCI Machine Learning Repository, 1998).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from jembench.data.datasets import LazyDataset
from jembench.data.pixels import content_hash
from jembench.errors import JembenchError
from jembench.interfaces import DataSpec, Split, SplitName

TEST_IMAGES = 397
_WHITE = 16  # the highest of the 17 grey levels
_CONTENT = "42c27bf64fbeae38e858c3286e8d93d6"  # hashes of all images and of all labels, those for training first
_SEED = 0  # of the split; another one would make another benchmark


def digits() -> LazyDataset:
    """The digits as uint8 images, split by class into 1,400 for training and 397 for the test."""
    names = tuple(str(digit) for digit in range(10))
    spec = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10, class_names=names)
    return LazyDataset(spec, lambda name: _splits()[name])


@cache
def _splits() -> dict[SplitName, Split]:
    from sklearn.datasets import load_digits  # scikit-learn takes a second to import
    from sklearn.model_selection import train_test_split

    levels, labels = load_digits(return_X_y=True)
    pixels = np.round(levels * (255 / _WHITE)).astype(np.uint8).reshape(-1, 1, 8, 8)
    train, test, train_labels, test_labels = map(
        torch.from_numpy,
        train_test_split(pixels, labels.astype(np.int64), test_size=TEST_IMAGES, stratify=labels, random_state=_SEED),
    )
    _check(content_hash(torch.cat([train, test])) + content_hash(torch.cat([train_labels, test_labels])))
    return {"train": Split(train, train_labels), "test": Split(test, test_labels)}


def _check(content: str) -> None:
    """Results are filed under the name alone, so it must always mean the same images.

    Raises:
        JembenchError: if scikit-learn gives others, or splits them otherwise.
    """
    if content != _CONTENT:
        import sklearn

        raise JembenchError(
            f"The digits of scikit-learn {sklearn.__version__} are not those that results are known for: other images, "
            "or another split. Install another version of scikit-learn; 1.9.1 gives the right ones."
        )
