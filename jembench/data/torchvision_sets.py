"""CIFAR-10, CIFAR-100 and SVHN, read by torchvision from their authors' files.

CIFAR: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009). SVHN: Y.
Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning" (2011).
"""

import contextlib
import sys
import tarfile
import warnings
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
import torchvision.datasets as tv

from jembench.data.datasets import LazyDataset
from jembench.errors import Unavailable
from jembench.files import data_folder, socket_timeout
from jembench.interfaces import DataSpec, Split, SplitName

DOWNLOAD_TIMEOUT = 30.0
"""Seconds without data after which a download fails: some proxies accept a connection and never
answer.
"""

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = Path(__file__).with_name("cifar100.txt").read_text()
_ABOUT = {
    "cifar10": ("CIFAR-10", _CIFAR10.split(), 50_000, 10_000),
    "cifar100": ("CIFAR-100", _CIFAR100.split(), 50_000, 10_000),
    "svhn": ("SVHN", list("0123456789"), 73_257, 26_032),
}
"""The title, the names of the classes, and the numbers of training and test images of each dataset.
"""

_CIFAR = {"cifar10": tv.CIFAR10, "cifar100": tv.CIFAR100}


def dataset(name: str, root: str = "", *, download: bool = False) -> LazyDataset:
    """Return ``cifar10``, ``cifar100`` or ``svhn`` of torchvision.

    cifar100 has its fine labels, svhn no ``extra`` images.

    Raises:
        Unavailable: at once if files are missing and ``download`` is false; when a split is read,
            if files are damaged or the download fails.
    """
    folder, (_, classes, train_size, test_size) = data_folder(root), _ABOUT[name]
    spec = DataSpec(
        name=name, shape=(3, 32, 32), num_classes=len(classes), class_names=tuple(classes)
    )
    if not download and not all((folder / path).exists() for path in _paths(name)):
        raise _unavailable(name, folder, f"{' and '.join(_paths(name))} not found")

    def load(part: SplitName) -> Split:
        try:
            # Older releases of torchvision print their progress to stdout, which belongs to the
            # results.
            with socket_timeout(DOWNLOAD_TIMEOUT), contextlib.redirect_stdout(sys.stderr):
                return _read(name, folder, part, download)
        except (OSError, EOFError, RuntimeError, HTTPException, tarfile.TarError) as error:
            raise _unavailable(name, folder, error) from error

    return LazyDataset(spec, load, train_size=train_size, test_size=test_size)


def _paths(name: str) -> list[str]:
    """Return the paths of a dataset in its folder."""
    if name in _CIFAR:
        return [_CIFAR[name].base_folder]
    return [tv.SVHN.split_list[part][1] for part in ("train", "test")]


def _unavailable(name: str, folder: Path, cause: object) -> Unavailable:
    urls = [tv.SVHN.split_list[part][0] for part in ("train", "test")]
    if name in _CIFAR:
        urls = [_CIFAR[name].url]
    return Unavailable(
        f"{_ABOUT[name][0]} is not available in {folder}: {cause}. To get it, write "
        f"{name}:download=true, or fetch {' and '.join(urls)} yourself and put "
        f"{' and '.join(_paths(name))} in that folder. If you have it elsewhere, name its folder: "
        f"{name}:root=FOLDER or JEMBENCH_DATA=FOLDER."
    )


def _read(name: str, folder: Path, part: SplitName, download: bool) -> Split:
    if name == "svhn":
        svhn = tv.SVHN(folder, split=part, download=download)  # turns SVHN's label 10 into 0
        images = torch.from_numpy(np.ascontiguousarray(svhn.data))
        return Split(images, torch.from_numpy(svhn.labels))
    # These files are pickles, which can run code. torchvision loads one only after verifying its
    # checksum.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy 2.4 deprecates the dtypes that Python 2 pickled
        cifar = _CIFAR[name](folder, train=part == "train", download=download)
    images = torch.from_numpy(cifar.data).permute(0, 3, 1, 2)
    return Split(images.contiguous(), torch.tensor(cifar.targets))
