"""Atomic writing of files: under a temporary name, flushed to disk, then renamed; and safe reading.

This module also defines the folders of the user's data and caches.
"""

import errno
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from jembench.errors import SpecError, StoreError

ABANDONED_AFTER = 3600.0
"""The age in seconds at which a temporary file counts as abandoned, and is removed."""

_PREFIX = ".jembench-"
"""The prefix of the names of all temporary files."""


def path_of(text: str) -> Path:
    """Return the path that a user has written.

    ``~`` and ``~user`` become the home folder.

    Raises:
        SpecError: if there is no such user.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        user = Path(text).parts[0]
        raise SpecError(
            f"In the path {text!r}, the home folder {user} is not known. Write the whole path."
        ) from error


def cannot_write(path: Path, error: OSError, option: str = "--store") -> StoreError:
    """Return the error for an ``OSError`` while ``path`` is written.

    ``option`` is the option that sets the path.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space and run the same command again; finished work is kept."
    else:
        remedy = f"Choose another folder with {option}."
    return StoreError(f"Cannot write {path}: {error.strerror or error}. {remedy}")


@contextmanager
def same_folder() -> Iterator[None]:
    """Restore the current folder after code that may change it.

    Relative paths then keep their meaning.
    """
    before = None
    with suppress(OSError):  # the current folder was removed
        before = Path.cwd()
    try:
        yield
    finally:
        if before is not None:
            os.chdir(before)


def digest(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits.

    An unchanged file is read only once.

    Raises:
        OSError: if the file cannot be read.
    """
    status = Path(path).stat()
    state = status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
    return _digest(Path(path).absolute(), state)


@functools.lru_cache(maxsize=100_000)
def _digest(path: Path, state: tuple[int, ...]) -> str:
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_place(path: Path, option: str = "--store") -> None:
    """Check that ``path`` is free or a regular file.

    ``option`` is as for :func:`write_atomically`.

    Raises:
        StoreError: if ``path`` is anything else, such as a device, which a rename would replace.
    """
    if path.exists() and not path.is_file():
        raise cannot_write(path, OSError(errno.EINVAL, "Not a regular file"), option)


def write_atomically(
    path: Path,
    content: bytes | Callable[[IO[bytes]], object],
    option: str = "--store",
    *,
    durable: bool = True,
) -> None:
    """Write a temporary file beside ``path``, then rename it to ``path``.

    A crash, a kill or a full disk leaves the previous file unchanged.

    Args:
        path: of the file. Missing folders are made.
        content: of the file, or a function that writes it to a stream.
        option: the option of the command line that sets ``path``, for errors.
        durable: False for a file that may be lost if the machine fails; writing is ten times as
            fast.

    Raises:
        StoreError: if the file cannot be written; the temporary file is removed.
    """
    try:
        check_place(path, option)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_PREFIX}{os.urandom(8).hex()}.tmp")
        with temporary.open("x+b") as stream:  # with the permissions of the umask
            with suppress(OSError):  # a file system without locks
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep spares it
            try:
                if isinstance(content, bytes):
                    stream.write(content)
                else:
                    content(stream)
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise cannot_write(path, error, option) from error


def sweep(folder: Path, *, below: bool = True) -> None:
    """Remove the temporary files of killed processes in ``folder``.

    These have not changed for an hour, and no living process has locked them. With ``below``,
    subfolders are swept too.
    """
    temporary = f"{_PREFIX}*.tmp"
    for path in folder.rglob(temporary) if below else folder.glob(temporary):
        with suppress(OSError):  # removed by another process
            if abs(now(path.parent) - path.lstat().st_mtime) > ABANDONED_AFTER:
                with open_regular(path) as stream:
                    fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()


def now(folder: Path) -> float:
    """Return the file system's time, or this machine's in a read-only folder."""
    import tempfile  # imported here, since few commands need it

    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return time.time()


def copy(path: Path, to: Path, *, durable: bool = True) -> None:
    """Copy a regular file atomically.

    Raises:
        OSError: if the file cannot be read, or is not regular.
        StoreError: if the copy cannot be written.
    """
    with open_regular(path) as stream:
        write_atomically(to, lambda out: shutil.copyfileobj(stream, out), durable=durable)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. A FIFO or a device, which could block, is refused.

    Raises:
        OSError: if the file cannot be opened, or is not regular.
    """
    stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return stream


def read_bytes(path: Path, largest: int | None = None) -> bytes:
    """Read a regular file.

    Raises:
        OSError: if the file cannot be read, is not regular, or has more than ``largest`` bytes.
    """
    with open_regular(path) as stream:
        if largest is not None and os.fstat(stream.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return stream.read()


@contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Set the default timeout of new sockets, for downloads by libraries that set none."""
    import socket  # imported here, since few commands need it

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def cache_folder() -> Path:
    """Return the folder of caches, whose files jembench can download or compute again."""
    from platformdirs import user_cache_path  # imported here, since few commands need it

    return user_cache_path("jembench", appauthor=False).absolute()


def data_folder(root: str = "") -> Path:
    """Return the folder of datasets.

    It is ``root``, else ``JEMBENCH_DATA``, else ``data`` in the folder of caches.
    """
    chosen = root or os.environ.get("JEMBENCH_DATA")
    return path_of(chosen).absolute() if chosen else cache_folder() / "data"
