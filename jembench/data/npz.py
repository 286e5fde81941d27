"""``npz``: arrays in files of NumPy: an ``.npz``, one ``.npy``, or a folder of ``.npy`` files.

Shapes and labels are read at once, so that planning can describe the dataset and choose its recipe;
images are read when a split is first needed. Imports no torch until then.
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, NamedTuple

from jembench import limits
from jembench.catalog.options import Content
from jembench.catalog.validation import Range
from jembench.data.arrays import (
    check_images,
    image_array,
    label_array,
    number_texts,
    remark_on_images,
    remark_on_names,
    to_split,
)
from jembench.data.datasets import LazyDataset, no_images
from jembench.data.labels import check_labels
from jembench.errors import JembenchError, Remark, SpecError, Unavailable, error_text
from jembench.files import open_regular, path_of
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

if TYPE_CHECKING:
    from jembench.data.arrays import Array

_SPLIT = 0.8

_LAYOUT = (
    "It must hold x_train, y_train, x_test and y_test, or images and labels, which are split; "
    "without labels the images alone; x_test and y_test alone measure a network that is not "
    "trained. Write np.savez(FILE, x_train=..., y_train=..., x_test=..., "
    "y_test=...)."
)

Part = Literal["train", "test", ""]
Kind = Literal["images", "labels"]

_PARTS: dict[str, Part] = {
    "": "",
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("x", "image", "images", "img", "imgs", "data", "pixels"), "images"),
    **dict.fromkeys(("y", "label", "labels", "target", "targets"), "labels"),
}


class Role(NamedTuple):
    """The part and the kind of an array."""

    part: Part
    kind: Kind


_ROLES: dict[str, Role] = {}
"""The roles of arrays by their names, in lower case without punctuation: x_train, trainX."""

for _part_word, _part in _PARTS.items():
    for _kind_word, _kind in _KINDS.items():
        _ROLES[_part_word + _kind_word] = Role(_part, _kind)
        _ROLES[_kind_word + _part_word] = Role(_part, _kind)

_ERRORS = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)
"""The errors of reading a damaged file of arrays; RuntimeError: an archive with a password."""


def files_of_npz(file: str) -> Mapping[str, Path]:
    """List the file without a name, or the ``.npy`` files of a folder by their names.

    Raises:
        Unavailable: if there is none.
    """
    path = path_of(file)
    if not path.exists():
        raise Unavailable(f"There is no file {path}. Give npz the file of your arrays. {_LAYOUT}")
    if not path.is_dir():
        return {"": path}
    files = {part.name: part for part in sorted(path.glob("*.npy"))}
    if not files:
        raise Unavailable(f"The folder {path} holds no .npy files. {_LAYOUT}")
    return files


def npz(
    *,
    file: Annotated[str, Content(files_of_npz)],
    split: Annotated[float, Range(above=0, below=1)] = _SPLIT,
    seed: int = 0,
    name: str = "",
) -> Dataset:
    """Your own arrays: an .npz with x_train, y_train, x_test and y_test, or images and labels.

    ``file`` is an ``.npz``, an ``.npy`` of images without labels, or a folder of ``.npy`` files
    with such names (``train_images``, ``X_train`` and ``labels_test`` are understood too). Images
    are uint8 (N, C, H, W) or (N, H, W), labels whole numbers from 0 or names of classes; without
    them the images are unlabelled.

    With x_test and y_test alone, models with weights of their own are measured, and none is
    trained. Images that are in no part are split: the share ``split`` of each class is for
    training, which images these are is drawn with ``seed``. ``name`` is what results are filed
    under, by default the file's own name. The content of the file is the identity.

    Raises:
        Unavailable: if the file is missing.
        SpecError: if arrays are missing or have other forms, or an option has no effect.
        JembenchError: if the file cannot be read.
    """
    path = path_of(file)
    names = _find_arrays(path)
    parts = list(dict.fromkeys(role.part for role in names))
    is_split = "" not in parts
    if is_split and (split, seed) != (_SPLIT, 0):
        raise SpecError(
            f"{path} has arrays of train and test, so split and seed of npz have no effect. Leave "
            "them out."
        )

    # shapes and labels; an unsplit part counts as train, which holds every class
    shapes: dict[SplitName, tuple[int, ...]] = {}
    labels: dict[SplitName, Array | None] = {}
    for part in parts:
        place, name_of_labels = part or "train", names.get(Role(part, "labels"))
        shapes[place] = _shape(path, names[Role(part, "images")])
        labels[place] = None
        if name_of_labels:
            values = _read(path, name_of_labels)
            labels[place] = label_array(_shown(path, name_of_labels), values, shapes[place][0])
    class_names = number_texts(labels)
    classes = check_labels(str(path), labels)

    sizes = {place: shape[0] for place, shape in shapes.items()}
    forms = list(dict.fromkeys(shape[1:] for shape in shapes.values()))
    if len(forms) > 1:
        raise SpecError(
            f"The images of train and test in {path} have different shapes: "
            f"{', '.join(map(str, forms))}."
        )
    if not is_split:
        sizes = _share_out(path, sizes["train"], split)
    channels, height, width = forms[0]
    spec = DataSpec(
        name=name or path.stem,
        shape=(channels, height, width),
        num_classes=classes,
        class_names=class_names,
    )

    @functools.cache
    def splits() -> Mapping[SplitName, Split]:
        whole: dict[SplitName, Split] = {}
        for part in parts:
            name_of_images, place = names[Role(part, "images")], part or "train"
            images = image_array(_shown(path, name_of_images), _read(path, name_of_images))
            whole[place] = to_split(images, labels[place])
        if not is_split:
            whole = _hold_out(whole["train"], sizes["test"], seed)
        whole.setdefault("train", no_images(spec))
        remark_on_names(class_names)
        remark_on_images(spec, whole)
        return whole

    return LazyDataset(
        spec,
        lambda part: splits()[part],
        train_size=sizes.get("train", 0),
        test_size=sizes["test"],
    )


def _find_arrays(path: Path) -> dict[Role, str]:
    """Return the names of a file's arrays by their roles.

    Raises:
        Unavailable: if there is no such file.
        SpecError: if images are missing, or two arrays have one role.
        JembenchError: if the file cannot be read.
    """
    names: dict[Role, str] = {}
    unused: list[str] = []
    for name in _names(path):
        role = _ROLES.get(re.sub(r"[\W_]", "", name.lower()))
        if role is None:
            unused.append(name)
        elif role in names:
            raise SpecError(
                f"{path} has {names[role]} and {name}, two arrays of the same meaning. Remove one."
            )
        else:
            names[role] = name

    # images of train and test, of test alone, or of no part
    with_images = {role.part for role in names if role.kind == "images"}
    with_labels = {role.part for role in names if role.kind == "labels"}
    if with_images not in ({""}, {"test"}, {"train", "test"}) or not with_labels <= with_images:
        held = ", ".join([*names.values(), *unused]) or "nothing"
        raise SpecError(f"{path} holds {held}. {_LAYOUT}")
    if unused:
        text = f"Not read in {path}: {', '.join(unused)}."
        warnings.warn(text, Remark, stacklevel=2)
    return names


def _share_out(path: Path, count: int, split: float) -> dict[SplitName, int]:
    """Return the numbers of images for training and for tests.

    Raises:
        SpecError: if there is one image.
    """
    if count < 2:
        raise SpecError(f"{path} has one image, and needs two: one for training, one for tests.")
    train = min(max(round(split * count), 1), count - 1)
    return {"train": train, "test": count - train}


def _hold_out(whole: Split, size: int, seed: int) -> dict[SplitName, Split]:
    """Hold test images out, the same share of each class.

    Raises:
        SpecError: if a class has no training image left.
    """
    from jembench.data.holdout import holdout

    train, test = holdout(whole, size, seed, stratified=whole.labels is not None)
    assert test is not None
    check_labels("the arrays, split into train and test,", {"train": train.labels})
    return {"train": train, "test": test}


def _names(path: Path) -> list[str]:
    """List a file's arrays; an ``.npy`` holds images.

    Raises:
        Unavailable: if there is no such file.
        JembenchError: if it cannot be read.
    """
    files = files_of_npz(str(path))
    if path.is_dir():
        return [name.removesuffix(".npy") for name in files]
    with _opened(path) as stream:
        if not zipfile.is_zipfile(stream):
            return ["images"]
        members = zipfile.ZipFile(stream).namelist()
        return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


def _shape(path: Path, name: str) -> tuple[int, ...]:
    """Return the shape (N, C, H, W) of images, from the array's header.

    Raises:
        SpecError: if they have another form; the message says the remedy.
        JembenchError: if the file cannot be read.
    """
    import numpy as np

    what = _shown(path, name)
    with _array_stream(path, name) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    if dtype == np.uint8:
        images = check_images(what, np.broadcast_to(np.uint8(0), shape))
    else:
        images = image_array(what, _read(path, name))  # refused, with advice for its values
    return tuple(images.shape)


def _shown(path: Path, name: str) -> str:
    return f"{path}[{name!r}]"


def _read(path: Path, name: str) -> Array:
    """Read an array.

    Raises:
        JembenchError: if the file cannot be read.
    """
    import numpy as np

    with _array_stream(path, name) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


@contextlib.contextmanager
def _array_stream(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open an array of a file, from its header on.

    Raises:
        SpecError: if the file is too large when it is unpacked.
        JembenchError: if it cannot be read.
    """
    file = path / f"{name}.npy" if path.is_dir() else path
    with _opened(file) as stream:
        if not zipfile.is_zipfile(stream):
            stream.seek(0)
            yield stream
            return
        with zipfile.ZipFile(stream) as archive:
            limits.check_archive(path, archive)
            with archive.open(f"{name}.npy") as member:
                yield member


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_regular(path) as stream:
            yield stream
    except _ERRORS as error:
        cause = error_text(error)
        raise JembenchError(
            f"{path} cannot be read as arrays of NumPy: {cause}. Save it again by np.savez; arrays "
            "of objects, such as images of several sizes, cannot be saved."
        ) from error
