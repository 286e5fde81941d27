"""``npz``: arrays in files of NumPy: an ``.npz``, one ``.npy``, or a folder of ``.npy`` files.

Shapes and labels are read at once, so that planning can describe the dataset and choose its recipe;
images are read when a split is first needed, or row by row if they are large and not compressed.
Imports no torch until then.
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
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from jembench import limits
from jembench.catalog.options import Content
from jembench.catalog.validation import Range
from jembench.data.arrays import Part, check_images, image_tensor, label_array, of_parts
from jembench.data.datasets import SPLIT
from jembench.errors import JembenchError, Remark, SpecError, Unavailable, error_text
from jembench.files import open_regular, path_of
from jembench.interfaces import Dataset, SplitName

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from jembench.data.arrays import Array

_LAYOUT = (
    "It must hold x_train, y_train, x_test and y_test, or images and labels, which are split; "
    "without labels the images alone; x_test and y_test alone measure a network that is not "
    "trained. Write np.savez(FILE, x_train=..., y_train=..., x_test=..., "
    "y_test=...)."
)

_PART = "(?:(train|test)(?:ing)?)?"
_NAME = re.compile(rf"{_PART}(?:(x|images?|imgs?|data|pixels)|y|labels?|targets?)(?(1)|{_PART})")
"""The names of arrays in lower case without punctuation: xtrain, trainimages."""


class Role(NamedTuple):
    """The part and the kind of an array."""

    part: str  # train, test or ""
    kind: Literal["images", "labels"]


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
    split: Annotated[float, Range(above=0, below=1)] = SPLIT,
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
    training, and ``seed`` chooses which images these are. ``name`` is what results are filed
    under, by default the file's own name. The content of the file is the identity.

    Raises:
        Unavailable: if the file is missing.
        SpecError: if arrays are missing or have other forms, or an option has no effect.
        JembenchError: if the file cannot be read.
    """
    path, parts = path_of(file), dict[SplitName, Part]()
    names = _find_arrays(path)
    for role, images in names.items():
        if role.kind == "labels":
            continue
        shape, labels = _shape(path, images), None
        name_of_labels = names.get(Role(role.part, "labels"))
        if name_of_labels:
            values = _read(path, name_of_labels)
            labels = label_array(_shown(path, name_of_labels), values, shape[0])
        read = functools.partial(_images, path, images, shape)
        place: SplitName = "test" if role.part == "test" else "train"
        parts[place] = Part(shape, labels, read)
    return of_parts(str(path), parts, name=name or path.stem, split=split, seed=seed)


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
        words = _NAME.fullmatch(re.sub(r"[\W_]", "", name.lower()))
        if words is None:
            unused.append(name)
            continue
        role = Role(words[1] or words[3] or "", "images" if words[2] else "labels")
        if role in names:
            raise SpecError(
                f"{path} has {names[role]} and {name}, two arrays of the same meaning. Remove one."
            )
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
    with _opened_file(path) as stream:
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

    with _opened(path, name) as (stream, start):
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, is_by_columns, dtype = read(stream)
        start = None if is_by_columns or start is None else start + stream.tell()
    return _Header(shape, dtype, start)


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
        with _opened_file(file) as stream:
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

    with _opened(path, name) as (stream, _):
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


@contextlib.contextmanager
def _opened(path: Path, name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """Open an array of a file, from its header on.

    Gives the stream, and the place of the header in the file; None: it is compressed.

    Raises:
        SpecError: if the file is too large when it is unpacked.
        JembenchError: if it cannot be read.
    """
    with _opened_file(_file(path, name)) as stream:
        if not zipfile.is_zipfile(stream):
            stream.seek(0)
            yield stream, 0
            return
        with zipfile.ZipFile(stream) as archive:
            limits.check_archive(path, archive)
            with archive.open(f"{name}.npy") as member:
                start = stream.tell()  # zipfile has read the member's own header
                is_stored = archive.getinfo(member.name).compress_type == zipfile.ZIP_STORED
                yield member, start if is_stored else None


def _file(path: Path, name: str) -> Path:
    return path / f"{name}.npy" if path.is_dir() else path


@contextlib.contextmanager
def _opened_file(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_regular(path) as stream:
            yield stream
    except _ERRORS as error:
        cause = error_text(error)
        raise JembenchError(
            f"{path} cannot be read as arrays of NumPy: {cause}. Save it again by np.savez; arrays "
            "of objects, such as images of several sizes, cannot be saved."
        ) from error
