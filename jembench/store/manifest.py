"""The files of a bundle, each with its size and digest, and how a folder or a zip archive holds them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    r"(fit\.json|interventions\.json|history\.csv|(energies|samples)\.png|(model|sampler|buffer-[1-5])\.safetensors)"
)
"""The paths that files of a bundle may have, beside the manifest."""


_BLOCK = 2**20  # bytes that are copied at a time


class Entry(NamedTuple):
    """A file of a bundle."""

    size: Annotated[int, Range(least=0)]  # in bytes
    sha256: str


class _Manifest(NamedTuple):
    files: Mapping[str, Entry]


def is_part(name: str) -> bool:
    """Whether a file of a bundle may have this path."""
    return _PART.fullmatch(name) is not None


def write(folder: Path) -> None:
    """Write the manifest of a folder in which all the files of a bundle are."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    entries = {
        name: Entry((folder / name).stat().st_size, digest(folder / name)) for name in sorted(filter(is_part, names))
    }
    records.write(folder / MANIFEST, {"files": {name: entry._asdict() for name, entry in entries.items()}})


def read(folder: Path) -> Mapping[str, Entry]:
    """The manifest of a folder: its files by their paths, with / between their parts.

    Raises:
        FileNotFoundError: if there is none.
        DamagedError: if it is damaged, or names what can be no part of a bundle.
    """
    found = records.read(folder / MANIFEST).read(_Manifest).files
    if strange := [name for name in found if not is_part(name)]:
        raise DamagedError(f"Its manifest names {strange[0][:100]!r}, which can be no file of a trained model.")
    return found


# --- folders and archives ---------------------------------------------------------------------------------------------


def write_zip(folder: Path, path: Path) -> None:
    """Write a bundle as a zip archive, uncompressed and without times: equal content gives equal archives.

    Raises:
        StoreError: if it cannot be written.
    """

    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name in (MANIFEST, *read(folder)):
                entry = zipfile.ZipInfo(name)
                entry.external_attr = 0o644 << 16
                entry.file_size = (folder / name).stat().st_size
                with archive.open(entry, "w") as member, (folder / name).open("rb") as file:
                    shutil.copyfileobj(file, member)

    write_atomically(path, write, "another name")


Open = Callable[[str], tuple[IO[bytes], int]]
"""Opens a file by its name; the number is its size in bytes, by the folder's or archive's directory."""


@contextmanager
def opened(source: Path, within: Path) -> Iterator[Open]:
    """Open a bundle, a folder or a zip archive, and give a function that opens its files.

    Args:
        source: the folder or the archive.
        within: the folder that links of the source must not lead out of.

    Raises:
        SpecError: if there is no such source.
        DamagedError: if it is no archive that can be read.
    """
    if not source.exists():
        raise SpecError(f"There is no {source}. Name a folder, a zip archive or hf://USER/NAME.")
    if source.is_dir():

        def open_(name: str) -> tuple[IO[bytes], int]:
            if not Path(os.path.realpath(source / name)).is_relative_to(os.path.realpath(within)):
                raise DamagedError(f"{name} is a link that leads out of the folder.")
            stream = open_regular(source / name)
            return stream, os.fstat(stream.fileno()).st_size

        yield open_
        return
    try:
        with open_regular(source) as stream, zipfile.ZipFile(stream) as archive:
            limits.check_archive(source, archive)
            members = {info.filename: info for info in archive.infolist()}

            def open_member(name: str) -> tuple[IO[bytes], int]:
                if name not in members:
                    raise FileNotFoundError
                return archive.open(members[name]), members[name].file_size

            yield open_member
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedError(f"It is no zip archive that can be read ({error}).") from error


def copy(open_: Open, name: str, to: Path, entry: Entry | None = None) -> None:
    """Copy a file of a bundle in blocks, and check the bytes that are copied.

    Args:
        open_: of the bundle.
        name: of the file.
        to: the path of the copy.
        entry: the file's size and digest by the manifest; None for the manifest itself.

    Raises:
        SpecError: if there is no manifest.
        DamagedError: if there is no other file of that name, or its size or digest is another one.
        StoreError: if the copy cannot be written.
    """
    try:
        stream, size = open_(name)
    except FileNotFoundError as error:
        if name == MANIFEST:
            raise SpecError(
                f"There is no trained model: {MANIFEST} is missing. `jembench push` writes such a folder, zip archive "
                "or repository; `jembench store merge` copies from a whole store."
            ) from error
        raise DamagedError(f"{name} is missing.") from error
    except OSError as error:
        raise DamagedError(f"{name} cannot be read ({error.strerror or error}).") from error
    found = hashlib.sha256()

    def write(out: IO[bytes]) -> None:
        while block := stream.read(_BLOCK):
            found.update(block)
            out.write(block)

    with stream:
        is_right = size <= records.LARGEST if entry is None else size == entry.size
        if is_right:
            write_atomically(to, write, durable=False)
    if not is_right or (entry and found.hexdigest() != entry.sha256):
        raise DamagedError(f"{name} was cut short, edited or exchanged.")
