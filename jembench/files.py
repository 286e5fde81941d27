"""Files that are either whole or absent: written under a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from jembench.errors import StoreError

ABANDONED_AFTER = 3600.0
"""Seconds after which nobody is still writing a temporary file."""

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space and run the same command again; finished work is kept.",
    errno.EDQUOT: "The disk quota is used up: free some space and run the same command again; finished work is kept.",
    errno.EACCES: "Choose a folder that you may write to with {option}.",
    errno.EPERM: "Choose a folder that you may write to with {option}.",
    errno.EROFS: "The file system is read-only: choose another folder with {option}.",
    errno.ENOTDIR: "A part of this path is a file: choose another folder with {option}.",
    errno.EEXIST: "A file is in the way: choose another folder with {option}.",
}


def cannot_write(path: Path, error: OSError, option: str = "--store") -> StoreError:
    """The user's version of an ``OSError`` met while writing ``path``, which an option of the command line leads to."""
    remedy = _REMEDIES.get(error.errno or 0, "Choose another folder with {option}.").format(option=option)
    return StoreError(f"Cannot write {path}: {error.strerror or error}. {remedy}")


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits; of one that did not change it is computed once.

    Raises:
        OSError: if it cannot be read.
    """
    known = path.stat()
    return _digest(path.absolute(), known.st_mtime_ns, known.st_size)


@functools.lru_cache(maxsize=100_000)
def _digest(path: Path, changed: int, size: int) -> str:
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], option: str = "--store") -> None:
    """Call ``write`` on a temporary file beside ``path``, then rename it to ``path``.

    A crash, a kill or a full disk leaves the previous file as it was. ``option`` is what a user may change to write
    elsewhere.

    Raises:
        StoreError: if the file cannot be written; the temporary file is removed.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error, option) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the temporary files below ``folder`` that a killed process left behind; those of living ones are young."""
    for path in folder.rglob(".*.tmp"):
        with suppress(FileNotFoundError):  # another process sweeps as well
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
                path.unlink()


def write_bytes(path: Path, content: bytes, option: str = "--store") -> None:
    """Write ``content``, atomically; ``option`` as for :func:`write_atomically`."""
    write_atomically(path, lambda stream: stream.write(content), option)


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of several processes do not mix. It begins with the line break:
    what a killed process left torn stays a line of its own.

    Raises:
        StoreError: if the file cannot be written, or is none.
    """
    try:
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with path.open("ab", buffering=0) as stream:
            stream.write(f"\n{line}".encode())
    except OSError as error:
        raise cannot_write(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    write_bytes(path, text.encode())


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. A FIFO or a device is refused, where ``open`` would wait for it.

    Raises:
        OSError: if it cannot be opened, or is no regular file.
    """
    stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return stream


def read_bytes(path: Path, largest: int | None = None) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: if it cannot be read, is no regular file, or has more than ``largest`` bytes.
    """
    with open_regular(path) as stream:
        if largest is not None and os.fstat(stream.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return stream.read()
