"""Lists of the image files of a folder, class by class, with train/ and test/ or without.

Imports no torch, so that planning can hash the content and choose the recipe.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from jembench.errors import Unavailable
from jembench.files import path_of

LAYOUT = (
    "It must hold train/<class>/* and test/<class>/*, or <class>/* alone, one folder of images a "
    "class; a network with weights of its own needs test/<class>/* alone, or <class>/* with "
    "split=0."
)
SUFFIXES = (
    *(".apng", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg"),
    *(".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
UNREAD_SUFFIXES = (".avif", ".dng", ".exr", ".heic", ".heif", ".jp2", ".jxl", ".svg", ".tga")

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

Images = dict[str, str]
"""The paths of images by their names, "cat/0.png", class by class, each class sorted by name.

Paths are texts, since there may be millions.
"""


def folder_of(root: str) -> Path:
    """Return the folder that a user has named, without links."""
    return Path(os.path.realpath(path_of(root)))


def list_parts(root: str) -> dict[str, Images]:
    """List the images of "train" and "test", or of "test" alone, or of "" without these.

    Raises:
        Unavailable: if folders or images are missing, or folders of splits take the place of
            classes.
    """
    folder = folder_of(root)
    if not folder.is_dir():
        raise Unavailable(
            f"There is no folder {folder}. Give imagefolder's root the folder of your images. "
            f"{LAYOUT}"
        )
    stated = _stated_parts(folder)
    if stated.keys() == {"train"}:
        part = stated["train"].name
        raise Unavailable(f"The folder {folder} has {part}/ and no test/. {LAYOUT}")
    parts = {part: _list_images(stated[part]) for part in sorted(stated, reverse=True)}
    if not parts:
        parts = {"": _list_images(folder)}
    is_split = len(stated) == 2
    if is_split and (odd := classes_of(parts["train"]) ^ classes_of(parts["test"])):
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
    for entry in entries(folder):
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
    has_classes = any(entry.is_dir() for part in stated.values() for entry in entries(part))
    are_classes = others and not has_classes and not all(map(_SPLIT_NAME.fullmatch, others))
    return {} if are_classes else stated


def entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """List a folder in the order of names, without what is hidden.

    Raises:
        Unavailable: if it cannot be read.
    """
    try:
        present = [*os.scandir(folder)]
    except OSError as error:
        raise Unavailable(
            f"The folder {error.filename} cannot be read: {error.strerror}. Change its "
            "permissions, or remove it."
        ) from error
    hidden = {entry.name for entry in present if entry.name.startswith(".")}.union(_OF_SYSTEMS)
    shown = [entry for entry in present if entry.name not in hidden]
    return sorted(shown, key=lambda entry: entry.name)


def _list_images(folder: Path) -> Images:
    """List the images in the class folders, and in folders below them.

    torchvision's ``ImageFolder`` lists the same images.

    Names are in Unicode's form NFC, so that a copy from another system has the same names. Links to
    folders are followed. What is hidden is left out.
    """
    classes = [entry for entry in entries(folder) if entry.is_dir()]
    if not classes:
        return _list_unlabelled(folder)
    images: Images = {}
    start = len(f"{folder}/".replace("//", "/"))
    for entry in sorted(classes, key=lambda entry: normal(entry.name)):
        place = entry.path
        files = [file for file in files_below(place) if file.lower().endswith(SUFFIXES)]
        if not files:
            formats = ", ".join(SUFFIXES)
            raise Unavailable(f"{place} holds no images ({formats}). Add some, or remove it.")
        named = {normal(file[start:]): file for file in files}
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
    files = [entry for entry in entries(folder) if entry.name.lower().endswith(SUFFIXES)]
    if not files:
        raise Unavailable(f"The folder {folder} has no class folders. {LAYOUT}")
    return dict(sorted((normal(file.name), file.path) for file in files))


def files_below(folder: str, above: frozenset[str] = frozenset()) -> Iterator[str]:
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
    for entry in entries(folder):
        if entry.is_dir():
            yield from files_below(entry.path, above | {here})
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
            f"The class folders of {folder} {wrong}: {listed(nested or groups)}. Give "
            "imagefolder's root the folder that holds the classes, or train/ and test/ with the "
            f"classes in each. {LAYOUT}"
        )


def listed(names: Iterable[str]) -> str:
    """Return three names, and the number of further names."""
    all_names = list(names)
    text, rest = ", ".join(all_names[:3]), len(all_names) - 3
    if rest > 0:
        text += f" and {rest:,} more"
    return text


def normal(name: str) -> str:
    """Return a name in Unicode's form NFC."""
    return unicodedata.normalize("NFC", name)


def class_of(name: str) -> str:
    """Return the class of an image, which is "" in a folder without class folders."""
    return name.rpartition("/")[0].partition("/")[0]


def classes_of(images: Images) -> set[str]:
    """Return the classes of images."""
    return set(map(class_of, images))
