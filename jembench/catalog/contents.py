"""Hashes of the content of files, which identify datasets and weights regardless of their paths."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from jembench.errors import StoreError
from jembench.files import cache_folder, digest, path_of, write_atomically

Files = Mapping[str, str | Path]
"""The paths of files by name: "train/cat/0.png"."""

Listing = Callable[..., Files]
"""A function that lists the files of option values, texts."""


_AT_ONCE = 1_000
"""The number of files that wait to be hashed."""


def the_file(text: str) -> Files:
    """Return {"": file} for a path; {} for an empty text."""
    return {"": path_of(text)} if text else {}


def content(files: Files, of_file: Callable[[Path], str] = digest) -> str:
    """Return the SHA-256 of files and their names.

    For one file, named "", it is the SHA-256 of the content. The hash is cached in the user's cache
    folder by each file's path, size and times, so that unchanged files are read only once.

    Args:
        files: by their names.
        of_file: returns the digest of a file; by default the SHA-256 of its bytes.

    Raises:
        OSError: if a file cannot be read, or is a pipe or a device.
    """
    names = sorted(files)
    state = hashlib.sha256()
    for name in names:  # there may be millions, for which Path is slow
        path = os.path.abspath(files[name])  # noqa: PTH100
        status = os.stat(path)  # noqa: PTH116
        times = (status.st_mtime_ns, status.st_ctime_ns)
        state.update(json.dumps((name, path, status.st_size, *times)).encode())
    if of_file is not digest:
        state.update(f"{of_file.__module__}.{of_file.__qualname__}".encode())
    cache = cache_folder() / "contents" / state.hexdigest()
    with suppress(OSError, UnicodeDecodeError):
        cached, end, rest = cache.read_text(encoding="ascii").partition("\n")
        if end and not rest:
            return cached
    from concurrent.futures import ThreadPoolExecutor  # imported here, since few commands need it

    digests = list[str]()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing releases the GIL
        for start in range(0, len(names), _AT_ONCE):  # a task takes kilobytes
            part = names[start : start + _AT_ONCE]
            digests += pool.map(lambda name: of_file(Path(files[name])), part)
    if names == [""]:
        hashed = digests[0]
    else:
        lines = map(json.dumps, zip(names, digests, strict=True))
        hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    with suppress(StoreError):  # a cache that cannot be written only costs time
        write_atomically(cache, f"{hashed}\n".encode())
    return hashed
