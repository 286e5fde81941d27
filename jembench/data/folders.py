"""Datasets that are folders of image files: ``imagefolder`` and ``celeba``.

Which files a dataset consists of is known without torch, so that its content is hashed while a run is planned.

CelebA: Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild" (2015). Its terms allow
research but no redistribution, and its server asks for a browser, so there is no download here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jembench.catalog.options import content_of, incidental
from jembench.data.datasets import LazyDataset
from jembench.errors import SpecError, Unavailable
from jembench.files import data_folder
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_LAYOUT = "It must hold train/<class>/* and test/<class>/*, one folder of images a class."
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class Labelled(NamedTuple):
    """The image files of one split by their names, class by class, each class sorted by name."""

    files: dict[str, Path]  # "cat/0.png"
    labels: list[int]


def class_names(root: Path) -> tuple[str, ...]:
    """The folders of ``train`` and of ``test``, which must be the same.

    Raises:
        Unavailable: if a folder is missing.
    """
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


def images_in(folder: Path) -> list[Path]:
    """The images in a class's folder, sorted by name; hidden files and other types are passed over.

    Raises:
        Unavailable: if there are none.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    images = sorted(name for name in names if name.lower().endswith(_SUFFIXES))
    if not images:
        raise Unavailable(
            f"{folder} holds no images ({', '.join(_SUFFIXES)}). Add some, or remove the class from train and test."
        )
    return [folder / name for name in images]


def labelled(folder: Path, names: tuple[str, ...]) -> Labelled:
    """The images of a split: those of each class's folder."""
    found = [(label, path) for label, name in enumerate(names) for path in images_in(folder / name)]
    files = {f"{path.parent.name}/{path.name}": path for _, path in found}
    return Labelled(files, [label for label, _ in found])


def files_of_imagefolder(root: str) -> Mapping[str, Path]:
    """All images of train and test, by their names below ``root``.

    Raises:
        Unavailable: if folders or images are missing.
    """
    folder = _imagefolder_root(root)
    names = class_names(folder)
    parts = {part: labelled(folder / part, names).files for part in ("train", "test")}
    return {f"{part}/{name}": path for part, files in parts.items() for name, path in files.items()}


def _imagefolder_root(root: str) -> Path:
    return Path(root).expanduser().resolve()


@content_of("root", listing=files_of_imagefolder)
def imagefolder(*, root: str, size: int = 0, grey: bool = False, name: str = "") -> Dataset:
    """Your own images: a folder root with train/<class>/* and test/<class>/*.

    All images have one size, unless ``size`` is given: then each is cropped to its central square and resized to
    ``size`` x ``size``. They become RGB, or one channel with ``grey=true``. Classes are numbered in the order of their
    folders' names. ``name`` is what results are filed under, by default the folder's own name. The names of the files
    below root and their content are the identity: a copy elsewhere is the same dataset, and a folder in which an image
    was changed is another.

    Raises:
        Unavailable: if folders or images are missing.
        JembenchError: if an image cannot be decoded or differs in size; raised when its split is read.
    """
    folder = _imagefolder_root(root)
    if size < 0:
        raise SpecError(f"size of imagefolder is {size}; it must be a number of pixels, or 0 for the images' own size.")
    classes = class_names(folder)
    width, height = (size, size) if size else _size(images_in(folder / "train" / classes[0])[0])
    spec = DataSpec(
        name=name or folder.name,
        shape=(1 if grey else 3, height, width),
        num_classes=len(classes),
        class_names=classes,
    )
    return LazyDataset(spec, partial(_read_imagefolder, folder, spec, size > 0))


def _size(path: Path) -> tuple[int, int]:
    """(width, height), from the file's header."""
    from jembench.data.decoding import opened

    with opened(str(path)) as image:
        return image.size


def _read_imagefolder(root: Path, spec: DataSpec, square: bool, name: SplitName) -> Split:
    import torch

    from jembench.data.decoding import Form, decoded

    channels, height, width = spec.shape
    form = Form(mode="L" if channels == 1 else "RGB", height=height, width=width, square=square)
    found = labelled(root / name, spec.class_names)
    return Split(decoded(f"{root.name}-{name}", root / name, found.files, form), torch.tensor(found.labels))


# --- CelebA -----------------------------------------------------------------------------------------------------------

_FACES, _PARTITION = "img_align_celeba", "list_eval_partition.txt"
_PARTS = {"train": "0", "test": "2"}  # 1 is validation


def celeba_root(root: str) -> Path:
    """The folder that holds the faces and the list of their parts.

    Raises:
        Unavailable: if they are not there.
    """
    folder = data_folder(root)
    folder = folder / "celeba" if (folder / "celeba").is_dir() else folder
    missing = [name for name in (_FACES, _PARTITION) if not (folder / name).exists()]
    if missing:
        raise Unavailable(
            f"CelebA is not available: {' and '.join(missing)} not found in {folder}. Fetch the aligned and cropped "
            "images and the evaluation partition from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, unpack "
            "them into a folder named celeba, and name the folder that holds it: celeba:root=... or JEMBENCH_DATA=..."
        )
    return folder


def faces(folder: Path, name: SplitName) -> dict[str, Path]:
    """The files of one split, in the order of the list.

    Raises:
        Unavailable: if one that is listed is missing.
    """
    lines = (line.split() for line in (folder / _PARTITION).read_text(encoding="utf-8").splitlines())
    listed = [words[0] for words in lines if len(words) == 2 and words[1] == _PARTS[name]]
    with os.scandir(folder / _FACES) as entries:
        there = {entry.name for entry in entries}
    absent = [file for file in listed if file not in there]
    if absent or not listed:
        raise Unavailable(
            f"CelebA is not complete: {len(absent)} of the {len(listed)} {name} images that {folder / _PARTITION} "
            f"lists are not in {folder / _FACES}, the first of them {absent[0] if absent else 'all'}. Unpack it again."
        )
    return {file: folder / _FACES / file for file in listed}


def files_of_celeba(root: str) -> Mapping[str, Path]:
    """All faces of train and test, by their split and name.

    Raises:
        Unavailable: if files are missing.
    """
    folder = celeba_root(root)
    parts: dict[SplitName, dict[str, Path]] = {"train": faces(folder, "train"), "test": faces(folder, "test")}
    return {f"{part}/{name}": path for part, files in parts.items() for name, path in files.items()}


@incidental("root")
@content_of("root", listing=files_of_celeba)
def celeba(*, root: str = "", size: int = 32) -> Dataset:
    """CelebA's aligned faces without labels: cropped to the central square, resized to ``size`` pixels.

    ``root`` is the folder that holds ``celeba/img_align_celeba`` and ``celeba/list_eval_partition.txt`` ($JEMBENCH_DATA
    or ~/.cache/jembench/data by default). The central square has 178 of 178x218 pixels.

    Raises:
        Unavailable: if files are missing.
        JembenchError: if an image cannot be decoded; raised when its split is read.
    """
    if size < 1:
        raise SpecError(f"size of celeba is {size}; it must be at least 1 pixel.")
    spec = DataSpec(name="celeba", shape=(3, size, size), num_classes=0)
    return LazyDataset(spec, partial(_read_celeba, celeba_root(root), size))


def _read_celeba(folder: Path, size: int, name: SplitName) -> Split:
    from jembench.data.decoding import Form, decoded

    form = Form(mode="RGB", height=size, width=size, square=True)
    return Split(decoded(f"celeba-{name}", folder / name, faces(folder, name), form), None)
