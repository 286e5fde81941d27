"""CIFAR-10, CIFAR-100 and SVHN, in the files of their authors as torchvision reads them.

CIFAR: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009). SVHN: Y. Netzer et al., "Reading
Digits in Natural Images with Unsupervised Feature Learning" (2011).
"""

from __future__ import annotations

import contextlib
import sys
import tarfile
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from jembench.files import data_folder, socket_timeout
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
_CIFAR = {"cifar10": ("CIFAR-10", _CIFAR10, tv.CIFAR10), "cifar100": ("CIFAR-100", _CIFAR100, tv.CIFAR100)}


class _Source(NamedTuple):
    """A dataset that torchvision can read."""

    name: str
    title: str
    class_names: Sequence[str]
    train_size: int
    test_size: int
    urls: Sequence[str]
    by_hand: str  # what to do with the downloaded files: "unpack it"
    files: Mapping[str, str]  # relative to the root -> published checksum
    read: Callable[[Path, SplitName, bool], Split]  # (root, split, download)


def dataset(name: str, root: str = "", *, download: bool = False) -> LazyDataset:
    """``cifar10``, ``cifar100`` (with its fine labels) or ``svhn`` (without its ``extra`` images) in a folder.

    Raises:
        Unavailable: at once if files are missing and ``download`` is not asked for; when a split is read if files are
            damaged or the download fails.
    """
    source, folder = _source(name), data_folder(root)
    if not download:
        _require_files(source, folder)
    names = tuple(source.class_names)
    spec = DataSpec(name=name, shape=(3, 32, 32), num_classes=len(names), class_names=names)
    load = partial(_load, source, folder, download)
    return LazyDataset(spec, load, train_size=source.train_size, test_size=source.test_size)


def _source(name: str) -> _Source:
    if name == "svhn":
        urls, filenames, sums = zip(*(tv.SVHN.split_list[part] for part in ("train", "test")), strict=True)
        files = dict(zip(filenames, sums, strict=True))
        return _Source(name, "SVHN", "0123456789", 73_257, 26_032, urls, "put them", files, _read_svhn)
    title, classes, reader = _CIFAR[name]
    parts = [*reader.train_list, *reader.test_list, (reader.meta["filename"], reader.meta["md5"])]
    files = {f"{reader.base_folder}/{filename}": md5 for filename, md5 in parts}
    read = partial(_read_cifar, reader)
    return _Source(name, title, classes.split(), 50_000, 10_000, [reader.url], "unpack it", files, read)


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
    missing = [path for path in source.files if not (root / path).is_file()]
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
    return [path for path, md5 in source.files.items() if not check_integrity(root / path, md5)]


def _remedy(source: _Source) -> str:
    return f"use --dataset {source.name}:download=true, or {_by_hand(source)}"


def _by_hand(source: _Source) -> str:
    return f"fetch {' and '.join(source.urls)} yourself and {source.by_hand} in that folder."


def _download(source: _Source, root: Path) -> None:
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    try:
        # Older releases of torchvision print their progress to stdout, which belongs to the results.
        with socket_timeout(DOWNLOAD_TIMEOUT), contextlib.redirect_stdout(sys.stderr):
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


def _read_cifar(reader: Any, root: Path, name: SplitName, download: bool) -> Split:
    # These files are pickles, which can run code. torchvision loads one only after its checksum has been found right.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy 2.4 deprecates the dtypes that Python 2 pickled
        data = reader(root, train=name == "train", download=download)
    return Split(torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(data.targets))


def _read_svhn(root: Path, name: SplitName, download: bool) -> Split:
    data = tv.SVHN(root, split=name, download=download)  # turns SVHN's label 10 into 0
    return Split(torch.from_numpy(np.ascontiguousarray(data.data)), torch.from_numpy(data.labels))
