"""``npz``: arrays in files of NumPy: an ``.npz``, one ``.npy``, or a folder of ``.npy`` files.

Shapes and labels are read at once, so that planning can describe the dataset and choose its recipe;
images are read when a split is first needed, or row by row if they are large and not compressed.
Imports no torch until then.
"""

from __future__ import annotations

import contextlib
import functools
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from jembench import limits
from jembench.catalog.options import Content
from jembench.catalog.validation import Range
from jembench.data.arrays import (
    check_images,
    image_tensor,
    label_array,
    number_texts,
    remark_on_images,
    remark_on_names,
    to_split,
)
from jembench.data.datasets import LazyDataset, hold_out, no_images, share_out
from jembench.data.labels import check_labels
from jembench.errors import JembenchError, Remark, SpecError, Unavailable, error_text
from jembench.files import open_regular, path_of
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

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
        sizes = share_out(str(path), sizes["train"], split)
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
            place = part or "train"
            images = _images(path, names[Role(part, "images")], shapes[place])
            whole[place] = to_split(images, labels[place])
        if not is_split:
            whole = hold_out(whole["train"], sizes["test"], seed)
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

    what, header = _shown(path, name), _header(path, name)
    if header.dtype != np.uint8:
        image_tensor(what, _read(path, name))  # refused, with advice for its values
    return tuple(check_images(what, np.broadcast_to(np.uint8(0), header.shape)).shape)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int | None  # of the values in the file; None: they do not lie there row by row


def _header(path: Path, name: str) -> _Header:
    """Read the header of an array.

    Raises:
        JembenchError: if the file cannot be read.
    """
    import numpy as np

    with _array_stream(path, name) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, is_by_columns, dtype = read(stream)
        length = stream.tell()
    start = _start(path, name)
    if start is not None:
        start = None if is_by_columns else start + length
    return _Header(shape, dtype, start)


def _start(path: Path, name: str) -> int | None:
    """Return the place of an array's header in its file; None: it is compressed."""
    with _opened(_file(path, name)) as stream:
        if not zipfile.is_zipfile(stream):
            return 0
        info = zipfile.ZipFile(stream).getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        # a member follows a header of 30 bytes, its name and an extra field
        stream.seek(info.header_offset + 26)
        lengths = struct.unpack("<HH", stream.read(4))
        return int(info.header_offset + 30 + sum(lengths))


def _images(path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return images, uint8 (N, C, H, W); large ones are read in parts if they are uncompressed.

    Raises:
        SpecError: if they must be in memory, and are too large.
        JembenchError: if the file cannot be read; of images in parts, when these are read.
    """
    import torch

    from jembench.data.images import Images, are_small, read_rows

    start = _header(path, name).start
    if start is None or are_small(shape[0], shape[1:]):
        return image_tensor(_shown(path, name), _read(path, name))
    file = _file(path, name)

    def read(rows: Tensor) -> Tensor:
        with _opened(file) as stream:
            return read_rows(stream.fileno(), rows, shape[1:], start)

    return Images(read, torch.arange(shape[0]), shape[1:])


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
    with _opened(_file(path, name)) as stream:
        if not zipfile.is_zipfile(stream):
            stream.seek(0)
            yield stream
            return
        with zipfile.ZipFile(stream) as archive:
            limits.check_archive(path, archive)
            with archive.open(f"{name}.npy") as member:
                yield member


def _file(path: Path, name: str) -> Path:
    return path / f"{name}.npy" if path.is_dir() else path


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
