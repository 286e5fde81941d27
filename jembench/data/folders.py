"""``imagefolder``: a folder of image files, one folder a class, with train/ and test/ or without.

Its files and their splits are listed without importing torch, so that its content is hashed and its recipe chosen
while a run is planned.
"""

import hashlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from jembench.catalog.options import Content
from jembench.catalog.validation import Range
from jembench.data.datasets import LazyDataset
from jembench.data.decoding import Form, decoded, is_grey, opened
from jembench.errors import SpecError, Unavailable
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_LAYOUT = "It must hold train/<class>/* and test/<class>/*, or <class>/* alone, one folder of images a class."
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_SPLIT = 0.8

Images = dict[str, Path]
"""Image files by their names, "cat/0.png", class by class, each class sorted by name."""


def _folder(root: str) -> Path:
    return Path(os.path.realpath(Path(root).expanduser()))


def _list_parts(root: str) -> dict[str, Images]:
    """List the images of "train" and "test", or of "" in a folder without these.

    Raises:
        Unavailable: if folders or images are missing.
    """
    folder = _folder(root)
    if not folder.is_dir():
        raise Unavailable(f"There is no folder {folder}. Give imagefolder's root the folder of your images. {_LAYOUT}")
    stated = [part for part in ("train", "test") if (folder / part).is_dir()]
    if len(stated) == 1:
        (missing,) = {"train", "test"} - {*stated}
        raise Unavailable(f"The folder {folder} has {stated[0]}/ and no {missing}/. {_LAYOUT}")
    parts = {part: _list_images(folder / part) for part in stated or [""]}
    classes = {part: {_class_of(name) for name in images} for part, images in parts.items()}
    if stated and (odd := classes["train"] ^ classes["test"]):
        raise Unavailable(
            f"The classes of train and test in {folder} differ: {', '.join(sorted(odd))} is in one of them alone. "
            "Add these folders with their images, or remove their counterparts."
        )
    return parts


def _list_images(folder: Path) -> Images:
    """List the images in the class folders, and in folders below them, as torchvision's ``ImageFolder`` does.

    Hidden files and folders are left out.
    """
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise Unavailable(f"The folder {folder} has no class folders. {_LAYOUT}")
    images: Images = {}
    for known in classes:
        files = [Path(place, file) for place, _, files in os.walk(folder / known) for file in files]
        names = sorted(file.relative_to(folder).as_posix() for file in files if file.suffix.lower() in _SUFFIXES)
        shown = {name: folder / name for name in names if "/." not in name}
        if not shown:
            raise Unavailable(f"{folder / known} holds no images ({', '.join(_SUFFIXES)}). Add some, or remove it.")
        images |= shown
    return images


def _class_of(name: str) -> str:
    return name.partition("/")[0]


def files_of_imagefolder(root: str) -> Mapping[str, Path]:
    """List all images by their names below ``root``.

    Raises:
        Unavailable: if folders or images are missing.
    """
    parts = _list_parts(root)
    return {f"{part}/{name}".lstrip("/"): path for part, images in parts.items() for name, path in images.items()}


def imagefolder(
    *,
    root: Annotated[str, Content(files_of_imagefolder)],
    size: Annotated[int, Range(least=0)] = 0,
    grey: bool | None = None,
    split: Annotated[float, Range(above=0, below=1)] = _SPLIT,
    seed: int = 0,
    name: str = "",
) -> Dataset:
    """Your own images: a folder root with <class>/*, or with train/<class>/* and test/<class>/*.

    Without train/ and test/, the share ``split`` of each class is for training and the rest for tests, at least one
    image each. ``seed`` chooses which: an image's place is that of the SHA-256 of "seed/class/file" among those of its
    class, which is the same on every machine; a new image changes the part of few others.

    All images have the size of the first, unless ``size`` is given: then each is cropped to its central square and
    resized to ``size`` x ``size``. They become one channel with ``grey=true`` and RGB with ``grey=false``; by default
    one channel if the first is stored so, and then an image in colour is refused. Classes are numbered in the order of
    their folders' names. ``name`` is what results are filed under, by default the folder's own name. The names of the
    files below root and their content are the identity: a copy elsewhere is the same dataset, and a folder in which an
    image was changed is another.

    Raises:
        Unavailable: if folders or images are missing.
        SpecError: if an option is out of range or has no effect.
        JembenchError: if a file is no image, or has another size or colours; of all but the first when its split is
            read.
    """
    folder, parts = _folder(root), _split_parts(root, split, seed)
    with opened(str(next(iter(parts["train"].values())))) as first:
        width, height = (size, size) if size else first.size
        only_grey = grey is None and is_grey(first)
    mode: Literal["RGB", "L"] = "L" if grey or only_grey else "RGB"
    form = Form(mode=mode, height=height, width=width, square=size > 0, only_grey=only_grey)
    classes = tuple(dict.fromkeys(map(_class_of, parts["train"])))
    shape = len(mode), height, width
    spec = DataSpec(name=name or folder.name, shape=shape, num_classes=len(classes), class_names=classes)
    read = partial(_read, folder, parts, spec, form)
    return LazyDataset(spec, read, train_size=len(parts["train"]), test_size=len(parts["test"]))


def _split_parts(root: str, split: float, seed: int) -> Mapping[SplitName, Images]:
    """List the images for training and for tests.

    Raises:
        Unavailable: if a class is too small to be split.
        SpecError: if the folder has its own splits, and ``split`` or ``seed`` is given.
    """
    folder, parts = _folder(root), _list_parts(root)
    if "" not in parts:
        if (split, seed) != (_SPLIT, 0):
            raise SpecError(
                f"{folder} has train/ and test/, so split and seed of imagefolder have no effect. Leave them out."
            )
        return {"train": parts["train"], "test": parts["test"]}
    by_class: dict[str, list[str]] = {}
    for file in parts[""]:
        by_class.setdefault(_class_of(file), []).append(file)
    if single := [name for name, files in by_class.items() if len(files) == 1]:
        raise Unavailable(
            f"The folder {folder} has one image of {', '.join(single)}, and a class needs two: one for training "
            "and one for tests. Add images, or remove the class's folder."
        )
    chosen: set[str] = set()
    for files in by_class.values():
        count = min(max(round(split * len(files)), 1), len(files) - 1)
        place = {file: hashlib.sha256(f"{seed}/{file}".encode(errors="surrogateescape")).digest() for file in files}
        chosen.update(sorted(files, key=place.__getitem__)[:count])
    train = {file: path for file, path in parts[""].items() if file in chosen}
    return {"train": train, "test": {file: path for file, path in parts[""].items() if file not in chosen}}


def _read(folder: Path, parts: Mapping[SplitName, Images], spec: DataSpec, form: Form, name: SplitName) -> Split:
    import torch

    images = decoded(f"{folder.name}-{name}", folder / name, parts[name], form)
    labels = {known: label for label, known in enumerate(spec.class_names)}
    return Split(images, torch.tensor([labels[_class_of(file)] for file in parts[name]]))
