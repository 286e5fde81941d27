"""The content of files: what tells one data set, or one file of weights, from another, wherever it lies."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from jembench.errors import StoreError
from jembench.files import cache_folder, digest, write_bytes

Listing = Callable[[str], Mapping[str, Path]]
"""From an option's text to the files that it stands for, by their names in the data set: "train/cat/0.png"."""


def the_file(text: str) -> Mapping[str, Path]:
    """List the file of an option that is the path of one file, whose name does not count; none for an empty text."""
    return {"": Path(text).expanduser()} if text else {}


def content(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of some files and of their names; of one file without a name, its own.

    It is remembered in the user's cache folder by the path, size and times of each file, so that unchanged files are
    read once and only looked at afterwards.

    Raises:
        OSError: if a file cannot be read, or is a pipe or a device.
    """
    state = [(name, str(path.absolute()), *_state(path)) for name, path in sorted(files.items())]
    memory = cache_folder() / "contents" / hashlib.sha256(json.dumps(state).encode()).hexdigest()
    with suppress(OSError, UnicodeDecodeError):
        known, end, rest = memory.read_text(encoding="ascii").partition("\n")
        if end and not rest:
            return known
    found = _read(files)
    with suppress(StoreError):  # a cache that cannot be written costs time and nothing else
        write_bytes(memory, f"{found}\n".encode())
    return found


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(files: Mapping[str, Path]) -> str:
    from concurrent.futures import ThreadPoolExecutor  # most commands hash nothing

    names = sorted(files)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing lets go of the interpreter
        digests = list(pool.map(lambda name: digest(files[name]), names))
    if names == [""]:
        return digests[0]
    lines = map(json.dumps, zip(names, digests, strict=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
