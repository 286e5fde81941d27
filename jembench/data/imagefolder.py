"""A folder of images as a dataset: ``train/<class>/*`` and ``test/<class>/*``.

Legend: N examples, C channels, H height, W width.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from jembench.data.decoded import decoded
from jembench.data.decoding import Form, opened
from jembench.data.folders import class_names, imagefolder_root, images_in, labelled
from jembench.data.lazy import LazyDataset
from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Split, SplitName


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
    folder = imagefolder_root(root)
    if size < 0:
        raise SpecError(f"size of imagefolder is {size}; it must be a number of pixels, or 0 for the images' own size.")
    classes = class_names(folder)
    width, height = (size, size) if size else _size(images_in(folder / "train" / classes[0])[0])
    form = Form(mode="L" if grey else "RGB", height=height, width=width, square=size > 0)
    spec = DataSpec(
        name=name or folder.name,
        shape=(1 if grey else 3, height, width),
        num_classes=len(classes),
        class_names=classes,
    )
    return LazyDataset(spec, partial(_load, folder, classes, form))


def _load(root: Path, classes: tuple[str, ...], form: Form, name: SplitName) -> Split:
    found = labelled(root / name, classes)
    images = decoded(f"{root.name}-{name}", root / name, found.files, form)
    return Split(images, torch.tensor(found.labels))


def _size(path: Path) -> tuple[int, int]:
    """(width, height), from the file's header."""
    with opened(str(path)) as image:
        return image.size
