"""The digits of scikit-learn, a dataset that is installed with the library.

1,797 handwritten digits of 8x8 pixels with 17 grey levels, from the test part of E. Alpaydin and C.
Kaynak, "Optical Recognition of Handwritten Digits" (UCI Machine Learning Repository, 1998). Imports
no torch until images are read.
"""

import importlib.util
from functools import cache
from pathlib import Path

from jembench.catalog.options import never_mirrored
from jembench.data.datasets import LazyDataset
from jembench.errors import JembenchError
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

TRAIN_IMAGES = 1400
_WHITE = 16  # the highest of the 17 grey levels
# hashes of all images and of all labels, training images first
_CONTENT = "42c27bf64fbeae38e858c3286e8d93d6"


@never_mirrored
def digits() -> Dataset:
    """scikit-learn's handwritten digits: 8x8 pixels, 10 classes.

    There are 1,400 training and 397 test images, bundled.
    """
    names = tuple(str(digit) for digit in range(10))
    spec = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10, class_names=names)
    return LazyDataset(spec, lambda name: _splits()[name])


@cache
def _splits() -> dict[SplitName, Split]:
    """Read scikit-learn's file without importing scikit-learn, which takes a second.

    ``digits-order.txt`` has the numbers of the file's rows, training images first. The split is
    random, by class.

    Raises:
        JembenchError: if scikit-learn has other images, since results are stored under the
            dataset's name only.
    """
    import numpy as np
    import torch

    from jembench.data.pixels import content_hash

    package = importlib.util.find_spec("sklearn")
    assert package
    assert package.origin
    data = Path(package.origin).parent / "datasets" / "data"
    rows = np.loadtxt(data / "digits.csv.gz", delimiter=",")
    numbers = Path(__file__).with_name("digits-order.txt").read_text().split()
    order = np.array(numbers, dtype=np.int64)
    levels, labels = rows[order, :-1], rows[order, -1]
    bright = np.round(levels * (255 / _WHITE)).astype(np.uint8)
    pixels = torch.from_numpy(bright.reshape(-1, 1, 8, 8))
    classes = torch.from_numpy(labels.astype(np.int64))
    if content_hash(pixels) + content_hash(classes) != _CONTENT:
        import sklearn

        raise JembenchError(
            f"The digits of scikit-learn {sklearn.__version__} are not the images that results "
            "are known for. Install another version of scikit-learn, such as 1.9.1."
        )
    train, test = slice(TRAIN_IMAGES), slice(TRAIN_IMAGES, None)
    return {
        "train": Split(pixels[train], classes[train]),
        "test": Split(pixels[test], classes[test]),
    }
