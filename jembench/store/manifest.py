"""The files of a bundle, each with its size and digest, and how a folder or a zip archive holds them."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Annotated, NamedTuple

from jembench.catalog import limits
from jembench.catalog.validation import Range
from jembench.errors import DamagedError, SpecError
from jembench.files import digest, open_regular, write_atomically
from jembench.store import records

MANIFEST = "manifest.json"
CARD = "README.md"

_NAME = "[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]{0,200}"
_PART = re.compile(
    rf"README\.md|cells/{_NAME}\.json|arrays/{_NAME}\.npz|fits/{_NAME}/"
    r"(fit\.json|interventions\.json|history\.csv|samples\.png|(model|sampler|buffer-[1-5])\.safetensors)"
)
"""The paths that files of a bundle may have, beside the manifest."""


class Entry(NamedTuple):
    """A file of a bundle."""

    size: Annotated[int, Range(least=0)]  # in bytes
    sha256: str


class _Manifest(NamedTuple):
    files: Mapping[str, Entry]


def is_part(name: str) -> bool:
    """Return whether a file of a bundle may have this path."""
    return _PART.fullmatch(name) is not None


def write(folder: Path) -> None:
    """Write the manifest of a folder in which all the files of a bundle are."""
    names = filter(is_part, (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()))
    records.write(folder / MANIFEST, {"files": {name: _entry(folder / name)._asdict() for name in sorted(names)}})


def _entry(path: Path) -> Entry:
    return Entry(path.stat().st_size, digest(path))


def read(folder: Path) -> Mapping[str, Entry]:
    """Read the manifest of a folder: its files by their paths, with / between their parts.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or names what can be no part of a bundle.
    """
    found = records.read(folder / MANIFEST).read(_Manifest).files
    if strange := [name for name in found if not is_part(name)]:
        raise DamagedError(f"Its manifest names {strange[0][:100]!r}, which can be no file of a trained model.")
    return found


def check(folder: Path) -> None:
    """Check that the files of a folder are those that its manifest names.

    Raises:
        DamagedError: if one is missing or another one, or the manifest is damaged.
    """
    for name, entry in read(folder).items():
        if not (folder / name).exists():
            raise DamagedError(f"{name} is missing.")
        if _entry(folder / name) != entry:
            raise DamagedError(f"{name} was cut short, edited or exchanged.")


# --- folders and archives ---------------------------------------------------------------------------------------------


def write_zip(folder: Path, path: Path) -> None:
    """Write a bundle as a zip archive, uncompressed.

    Raises:
        StoreError: if it cannot be written.
    """

    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name in (MANIFEST, *read(folder)):
                archive.write(folder / name, name)

    write_atomically(path, write, "another name")


Open = Callable[[str], IO[bytes]]
"""Opens a file of a bundle by its name; raises an ``OSError`` or a ``KeyError`` if there is none."""


def copy(source: Path, folder: Path, within: Path) -> None:
    """Copy the manifest of a bundle, and the files that it names, into an empty folder. Their digests are not checked.

    Args:
        source: a folder or a zip archive.
        folder: where they are copied to.
        within: the folder that links of the source must not lead out of.

    Raises:
        SpecError: if there is no such source, it has no manifest, or is larger than the limits allow.
        DamagedError: if a file is missing or cannot be read.
        StoreError: if a copy cannot be written.
    """
    if not source.exists():
        raise SpecError(f"There is no {source}. Name a folder, a zip archive or hf://USER/NAME.")
    if source.is_dir():
        _copy(partial(_open, source, within), folder)
        return
    try:
        with open_regular(source) as stream, zipfile.ZipFile(stream) as archive:
            limits.check_archive(source, archive)
            _copy(archive.open, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # RuntimeError: it is encrypted
        raise DamagedError(f"It is no zip archive that can be read ({error}).") from error


def _open(source: Path, within: Path, name: str) -> IO[bytes]:
    if not Path(os.path.realpath(source / name)).is_relative_to(os.path.realpath(within)):
        raise DamagedError(f"{name} is a link that leads out of the folder.")
    return open_regular(source / name)


def _copy(open_: Open, folder: Path) -> None:
    try:
        _copy_file(open_, MANIFEST, records.LARGEST, folder)
    except FileNotFoundError as error:
        raise SpecError(
            f"There is no trained model: {MANIFEST} is missing. `jembench push` writes such a folder, zip archive "
            "or repository; `jembench store merge` copies from a whole store."
        ) from error
    entries = read(folder)
    limits.check_bytes("What the shared model holds", sum(entry.size for entry in entries.values()))
    for name, entry in entries.items():
        with suppress(FileNotFoundError):  # :func:`check` sees it
            _copy_file(open_, name, entry.size, folder)


def _copy_file(open_: Open, name: str, size: int, folder: Path) -> None:
    """Copy a file in blocks; of one of more than ``size`` bytes the copy is too long, but not whole."""
    try:
        stream = open_(name)
    except (KeyError, FileNotFoundError) as error:
        raise FileNotFoundError(name) from error
    except OSError as error:
        raise DamagedError(f"{name} cannot be read ({error.strerror or error}).") from error

    def write(out: IO[bytes]) -> None:
        while stream.tell() <= size and (block := stream.read(2**20)):
            out.write(block)

    with stream:
        write_atomically(folder / name, write, durable=False)
