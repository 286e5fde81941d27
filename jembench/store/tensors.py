"""Safetensors files with a record and a digest in the header.

The digest covers tensors and record, and is checked on every reading.

The header's metadata has one key. Its value is a JSON object: the record and ``digest``, the
SHA-256 of the tensors' names, types, shapes and bytes and of the rest of the record. Equal content
gives equal files. Files of other programs have no digest, and can be read too. Reading a file never
runs code.

Imports no torch until tensors are read or written.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from jembench.catalog.validation import printable_data
from jembench.errors import CheckpointError, StoreError
from jembench.files import open_regular, read_bytes, write_atomically
from jembench.store.layout import id_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

T = TypeVar("T")

Tensors = dict[str, "Tensor"]
"""Tensors by their names."""

KEY = "jembench"
"""The metadata's key for the record."""

_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
"""The encoder, which gives equal values the same text."""

LARGEST_HEADER = 100_000_000
"""The largest header in bytes; the safetensors library refuses larger headers."""


class Seal(NamedTuple):
    """The record and the digest of a file."""

    record: Mapping[str, Any]  # for a file without a digest, its metadata
    digest: str  # SHA-256 of tensors and record; "": another program's file has no digest
    number: int  # of tensors


class Contents(NamedTuple):
    """The tensors of a file, and its seal."""

    tensors: Tensors
    seal: Seal


# --- writing --------------------------------------------------------------------------------------


def write(
    path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any], *, placed: bool = False
) -> None:
    """Write tensors and a record, atomically.

    Args:
        path: of the file.
        tensors: on any device. Tensors that share memory are written separately.
        record: values for JSON.
        placed: True to record the file's name and the id of its folder, which readers compare.

    Raises:
        StoreError: if the file cannot be written, or a tensor is quantised; the previous file is
            kept.
    """
    from safetensors.torch import save

    if placed:
        record = {**record, "place": _place(path)}
    apart: Tensors = {}
    taken: set[int] = set()
    for key, value in tensors.items():
        if value.is_quantized:
            kind = str(value.dtype).removeprefix("torch.")
            raise StoreError(
                f"The tensor {key} is {kind}, which cannot be stored. Give the network before its "
                "quantisation."
            )
        own = value.detach().cpu().contiguous()
        memory = own.untyped_storage().data_ptr()
        if memory in taken:  # a copy, since the format has no tied weights
            own = own.clone()
        apart[key] = own
        taken.add(memory)
    content = memoryview(save(apart))
    end = 8 + int.from_bytes(content[:8], "little")
    layout, data = json.loads(bytes(content[8:end])), content[end:]
    digest = _digest(layout, record, data)
    sealed = _JSON.encode({**record, "digest": digest})
    header = _JSON.encode({**layout, "__metadata__": {KEY: sealed}}).encode()
    header += b" " * (-len(header) % 8)  # so that the tensors are aligned
    start = len(header).to_bytes(8, "little") + header
    write_atomically(path, lambda stream: (stream.write(start), stream.write(data)))


def _place(path: Path) -> str:
    """Return a file's name with the id of its folder.

    The rest of the folder's name may differ between stores.
    """
    return f"{id_of(path.parent)}/{path.name}"


def _digest(layout: Mapping[str, Any], record: Mapping[str, Any], data: memoryview) -> str:
    sha256 = hashlib.sha256(_JSON.encode([layout, record]).encode())
    sha256.update(data)
    return sha256.hexdigest()


# --- reading --------------------------------------------------------------------------------------


def read(path: Path, remedy: str, *, placed: bool = False) -> Contents:
    """Read tensors to the CPU, and the record.

    The digest is checked on the bytes that the tensors are made of.

    Args:
        path: of the file.
        remedy: the error's sentence that tells users how to replace a damaged file.
        placed: True if the file was written with its place.

    Raises:
        CheckpointError: if the file cannot be read, was changed or, with ``placed``, was written in
            another place.
    """
    from safetensors.torch import load

    return Contents(*_loaded(path, remedy, load, placed=placed))


def read_arrays(path: Path, remedy: str, *, placed: bool = False) -> dict[str, NDArray[Any]]:
    """Read tensors as :func:`read` does, as arrays of NumPy. Imports no torch."""
    from safetensors.numpy import load

    return _loaded(path, remedy, load, placed=placed)[0]


def _loaded(path: Path, remedy: str, load: Callable[[bytes], T], *, placed: bool) -> tuple[T, Seal]:
    from safetensors import SafetensorError

    content, seal = _checked(path, remedy, placed=placed)
    try:
        return load(content), seal
    except (SafetensorError, KeyError, ValueError, RuntimeError, MemoryError) as error:
        raise _damaged(path, error, remedy) from error


def check(path: Path, remedy: str = "", *, placed: bool = False) -> Seal:
    """Check a file's digest. Imports no torch.

    Raises:
        CheckpointError: as for :func:`read`, and if the file has no digest.
    """
    seal = _checked(path, remedy, placed=placed)[1]
    if not seal.digest:
        raise _damaged(path, "it has no digest", remedy)
    return seal


def read_seal(path: Path, remedy: str = "") -> Seal:
    """Read the header of a file, without its tensors.

    Raises:
        CheckpointError: if the header is damaged.
    """
    try:
        with open_regular(path) as stream:
            seal = _header(stream)[1]
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error, remedy) from error
    return seal._replace(record=printable_data(seal.record))


def age_of(path: Path) -> int:
    """Return a state's age; -1 for an unreadable file.

    Only the header is read.
    """
    try:
        return int(read_seal(path).record.get("age", 0))
    except (CheckpointError, TypeError, ValueError):
        return -1


def _checked(path: Path, remedy: str, *, placed: bool) -> tuple[bytes, Seal]:
    """Return the bytes of a file and its seal.

    The digest, if any, and the place are checked.
    """
    try:
        content = read_bytes(path)
    except (OSError, MemoryError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}). {remedy}".rstrip()) from error
    try:
        stream = io.BytesIO(content)
        layout, seal = _header(stream)
        data = memoryview(content)[stream.tell() :]
        if seal.digest and seal.digest != _digest(layout, seal.record, data):
            raise ValueError("its content does not match its digest")
        if placed and seal.record.get("place") != _place(path):
            raise ValueError("it was written under another name or in another folder")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error, remedy) from error
    return content, seal._replace(record=printable_data(seal.record))


def _header(stream: IO[bytes]) -> tuple[dict[str, Any], Seal]:
    """Read the layout of the tensors and the seal.

    Raises:
        ValueError, RecursionError: if there is no such header.
    """
    length = int.from_bytes(stream.read(8), "little")
    if length > LARGEST_HEADER:
        raise ValueError("it has no header of safetensors")
    layout = json.loads(stream.read(length))
    metadata = layout.pop("__metadata__", {}) if isinstance(layout, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("its header or its metadata is no object")
    if not all(isinstance(entry, dict) and "data_offsets" in entry for entry in layout.values()):
        # the key of the metadata may be damaged
        raise ValueError("its header has an entry that is neither a tensor nor its metadata")
    if KEY not in metadata:
        return layout, Seal(metadata, "", len(layout))
    record: Any = json.loads(metadata[KEY]) if isinstance(metadata[KEY], str) else None
    digest = record.pop("digest", None) if isinstance(record, dict) else None
    if not isinstance(digest, str) or not digest:
        raise ValueError("its record has no digest")
    return layout, Seal(record, digest, len(layout))


def _damaged(path: Path, why: object, remedy: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged ({why}). {remedy}".rstrip())
