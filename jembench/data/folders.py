"""Which image files a data set consists of. Imports no torch, so that its content is known while a run is planned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jembench.errors import Unavailable
from jembench.files import data_folder
from jembench.interfaces import SplitName

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
    folder = imagefolder_root(root)
    names = class_names(folder)
    parts = {part: labelled(folder / part, names).files for part in ("train", "test")}
    return {f"{part}/{name}": path for part, files in parts.items() for name, path in files.items()}


def imagefolder_root(root: str) -> Path:
    """The absolute path of the folder."""
    return Path(root).expanduser().resolve()


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
            f"CelebA is not at hand: {' and '.join(missing)} not found in {folder}. Fetch the aligned and cropped "
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
