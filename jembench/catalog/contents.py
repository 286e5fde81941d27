"""Hashes of the content of files, which identify datasets and weights regardless of their paths."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from jembench.errors import StoreError
from jembench.files import cache_folder, digest, path_of, write_atomically

Listing = Callable[..., Mapping[str, Path]]
"""A function that lists the files of option values, texts, by name: "train/cat/0.png"."""


def the_file(text: str) -> Mapping[str, Path]:
    """Return {"": file} for a path; {} for an empty text."""
    return {"": path_of(text)} if text else {}


def content(files: Mapping[str, Path], of_file: Callable[[Path], str] = digest) -> str:
    """Return the SHA-256 of files and their names.

    For one file, named "", it is the SHA-256 of the content. The hash is cached in the user's cache
    folder by each file's path, size and times, so that unchanged files are read only once.

    Args:
        files: by their names.
        of_file: returns the digest of a file; by default the SHA-256 of its bytes.

    Raises:
        OSError: if a file cannot be read, or is a pipe or a device.
    """
    state: list[object] = []
    for name, path in sorted(files.items()):
        status = path.stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        state.append((name, str(path.absolute()), status.st_size, *times))
    if of_file is not digest:
        state.append(f"{of_file.__module__}.{of_file.__qualname__}")
    cache = cache_folder() / "contents" / hashlib.sha256(json.dumps(state).encode()).hexdigest()
    with suppress(OSError, UnicodeDecodeError):
        cached, end, rest = cache.read_text(encoding="ascii").partition("\n")
        if end and not rest:
            return cached
    from concurrent.futures import ThreadPoolExecutor  # imported here, since few commands need it

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing releases the GIL
        digests = list(pool.map(of_file, (path for _, path in sorted(files.items()))))
    if list(files) == [""]:
        hashed = digests[0]
    else:
        lines = map(json.dumps, zip(sorted(files), digests, strict=True))
        hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    with suppress(StoreError):  # a cache that cannot be written only costs time
        write_atomically(cache, f"{hashed}\n".encode())
    return hashed
