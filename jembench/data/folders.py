"""``imagefolder``: a folder of image files, one folder a class, with train/ and test/ or without.

Which files it consists of, and in which part each is, is known without torch, so that its content is hashed and its
recipe chosen while a run is planned.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

from jembench.catalog.options import Content
from jembench.catalog.validation import Range
from jembench.data.datasets import LazyDataset
from jembench.data.headers import Survey, survey
from jembench.errors import JembenchError, Remark, SpecError, Unavailable
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_LAYOUT = "It must hold train/<class>/* and test/<class>/*, or <class>/* alone, one folder of images a class."
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_NAMED = 3  # files that a remark names
_SPLIT = 0.8

Images = dict[str, Path]
"""Image files by their names, "cat/0.png", class by class, each class sorted by name."""


class Folder(NamedTuple):
    """What a folder of classes holds."""

    root: Path
    classes: tuple[str, ...]
    parts: Mapping[str, Images]  # "train" and "test", or "" of a folder without these
    passed_over: list[str]  # what is no image

    @property
    def files(self) -> Images:
        """All images by their names below the root."""
        return {
            f"{part}/{name}" if part else name: path for part in self.parts for name, path in self.parts[part].items()
        }


def look(root: str) -> Folder:
    """What lies below ``root``. Hidden files are passed over without a word.

    Raises:
        Unavailable: if folders or images are missing.
    """
    folder = Path(os.path.realpath(Path(root).expanduser()))
    if not folder.is_dir():
        raise Unavailable(f"There is no folder {folder}. Give imagefolder's root the folder of your images. {_LAYOUT}")
    inside, passed_over = _listed(folder)
    stated: list[str] = [part for part in ("train", "test") if part in inside]
    if len(stated) == 1:
        (missing,) = {"train", "test"} - {*stated}
        raise Unavailable(f"The folder {folder} has {stated[0]}/ and no {missing}/. {_LAYOUT}")
    if stated:
        classes = _common_classes(folder)
        passed_over += [f"{name}/" for name in inside if name not in stated]
    else:
        classes = inside
    if not classes:
        raise Unavailable(f"The folder {folder / 'train' if stated else folder} has no class folders. {_LAYOUT}")
    parts = {part: _images(folder / part, classes, passed_over) for part in stated or [""]}
    return Folder(folder, classes, parts, passed_over)


def _listed(folder: Path) -> tuple[tuple[str, ...], list[str]]:
    """The names of the folders in a folder, and of its files; without hidden ones."""
    with os.scandir(folder) as entries:
        found = {entry.name: entry.is_dir() for entry in entries if not entry.name.startswith(".")}
    return tuple(sorted(name for name in found if found[name])), sorted(name for name in found if not found[name])


def _common_classes(folder: Path) -> tuple[str, ...]:
    """The folders of ``train`` and of ``test``, which must be the same."""
    (train, _), (test, _) = (_listed(folder / part) for part in ("train", "test"))
    if train != test:
        missing = [f"test/{name}" for name in train if name not in test]
        missing += [f"train/{name}" for name in test if name not in train]
        raise Unavailable(
            f"The classes of train and test in {folder} differ: {', '.join(missing)} missing. "
            "Add these folders with their images, or remove their counterparts."
        )
    return train


def _images(folder: Path, classes: Iterable[str], passed_over: list[str]) -> Images:
    """The images of the classes; what else lies there is added to ``passed_over``."""
    found: Images = {}
    for name in classes:
        inside, files = _listed(folder / name)
        images = [file for file in files if file.lower().endswith(_SUFFIXES)]
        passed_over += [f"{name}/{file}" for file in files if file not in images]
        passed_over += [f"{name}/{below}/" for below in inside]
        if not images:
            below = " Its images must lie in it, not in folders below it." if inside else ""
            raise Unavailable(
                f"{folder / name} holds no images ({', '.join(_SUFFIXES)}).{below} Add some, or remove the class."
            )
        found |= {f"{name}/{file}": folder / name / file for file in images}
    if broken := [path for path in found.values() if path.is_symlink() and not path.exists()]:
        raise Unavailable(
            f"{broken[0]} is a link to {broken[0].readlink()}, which is not there ({len(broken)} such links). "
            "Link it to an image, or remove it."
        )
    return found


def files_of_imagefolder(root: str) -> Mapping[str, Path]:
    """All images by their names below ``root``.

    Raises:
        Unavailable: if folders or images are missing.
    """
    return look(root).files


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
    class, so that it is the same on every machine, and a new image moves few others.

    All images have one size, unless ``size`` is given: then each is cropped to its central square and resized to
    ``size`` x ``size``. They become one channel with ``grey=true`` and RGB with ``grey=false``; by default one channel
    if all files are stored so. Classes are numbered in the order of their folders' names. ``name`` is what results are
    filed under, by default the folder's own name. The names of the files below root and their content are the identity:
    a copy elsewhere is the same dataset, and a folder in which an image was changed is another.

    A :class:`~jembench.errors.Remark` says what was split, turned grey, resized and passed over.

    Raises:
        Unavailable: if folders or images are missing.
        SpecError: if an option is out of range or has no effect.
        JembenchError: if sizes differ or a file is no image; of damaged pixels when their split is read.
    """
    folder = look(root)
    parts, remarks = _parts(folder, split, seed)
    found = survey(folder.files)
    width, height = (size, size) if size else _one_size(folder.root, found)
    is_grey = found.grey if grey is None else grey
    if is_grey and grey is None:
        remarks.append("all images are grey, so they have one channel (grey=false makes them RGB)")
    if size and (resized := {text: count for text, (count, _) in found.sizes.items() if text != f"{size}x{size}"}):
        remarks.append(_on_sizes(resized, sum(count for count, _ in found.sizes.values()), size))
    if folder.passed_over:
        more = ", ..." if len(folder.passed_over) > _NAMED else ""
        named = ", ".join(folder.passed_over[:_NAMED])
        remarks.append(
            f"{len(folder.passed_over)} files or folders that are no images were passed over ({named}{more})"
        )
    if remarks:
        warnings.warn(f"{folder.root}: {'; '.join(remarks)}.", Remark, stacklevel=2)
    spec = DataSpec(
        name=name or folder.root.name,
        shape=(1 if is_grey else 3, height, width),
        num_classes=len(folder.classes),
        class_names=folder.classes,
    )
    read = partial(_read, folder.root, parts, spec, size > 0)
    return LazyDataset(spec, read, train_size=len(parts["train"]), test_size=len(parts["test"]))


def _parts(folder: Folder, split: float, seed: int) -> tuple[Mapping[SplitName, Images], list[str]]:
    """The images for training and for tests, and what is to be said of it.

    Raises:
        Unavailable: if a class is too small to be split.
        SpecError: if the folder has its own parts, and another split is asked for.
    """
    if "" not in folder.parts:
        if (split, seed) != (_SPLIT, 0):
            raise SpecError(
                f"{folder.root} has train/ and test/, so split and seed of imagefolder have no effect. Leave them out."
            )
        return {"train": folder.parts["train"], "test": folder.parts["test"]}, []
    of_class: dict[str, list[str]] = {}
    for file in folder.parts[""]:
        of_class.setdefault(file.partition("/")[0], []).append(file)
    if single := [name for name, files in of_class.items() if len(files) == 1]:
        raise Unavailable(
            f"The folder {folder.root} has one image of {', '.join(single)}, and a class needs two: one for training "
            "and one for tests. Add images, or remove the class's folder."
        )
    train, test = Images(), Images()
    for files in of_class.values():
        count = min(max(round(split * len(files)), 1), len(files) - 1)
        chosen = {*sorted(files, key=lambda file: _place(file, seed))[:count]}
        for file in files:
            (train if file in chosen else test)[file] = folder.parts[""][file]
    said = f"{len(train)} images are for training and {len(test)} for tests (split={split:g},seed={seed})"
    return {"train": train, "test": test}, [f"there is no train/ and test/: {said}"]


def _place(file: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{file}".encode(errors="surrogateescape")).digest()


def _one_size(root: Path, found: Survey) -> tuple[int, int]:
    """The (width, height) of all images.

    Raises:
        JembenchError: if they differ.
    """
    if len(found.sizes) > 1:
        (common, (count, first)), (other, (_, odd)), *_ = sorted(found.sizes.items(), key=lambda one: -one[1][0])
        raise JembenchError(
            f"The images in {root} have {len(found.sizes)} sizes, and a dataset has images of one size. Most, {count}, "
            f"are {common} (width x height), as {first} is, and {odd} is {other}. "
            "Add size=32 (or another size) to crop each one to its central square and resize it."
        )
    width, height = next(iter(found.sizes)).split("x")
    return int(width), int(height)


def _on_sizes(resized: Mapping[str, int], total: int, size: int) -> str:
    """How many images were resized, and from what."""
    by_area = sorted(resized, key=lambda text: int(text.partition("x")[0]) * int(text.partition("x")[2]))
    sizes = f"from {by_area[0]}" if len(by_area) == 1 else f"from {len(by_area)} sizes, {by_area[0]} to {by_area[-1]}"
    count = sum(resized.values())
    return f"{count} of {total} images were cropped to their central squares and resized to {size}x{size}, {sizes}"


def _read(root: Path, parts: Mapping[SplitName, Images], spec: DataSpec, square: bool, name: SplitName) -> Split:
    import torch

    from jembench.data.decoding import Form, decoded

    channels, height, width = spec.shape
    form = Form(mode="L" if channels == 1 else "RGB", height=height, width=width, square=square)
    images = decoded(f"{root.name}-{name}", root / name, parts[name], form)
    if (
        name == "train"
        and channels == 3
        and all(bool((some == some[:, :1]).all()) for some in torch.split(images, 100))
    ):
        warnings.warn(
            f"{root}: all images are grey, though stored in colour: grey=true is faster.", Remark, stacklevel=2
        )
    labels = {known: label for label, known in enumerate(spec.class_names)}
    return Split(images, torch.tensor([labels[file.partition("/")[0]] for file in parts[name]]))
