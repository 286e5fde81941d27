"""A folder of images as a dataset: ``train/<class>/*`` and ``test/<class>/*``.

Legend: N examples, C channels, H height, W width.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image

from jembench.data.decoded import decoded
from jembench.data.decoding import Form, cannot_decode, decode_all
from jembench.data.lazy import LazyDataset
from jembench.data.locations import cache_folder
from jembench.errors import SpecError, Unavailable
from jembench.interfaces import DataSpec, Split, SplitName
from jembench.spec import slug

_LAYOUT = "It must hold train/<class>/* and test/<class>/*, one folder of images a class."
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class _Listing(NamedTuple):
    """The image files of one split, class by class, each class sorted by name."""

    paths: list[str]
    labels: list[int]
    fingerprint: str  # changes when a file is added, removed, renamed or rewritten


def imagefolder(root: str, *, size: int, grey: bool, name: str) -> LazyDataset:
    """The images below ``root``; classes are numbered in the order of their folders' names.

    Args:
        root: holds ``train`` and ``test``; both have the same classes.
        size: 0 demands images of one size; else each is cropped to its central square and resized to this.
        grey: one channel instead of RGB.
        name: of the dataset; empty: the folder's own.

    Raises:
        Unavailable: if folders or images are missing.
        JembenchError: if an image cannot be decoded or differs in size; raised when its split is read.
    """
    folder = Path(root).expanduser().resolve()
    if size < 0:
        raise SpecError(f"size of imagefolder is {size}; it must be a number of pixels, or 0 for the images' own size.")
    class_names = _class_names(folder)
    width, height = (size, size) if size else _size_of_first_image(folder / "train", class_names)
    form = Form(mode="L" if grey else "RGB", height=height, width=width, square=size > 0)
    spec = DataSpec(
        name=name or folder.name,
        shape=(1 if grey else 3, height, width),
        num_classes=len(class_names),
        class_names=class_names,
    )
    return LazyDataset(spec, partial(_load, folder, class_names, form))


def _class_names(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        raise Unavailable(f"There is no folder {root}. Give imagefolder's root the folder of your images. {_LAYOUT}")
    for part in ("train", "test"):
        if not (root / part).is_dir():
            raise Unavailable(f"The folder {root} has no {part}/. {_LAYOUT}")
    train, test = (_subfolders(root / part) for part in ("train", "test"))
    if not train:
        raise Unavailable(f"{root / 'train'} has no class folders. {_LAYOUT}")
    if train != test:
        missing = [f"test/{name}" for name in train if name not in test]
        missing += [f"train/{name}" for name in test if name not in train]
        raise Unavailable(
            f"The classes of train and test in {root} differ: {', '.join(missing)} missing. "
            "Add these folders with their images, or remove their counterparts."
        )
    return train


def _subfolders(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def _image_files(folder: Path) -> list[os.DirEntry[str]]:
    """The images in a class's folder, sorted by name; hidden files and other types are passed over."""
    with os.scandir(folder) as entries:
        images = [
            entry for entry in entries if entry.name.lower().endswith(_SUFFIXES) and not entry.name.startswith(".")
        ]
    if not images:
        raise Unavailable(
            f"{folder} holds no images ({', '.join(_SUFFIXES)}). Add some, or remove the class from train and test."
        )
    return sorted(images, key=lambda entry: entry.name)


def _list_images(folder: Path, class_names: tuple[str, ...]) -> _Listing:
    paths, labels, digest = [], [], hashlib.sha256()
    for label, name in enumerate(class_names):
        for entry in _image_files(folder / name):
            stat = entry.stat()
            digest.update(f"{name}/{entry.name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
            paths.append(entry.path)
            labels.append(label)
    return _Listing(paths, labels, digest.hexdigest())


def _load(root: Path, class_names: tuple[str, ...], form: Form, name: SplitName) -> Split:
    listing = _list_images(root / name, class_names)
    # The file's name says what it holds and its fingerprint which state of it: a changed folder replaces its old cache.
    key = hashlib.sha256(f"{root}\0{name}\0{form}".encode(errors="surrogateescape")).hexdigest()[:16]
    file = cache_folder() / "decoded" / f"{slug(root.name)}-{name}-{key}.safetensors"
    images = decoded(file, listing.fingerprint, lambda: decode_all(listing.paths, form))
    return Split(images, torch.tensor(listing.labels))


def _size_of_first_image(folder: Path, class_names: tuple[str, ...]) -> tuple[int, int]:
    """(width, height), from the file's header."""
    path = _image_files(folder / class_names[0])[0].path
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, SyntaxError, ValueError) as error:
        raise cannot_decode(path, error) from error
