"""``imagefolder``: a folder of image files, one folder a class, with train/ and test/ or without.

Its files and their splits are listed without importing torch, so that planning can hash the content
and choose the recipe.
"""

import hashlib
import itertools
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from jembench.catalog.options import Content, Neutral
from jembench.catalog.validation import Range
from jembench.data.datasets import SPLIT, LazyDataset, no_images
from jembench.data.decoding import Form, decoded, form_of, opened
from jembench.data.image_files import (
    LAYOUT,
    SUFFIXES,
    UNREAD_SUFFIXES,
    Images,
    class_of,
    classes_of,
    entries,
    files_below,
    folder_of,
    list_parts,
    listed,
    normal,
)
from jembench.errors import Remark, SpecError, Unavailable
from jembench.files import digest
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_COMPARED = 2_000
"""The largest number of test images that are compared with the training images."""


def files_of_imagefolder(root: str) -> Images:
    """List all images by their names below ``root``.

    Raises:
        Unavailable: if folders or images are missing.
    """
    files = {}
    for part, images in list_parts(root).items():
        for name, path in images.items():
            files[f"{part}/{name}".lstrip("/")] = path
    return files


def imagefolder(
    *,
    root: Annotated[str, Content(files_of_imagefolder)],
    size: Annotated[int, Range(least=0)] = 0,
    grey: bool | None = None,
    split: Annotated[float, Range(least=0, below=1)] = SPLIT,
    seed: int = 0,
    name: str = "",
    unlabelled: Annotated[bool, Neutral()] = False,
    method: Annotated[Literal["bicubic", "bilinear"], Neutral()] = "bicubic",
) -> Dataset:
    """Your own images: a folder root with <class>/*, or with train/<class>/* and test/<class>/*.

    With test/<class>/* alone, models with weights of their own are measured, and none is trained.

    Without train/ and test/, the share ``split`` of each class is for training and the rest for
    tests, at least one image each. ``seed`` chooses which: each class is ordered by the SHA-256 of
    "seed/class/file", which is the same on every machine; a new image changes the part of few
    others. With ``split=0`` all images are for tests.

    With ``unlabelled=true`` the images have no classes: they lie in root itself, in train/ and
    test/, or in test/ alone, and class folders are ignored.

    All images have the size of the first, unless ``size`` is given: then each is cropped to its
    central square and resized to ``size`` x ``size`` by Pillow's filter ``method``. They become one
    channel with ``grey=true``
    and RGB with ``grey=false``; by default one channel if the first is stored so, and then an image
    in colour is refused. Classes are numbered in the order of their folders' names. ``name`` is
    what results are filed under, by default the folder's own name. The names of the files below
    root and their content are the identity: a copy elsewhere is the same dataset, and a folder in
    which an image was changed is another.

    Raises:
        Unavailable: if folders or images are missing.
        SpecError: if an option is out of range or has no effect.
        JembenchError: if a file is no image, or has another size or colours; of all but the first
            when its split is read.
    """
    folder, parts = folder_of(root), _split_parts(root, split, seed, unlabelled)
    stated = parts["train"] or parts["test"]
    if method != "bicubic" and not size:
        raise SpecError(
            f"For {folder}, method of imagefolder has no effect without size. Add size, or leave "
            "method out."
        )
    with opened(next(iter(stated.values()))) as first:
        form = form_of(first, size, grey, method)
    classes = tuple(dict.fromkeys(map(class_of, stated)))
    if unlabelled:
        classes = ()
    spec = DataSpec(
        name=name or folder.name,
        shape=form.shape,
        num_classes=len(classes),
        class_names=classes,
    )
    read = partial(_read, folder, parts, spec, form)
    return LazyDataset(spec, read, train_size=len(parts["train"]), test_size=len(parts["test"]))


def _split_parts(
    root: str, split: float, seed: int, unlabelled: bool = False
) -> Mapping[SplitName, Images]:
    """List the images for training, which may be none, and for tests.

    Raises:
        Unavailable: if there are no classes, unless ``unlabelled``, or one is too small to be
            split.
        SpecError: if the folder has its own splits, and ``split`` or ``seed`` is given.
    """
    folder, parts = folder_of(root), list_parts(root)
    if not unlabelled and any("" in classes_of(images) for images in parts.values()):
        raise Unavailable(
            f"The folder {folder} has no class folders. {LAYOUT} {_advice_on_classes(parts)}"
        )
    if "" not in parts:
        if (split, seed) != (SPLIT, 0):
            raise SpecError(
                f"{folder} has {'/ and '.join(parts)}/, so split and seed of imagefolder have no "
                "effect. Leave them out."
            )
        return {"train": parts.get("train", {}), "test": parts["test"]}
    if split == 0:
        return {"train": {}, "test": parts[""]}
    by_class: dict[str, list[str]] = {}
    for file in parts[""]:
        by_class.setdefault(class_of(file), []).append(file)
    if [*by_class] == [""] and len(parts[""]) == 1:
        raise Unavailable(
            f"The folder {folder} has one image, and needs two: one for training and one for "
            "tests. Add images, or put it into a folder test/."
        )
    if single := [name for name, files in by_class.items() if len(files) == 1]:
        raise Unavailable(
            f"The folder {folder} has one image of {', '.join(single)}, and a class needs two: "
            "one for training and one for tests. Add images, or remove the class's folder."
        )
    chosen: set[str] = set()
    for files in by_class.values():
        count = min(max(round(split * len(files)), 1), len(files) - 1)
        chosen.update(sorted(files, key=partial(_place, seed))[:count])
    train = {file: path for file, path in parts[""].items() if file in chosen}
    test = {file: path for file, path in parts[""].items() if file not in chosen}
    return {"train": train, "test": test}


def _advice_on_classes(parts: Mapping[str, Images]) -> str:
    """Return the remedy for images without class folders."""
    names = set().union(*parts.values())
    if any(name.startswith("ILSVRC2012_val_") for name in names):
        return (
            "These are ImageNet's validation images, and their archive has no classes: "
            "torchvision.datasets.ImageNet(FOLDER, 'val') unpacks the archive and the development "
            "kit beside it into a folder for each WordNet id."
        )
    return "For images without classes, such as those of an OOD set, add unlabelled=true."


def _place(seed: int, file: str) -> bytes:
    """Return the place of an image in the random order of its class."""
    return hashlib.sha256(f"{seed}/{file}".encode(errors="surrogateescape")).digest()


def _read(
    folder: Path, parts: Mapping[SplitName, Images], spec: DataSpec, form: Form, name: SplitName
) -> Split:
    import torch

    if name == "train":
        _remark_on_layout(folder, parts)
    if not parts[name]:
        return no_images(spec)
    images = decoded(f"{folder.name}-{name}", folder / name, parts[name], form)
    if name == "test":
        _remark_on_copies(folder, parts)
    if not spec.num_classes:
        return Split(images, None)
    numbers = dict(zip(spec.class_names, range(spec.num_classes), strict=True))
    labels = [numbers[class_of(file)] for file in parts[name]]
    return Split(images, torch.tensor(labels))


def _remark_on_layout(folder: Path, parts: Mapping[SplitName, Images]) -> None:
    """Remark on what lies in the folder and is not read."""
    roots = {_root_of(images) for images in parts.values() if images}
    beside: list[os.DirEntry[str]] = []
    if folder not in roots:
        beside += [entry for entry in entries(folder) if entry.is_dir()]
    for root in {folder, *roots}:
        beside += [entry for entry in entries(root) if entry.name.lower().endswith(SUFFIXES)]
    is_read = {*map(str, roots)}
    for images in parts.values():  # images without class folders lie in the root themselves
        is_read.update(entry.path for entry in beside if normal(entry.name) in images)
    paths = sorted({entry.path for entry in beside} - is_read)
    if paths:
        text = f"Not read, since they lie beside the folders of classes: {listed(paths)}."
        warnings.warn(text, Remark, stacklevel=2)

    files = [file for root in sorted(roots) for file in files_below(str(root))]
    unread = [file for file in files if file.lower().endswith(UNREAD_SUFFIXES)]
    if unread:
        formats = ", ".join(sorted({Path(file).suffix.lower() for file in unread}))
        text = f"Not read, since {formats} is no format of imagefolder: {listed(unread)}."
        warnings.warn(text, Remark, stacklevel=2)


def _root_of(images: Images) -> Path:
    """Return the folder of the class folders in which images lie."""
    name, path = next(iter(images.items()))
    return Path(path).parents[name.count("/")]


def _remark_on_copies(folder: Path, parts: Mapping[SplitName, Images]) -> None:
    """Remark on test images that are among the training images, byte for byte.

    Only files with the size of a file in the other split are read. Of many test images some are
    compared, evenly spaced.
    """
    if not parts["train"]:
        return
    step = -(-len(parts["test"]) // _COMPARED)
    train, test = _sizes(parts["train"]), _sizes(parts["test"], step)
    shared = {*train.values()} & {*test.values()}
    originals = {digest(path): path for path, size in train.items() if size in shared}
    suspects = [path for path, size in test.items() if size in shared]
    copies = [path for path in suspects if digest(path) in originals]
    if copies:
        first, original = copies[0], originals[digest(copies[0])]
        number = f"{len(test):,}" if step == 1 else f"{len(test):,} compared"
        warnings.warn(
            f"{len(copies):,} of {number} test images of {folder} are also among its training "
            "images, so that accuracy and densities look better than they are. The first is "
            f"{first}, a copy of {original}.",
            Remark,
            stacklevel=2,
        )


def _sizes(images: Images, step: int = 1) -> dict[str, int]:
    """Return the size of each ``step``-th file, but of missing ones, which are reported later."""
    sizes: dict[str, int] = {}
    for path in itertools.islice(images.values(), 0, None, step):
        with suppress(OSError):
            sizes[path] = os.stat(path).st_size  # noqa: PTH116, for millions of files
    return sizes
