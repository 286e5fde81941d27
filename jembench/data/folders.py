"""``imagefolder``: a folder of image files, one folder a class, with train/ and test/ or without.

Its files and their splits are listed without importing torch, so that planning can hash the content
and choose the recipe.
"""

import hashlib
import os
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from jembench.catalog.options import Content, Neutral
from jembench.catalog.validation import Range
from jembench.data.datasets import LazyDataset, no_images
from jembench.data.decoding import Form, decoded, form_of, opened
from jembench.errors import Remark, SpecError, Unavailable
from jembench.files import digest, path_of
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_LAYOUT = (
    "It must hold train/<class>/* and test/<class>/*, or <class>/* alone, one folder of images a "
    "class; a network with weights of its own needs test/<class>/* alone."
)
_SUFFIXES = (
    *(".apng", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg"),
    *(".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
_UNREAD_SUFFIXES = (".avif", ".dng", ".exr", ".heic", ".heif", ".jp2", ".jxl", ".svg", ".tga")
_SPLIT = 0.8

_PARTS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
"""The names of the folders of splits, in lower case, with their splits."""

_SPLIT_NAME = re.compile(
    r"[\W\d_]*"
    r"(train|training|trn|test|testing|tst|val|valid|validation|dev|eval|evaluation|holdout|all)"
    r"([\W\d_]|set|split|data|images?|imgs?)*",
    re.IGNORECASE,
)
"""The names that splits have, and classes seldom."""

_OF_SYSTEMS = ("__MACOSX", "@eaDir", "$RECYCLE.BIN")
"""Folders that operating systems add, which may hold copies of images."""

Images = dict[str, Path]
"""Image files by their names, "cat/0.png", class by class, each class sorted by name."""


def _folder(root: str) -> Path:
    return Path(os.path.realpath(path_of(root)))


def _list_parts(root: str) -> dict[str, Images]:
    """List the images of "train" and "test", or of "test" alone, or of "" without these.

    Raises:
        Unavailable: if folders or images are missing, or folders of splits take the place of
            classes.
    """
    folder = _folder(root)
    if not folder.is_dir():
        raise Unavailable(
            f"There is no folder {folder}. Give imagefolder's root the folder of your images. "
            f"{_LAYOUT}"
        )
    stated = _stated_parts(folder)
    if stated.keys() == {"train"}:
        part = stated["train"].name
        raise Unavailable(f"The folder {folder} has {part}/ and no test/. {_LAYOUT}")
    parts = {part: _list_images(stated[part]) for part in sorted(stated, reverse=True)}
    if not parts:
        parts = {"": _list_images(folder)}
    is_split = len(stated) == 2
    if is_split and (odd := _classes_of(parts["train"]) ^ _classes_of(parts["test"])):
        raise Unavailable(
            f"The classes of train and test in {folder} differ: {', '.join(sorted(odd))} is in "
            "only one of them. Add these folders with their images, or remove their "
            "counterparts."
        )
    return parts


def _stated_parts(folder: Path) -> dict[str, Path]:
    """Return the folders of splits in a folder.

    A folder of that name with images only, beside folders of other names, is a class.

    Raises:
        Unavailable: if two folders are of one split.
    """
    stated: dict[str, Path] = {}
    others: list[str] = []
    for entry in _entries(folder):
        if entry.is_dir():
            part = _PARTS.get(entry.name.lower(), "")
            if not part:
                others.append(entry.name)
            elif part in stated:
                raise Unavailable(
                    f"The folder {folder} has {stated[part].name}/ and {entry.name}/, two folders "
                    "of one split. Merge them, or remove one."
                )
            else:
                stated[part] = Path(entry.path)
    has_classes = any(entry.is_dir() for part in stated.values() for entry in _entries(part))
    are_classes = others and not has_classes and not all(map(_SPLIT_NAME.fullmatch, others))
    return {} if are_classes else stated


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """List a folder in the order of names, without what is hidden.

    Raises:
        Unavailable: if it cannot be read.
    """
    try:
        entries = [*os.scandir(folder)]
    except OSError as error:
        raise Unavailable(
            f"The folder {error.filename} cannot be read: {error.strerror}. Change its "
            "permissions, or remove it."
        ) from error
    hidden = {entry.name for entry in entries if entry.name.startswith(".")}.union(_OF_SYSTEMS)
    shown = [entry for entry in entries if entry.name not in hidden]
    return sorted(shown, key=lambda entry: entry.name)


def _list_images(folder: Path) -> Images:
    """List the images in the class folders, and in folders below them.

    torchvision's ``ImageFolder`` lists the same images.

    Names are in Unicode's form NFC, so that a copy from another system has the same names. Links to
    folders are followed. What is hidden is left out.
    """
    classes = [Path(entry.path) for entry in _entries(folder) if entry.is_dir()]
    if not classes:
        return _list_unlabelled(folder)
    images: Images = {}
    for place in sorted(classes, key=lambda place: _normal(place.name)):
        below = _files_below(str(place))
        files = [Path(file) for file in below if file.lower().endswith(_SUFFIXES)]
        if not files:
            formats = ", ".join(_SUFFIXES)
            raise Unavailable(f"{place} holds no images ({formats}). Add some, or remove it.")
        named = {_normal(file.relative_to(folder).as_posix()): file for file in files}
        if len(named) < len(files) or images.keys() & named.keys():
            raise Unavailable(
                f"{place} holds files or folders whose names differ only in their Unicode form "
                "(NFC or NFD). Rename or remove one of each."
            )
        images |= sorted(named.items())
    _check_classes(folder, images)
    return images


def _list_unlabelled(folder: Path) -> Images:
    """List the images of a folder without class folders.

    Raises:
        Unavailable: if there is none.
    """
    places = [Path(entry.path) for entry in _entries(folder)]
    files = [place for place in places if place.name.lower().endswith(_SUFFIXES)]
    if not files:
        raise Unavailable(f"The folder {folder} has no class folders. {_LAYOUT}")
    return dict(sorted((_normal(file.name), file) for file in files))


def _files_below(folder: str, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the files in a folder and in those below it, without what is hidden.

    Raises:
        Unavailable: if a folder cannot be read, or is a link to a folder that holds it.
    """
    here = os.path.realpath(folder)
    if here in above:
        raise Unavailable(
            f"{folder} is a link to {here}, in which it lies, so that it has no end. Remove the "
            "link."
        )
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _files_below(entry.path, above | {here})
        else:
            yield entry.path


def _check_classes(folder: Path, images: Images) -> None:
    """Check that folders of classes are neither splits nor folders that hold the classes.

    A class folder without images of its own may hold groups of images, unless the groups are named
    like splits, or recur in another class, or there is no other class.

    Raises:
        Unavailable: if they are splits, or hold the classes.
    """
    groups: dict[str, set[str]] = {}  # the folders in each class; "" stands for images of its own
    for name in images:
        class_name, *between, _ = name.split("/")
        groups.setdefault(class_name, set()).add(next(iter(between), ""))
    nested = {name: below for name, below in groups.items() if "" not in below}
    several = [below for below in nested.values() if len(below) > 1]
    recurring = len(set().union(*several)) < sum(map(len, several))

    wrong = ""
    if all(map(_SPLIT_NAME.fullmatch, groups)):
        wrong = "are named like splits"
    elif recurring or (nested and len(groups) == 1):
        wrong = "hold folders and no images"
    elif any(map(_SPLIT_NAME.fullmatch, {*nested}.union(*nested.values()))):
        wrong = "hold folders of splits"
    if wrong:
        raise Unavailable(
            f"The class folders of {folder} {wrong}: {_listed(nested or groups)}. Give "
            "imagefolder's root the folder that holds the classes, or train/ and test/ with the "
            f"classes in each. {_LAYOUT}"
        )


def _listed(names: Iterable[str]) -> str:
    """Return three names, and the number of further names."""
    all_names = list(names)
    text, rest = ", ".join(all_names[:3]), len(all_names) - 3
    if rest > 0:
        text += f" and {rest:,} more"
    return text


def _normal(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _class_of(name: str) -> str:
    """Return the class of an image, which is "" in a folder without class folders."""
    return name.rpartition("/")[0].partition("/")[0]


def _classes_of(images: Images) -> set[str]:
    return set(map(_class_of, images))


def files_of_imagefolder(root: str) -> Mapping[str, Path]:
    """List all images by their names below ``root``.

    Raises:
        Unavailable: if folders or images are missing.
    """
    files = {}
    for part, images in _list_parts(root).items():
        for name, path in images.items():
            files[f"{part}/{name}".lstrip("/")] = path
    return files


def imagefolder(
    *,
    root: Annotated[str, Content(files_of_imagefolder)],
    size: Annotated[int, Range(least=0)] = 0,
    grey: bool | None = None,
    split: Annotated[float, Range(above=0, below=1)] = _SPLIT,
    seed: int = 0,
    name: str = "",
    unlabelled: Annotated[bool, Neutral()] = False,
) -> Dataset:
    """Your own images: a folder root with <class>/*, or with train/<class>/* and test/<class>/*.

    With test/<class>/* alone, models with weights of their own are measured, and none is trained.

    Without train/ and test/, the share ``split`` of each class is for training and the rest for
    tests, at least one image each. ``seed`` chooses which: each class is ordered by the SHA-256 of
    "seed/class/file", which is the same on every machine; a new image changes the part of few
    others.

    With ``unlabelled=true`` the images have no classes: they lie in root itself, in train/ and
    test/, or in test/ alone, and class folders are ignored.

    All images have the size of the first, unless ``size`` is given: then each is cropped to its
    central square and resized to ``size`` x ``size``. They become one channel with ``grey=true``
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
    folder, parts = _folder(root), _split_parts(root, split, seed, unlabelled)
    stated = parts["train"] or parts["test"]
    with opened(str(next(iter(stated.values())))) as first:
        form = form_of(first, size, grey)
    classes = tuple(dict.fromkeys(map(_class_of, stated)))
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
    folder, parts = _folder(root), _list_parts(root)
    if not unlabelled and any("" in _classes_of(images) for images in parts.values()):
        raise Unavailable(
            f"The folder {folder} has no class folders. {_LAYOUT} For images without classes, such "
            "as those of an OOD set, add unlabelled=true."
        )
    if "" not in parts:
        if (split, seed) != (_SPLIT, 0):
            raise SpecError(
                f"{folder} has {'/ and '.join(parts)}/, so split and seed of imagefolder have no "
                "effect. Leave them out."
            )
        return {"train": parts.get("train", {}), "test": parts["test"]}
    by_class: dict[str, list[str]] = {}
    for file in parts[""]:
        by_class.setdefault(_class_of(file), []).append(file)
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


def _place(seed: int, file: str) -> bytes:
    """Return the place of an image in the random order of its class."""
    return hashlib.sha256(f"{seed}/{file}".encode(errors="surrogateescape")).digest()


def _read(
    folder: Path, parts: Mapping[SplitName, Images], spec: DataSpec, form: Form, name: SplitName
) -> Split:
    import torch

    if name == "train":
        _remark_on_layout(folder, parts, spec)
    if not parts[name]:
        return no_images(spec)
    images = decoded(f"{folder.name}-{name}", folder / name, parts[name], form)
    if name == "test":
        _remark_on_copies(folder, parts)
    if not spec.num_classes:
        return Split(images, None)
    numbers = dict(zip(spec.class_names, range(spec.num_classes), strict=True))
    labels = [numbers[_class_of(file)] for file in parts[name]]
    return Split(images, torch.tensor(labels))


def _remark_on_layout(folder: Path, parts: Mapping[SplitName, Images], spec: DataSpec) -> None:
    """Remark on the classes, and on what lies in the folder and is not read."""
    noun = "class" if spec.num_classes == 1 else "classes"
    order = "numbered in the order of their folders' names"
    names = _listed(spec.class_names)
    text = f"{spec.name} has {spec.num_classes} {noun}, {order}: {names}."
    if spec.num_classes:
        warnings.warn(text, Remark, stacklevel=2)

    roots = {_root_of(name, path) for images in parts.values() for name, path in images.items()}
    beside: list[os.DirEntry[str]] = []
    if folder not in roots:
        beside += [entry for entry in _entries(folder) if entry.is_dir()]
    for root in {folder, *roots}:
        beside += [entry for entry in _entries(root) if entry.name.lower().endswith(_SUFFIXES)]
    is_read = {str(path) for images in parts.values() for path in images.values()}
    paths = sorted({entry.path for entry in beside} - {*map(str, roots)} - is_read)
    if paths:
        text = f"Not read, since they lie beside the folders of classes: {_listed(paths)}."
        warnings.warn(text, Remark, stacklevel=2)

    files = [file for root in sorted(roots) for file in _files_below(str(root))]
    unread = [file for file in files if file.lower().endswith(_UNREAD_SUFFIXES)]
    if unread:
        formats = ", ".join(sorted({Path(file).suffix.lower() for file in unread}))
        text = f"Not read, since {formats} is no format of imagefolder: {_listed(unread)}."
        warnings.warn(text, Remark, stacklevel=2)


def _root_of(name: str, path: Path) -> Path:
    """Return the folder of class folders in which an image with the name "cat/0.png" lies."""
    return path.parents[name.count("/")]


def _remark_on_copies(folder: Path, parts: Mapping[SplitName, Images]) -> None:
    """Remark on test images that are among the training images, byte for byte.

    Only files with the size of a file in the other split are read.
    """
    train, test = _sizes(parts["train"]), _sizes(parts["test"])
    shared = {*train.values()} & {*test.values()}
    originals = {digest(path): path for path, size in train.items() if size in shared}
    suspects = [path for path, size in test.items() if size in shared]
    copies = [path for path in suspects if digest(path) in originals]
    if copies:
        first, original = copies[0], originals[digest(copies[0])]
        warnings.warn(
            f"{len(copies):,} of {len(test):,} test images of {folder} are also among its training "
            "images, so that accuracy and densities look better than they are. The first is "
            f"{first}, a copy of {original}.",
            Remark,
            stacklevel=2,
        )


def _sizes(images: Images) -> dict[Path, int]:
    """Return the sizes of files; reading the split reports missing files."""
    return {path: path.stat().st_size for path in images.values() if path.is_file()}
