"""CIFAR-10, CIFAR-100 and SVHN, in the files of their authors as torchvision reads them.

CIFAR: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009). SVHN: Y. Netzer et al., "Reading
Digits in Natural Images with Unsupervised Feature Learning" (2011).
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tarfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
import torchvision.datasets as tv
from torchvision.datasets.utils import check_integrity

from jembench.data.datasets import LazyDataset
from jembench.errors import Unavailable
from jembench.files import data_folder
from jembench.interfaces import DataSpec, Split, SplitName

DOWNLOAD_TIMEOUT = 30.0
"""Seconds without a byte after which a download fails: some proxies accept a connection and never answer."""

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel
streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe
whale willow_tree wolf woman worm
"""


class _File(NamedTuple):
    """A file that a dataset is read from, relative to its root, and its published checksum."""

    path: str
    md5: str


class _Source(NamedTuple):
    """A dataset that torchvision can read."""

    name: str
    title: str
    class_names: tuple[str, ...]
    train_size: int
    test_size: int
    urls: tuple[str, ...]
    by_hand: str  # what to do with the downloaded files: "unpack it"
    files: tuple[_File, ...]
    read: Callable[[Path, SplitName, bool], Split]  # (root, split, download)


def cifar10(root: str = "", *, download: bool = False) -> LazyDataset:
    """CIFAR-10, see :func:`_dataset`."""
    return _dataset(_cifar("cifar10", "CIFAR-10", _CIFAR10, tv.CIFAR10), data_folder(root), download)


def cifar100(root: str = "", *, download: bool = False) -> LazyDataset:
    """CIFAR-100 with its 100 fine labels, see :func:`_dataset`."""
    return _dataset(_cifar("cifar100", "CIFAR-100", _CIFAR100, tv.CIFAR100), data_folder(root), download)


def svhn(root: str = "", *, download: bool = False) -> LazyDataset:
    """SVHN's cropped digits without the ``extra`` images, see :func:`_dataset`."""
    parts = [tv.SVHN.split_list[name] for name in ("train", "test")]
    source = _Source(
        name="svhn",
        title="SVHN",
        class_names=tuple(str(digit) for digit in range(10)),
        train_size=73_257,
        test_size=26_032,
        urls=tuple(url for url, _, _ in parts),
        by_hand="put them",
        files=tuple(_File(filename, md5) for _, filename, md5 in parts),
        read=_read_svhn,
    )
    return _dataset(source, data_folder(root), download)


def _cifar(name: str, title: str, class_names: str, reader: Any) -> _Source:
    parts = [*reader.train_list, *reader.test_list, (reader.meta["filename"], reader.meta["md5"])]
    return _Source(
        name=name,
        title=title,
        class_names=tuple(class_names.split()),
        train_size=50_000,
        test_size=10_000,
        urls=(reader.url,),
        by_hand="unpack it",
        files=tuple(_File(f"{reader.base_folder}/{filename}", md5) for filename, md5 in parts),
        read=partial(_read_cifar, reader),
    )


def _dataset(source: _Source, root: Path, download: bool) -> LazyDataset:
    """The dataset whose files lie in ``root``, as uint8 images.

    Raises:
        Unavailable: at once if files are missing and ``download`` is not asked for; when a split is read if files are
            damaged or the download fails.
    """
    if not download:
        _require_files(source, root)
    spec = DataSpec(
        name=source.name, shape=(3, 32, 32), num_classes=len(source.class_names), class_names=source.class_names
    )
    load = partial(_load, source, root, download)
    return LazyDataset(spec, load, train_size=source.train_size, test_size=source.test_size)


def _load(source: _Source, root: Path, download: bool, name: SplitName) -> Split:
    if download and _damaged(source, root):
        _download(source, root)
    _require_files(source, root)
    if damaged := _damaged(source, root):
        raise Unavailable(
            f"{source.title} is damaged: {', '.join(damaged)} in {root} does not have the published checksum. "
            f"To fix it, {_remedy(source)}"
        )
    return source.read(root, name, False)


def _require_files(source: _Source, root: Path) -> None:
    missing = [file.path for file in source.files if not (root / file.path).is_file()]
    folders = dict.fromkeys(str(Path(path).parent) for path in missing)
    if len(missing) == len(source.files) and "." not in folders:
        missing = list(folders)  # nothing is there: the folder says it shorter than its files
    if missing:
        raise Unavailable(
            f"{source.title} is not available: {', '.join(missing)} not found in {root}. To get it, {_remedy(source)} "
            f"If you have it elsewhere, name its folder: --dataset {source.name}:root=... or JEMBENCH_DATA=..."
        )


def _damaged(source: _Source, root: Path) -> list[str]:
    """The files that are missing or not what their authors published."""
    return [file.path for file in source.files if not check_integrity(root / file.path, file.md5)]


def _remedy(source: _Source) -> str:
    return f"use --dataset {source.name}:download=true, or {_by_hand(source)}"


def _by_hand(source: _Source) -> str:
    return f"fetch {' and '.join(source.urls)} yourself and {source.by_hand} in that folder."


def _download(source: _Source, root: Path) -> None:
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    try:
        # Older releases of torchvision print their progress to stdout, which belongs to the results.
        with _socket_timeout(DOWNLOAD_TIMEOUT), contextlib.redirect_stdout(sys.stderr):
            for name in get_args(SplitName):
                source.read(root, name, True)
    except (OSError, EOFError, RuntimeError, HTTPException, tarfile.TarError) as error:
        for folder in made:
            with contextlib.suppress(OSError):  # never made, or not empty
                folder.rmdir()
        raise Unavailable(
            f"{source.title} could not be downloaded into {root}: {error}. Check the network and the disk and run the "
            f"same command again, or {_by_hand(source)}"
        ) from error


@contextlib.contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """A time limit for torchvision's downloads, which have none of their own: the default of all new sockets."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _read_cifar(reader: Any, root: Path, name: SplitName, download: bool) -> Split:
    # These files are pickles, which can run code. torchvision loads one only after its checksum has been found right.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy 2.4 deprecates the dtypes that Python 2 pickled
        data = reader(root, train=name == "train", download=download)
    return Split(torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(data.targets))


def _read_svhn(root: Path, name: SplitName, download: bool) -> Split:
    data = tv.SVHN(root, split=name, download=download)  # turns SVHN's label 10 into 0
    return Split(torch.from_numpy(np.ascontiguousarray(data.data)), torch.from_numpy(data.labels))
