"""Leases: files that keep two processes from the same work.

The holder creates the file, keeps a lock on it and renews its time every 30 seconds: the heartbeat.
Where the holder's lock can be seen (same kernel, same mounted file system), the lock alone decides:
the system frees it the moment the process ends. Elsewhere, and on a file system without locks, a
lease lasts until it has had no heartbeat for ``LIFETIME``, by the clock of the file system.

A new lease, and the takeover of a dead holder's lease, go through a name that only one process can
create.
"""

import fcntl
import functools
import itertools
import json
import os
import platform
import re
import threading
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from jembench.catalog.validation import printable_data
from jembench.errors import DamagedError, Fallback, StoreError
from jembench.files import ABANDONED_AFTER, cannot_write, now
from jembench.store.records import Record

LIFETIME = 120.0
"""Seconds without a heartbeat after which a lease may be taken over where locks do not decide."""

_LARGEST = 2**16  # bytes of a lease


class _Content(NamedTuple):
    """The content of a lease file.

    The fields are empty if the file is new, or torn by a full disk.
    """

    token: str = ""  # unique to the holder
    locks: str = ""  # name of the processes that see its lock; "": none
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Held:
    """A lease that this process holds."""

    path: Path
    file: FileIO
    token: str

    @property
    def is_mine(self) -> bool:
        """True until another process takes the lease over, or somebody removes it."""
        with suppress(OSError), self.path.open("rb", buffering=0) as file:
            return _read(file).token == self.token
        return False

    def check(self) -> None:
        """Check that the lease was not lost, before a result is written.

        Raises:
            StoreError: if the lease was lost.
        """
        if not self.is_mine:
            raise StoreError(
                f"The lease {self.path} was taken over or removed, as happens when a process is "
                f"stopped for more than {LIFETIME:g} s. Nothing more is written here. Run the same "
                "command again: it waits for the other process, or continues if that has ended."
            )

    def renew(self, stopped: threading.Event) -> None:
        """Renew the file's time until ``stopped`` is set."""
        while not stopped.wait(LIFETIME / 4):
            with suppress(OSError):  # the next heartbeat makes up for one that failed
                if self.is_mine:
                    os.utime(self.file.fileno())

    def release(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # a store that was removed meanwhile needs no release
            if self.is_mine:
                self.path.unlink()
        self.file.close()


@contextmanager
def lease(path: Path) -> Iterator[Held | None]:
    """Hold the lease at ``path``; None if a living process holds it.

    Raises:
        StoreError: if the file cannot be written.
    """
    token, held = uuid.uuid4().hex, None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            held = Held(path, _create(path, token), token)
        except FileExistsError:
            # the lease was released meanwhile: the caller's next attempt gets it
            with suppress(FileNotFoundError), _seized(path) as free:
                if free:
                    new = path.with_name(f".{token}")
                    file = _create(new, token)
                    new.replace(path)
                    held = Held(path, file, token)
    except OSError as error:
        raise cannot_write(path, error) from error
    if held is None:
        yield None
        return
    stopped = threading.Event()
    renewal = threading.Thread(target=held.renew, args=(stopped,), daemon=True)
    renewal.start()
    try:
        yield held
    finally:
        stopped.set()
        renewal.join()
        held.release()


def in_work(folder: Path) -> set[str]:
    """Return the names of leases that living processes hold.

    This process takes no lease.
    """
    names = set()
    for path in folder.glob("*.json"):
        with suppress(OSError), path.open("rb", buffering=0) as file:
            if _is_alive(file, path):
                names.add(path.stem)
    return names


def sweep(folder: Path) -> None:
    """Remove the leases in ``folder`` that no living process holds.

    Old temporary files of takeovers are removed too.
    """
    for path in folder.glob("*.json"):
        with suppress(OSError), _seized(path) as free:
            if free:
                path.unlink()
    for path in folder.glob(".*"):
        with suppress(OSError):
            if abs(now(folder) - path.stat().st_mtime) > ABANDONED_AFTER:
                path.unlink()


# --- acquiring ------------------------------------------------------------------------------------


def _create(path: Path, token: str) -> FileIO:
    """Create a file with its content, locked where locks exist.

    The content is written under another name first: a process that is killed here would otherwise
    leave an empty lease, which counts as held for ``LIFETIME``.

    Raises:
        FileExistsError: if there is a file at ``path``.
    """
    new = path.with_name(f".{uuid.uuid4().hex}")
    file = new.open("x+b", buffering=0)
    try:
        scope = _lock(file.fileno(), fcntl.LOCK_EX)
        if scope is None:
            _note_no_locks()
        content = _Content(token, scope or "", platform.node(), os.getpid())
        file.write(json.dumps(content._asdict()).encode())
        _publish(new, path)
    except BaseException:
        file.close()
        raise
    finally:
        new.unlink(missing_ok=True)
    return file


def _publish(new: Path, path: Path) -> None:
    """Give a file the name ``path``.

    Raises:
        FileExistsError: if another file has the name.
    """
    try:
        os.link(new, path)
    except FileExistsError:
        with suppress(FileNotFoundError):  # the other file was removed meanwhile
            if path.samefile(new):  # NFS may repeat a call that has succeeded
                return
        raise
    except OSError:  # a file system without links
        path.open("xb").close()
        new.replace(path)


@contextmanager
def _seized(path: Path) -> Iterator[bool]:
    """Give whether a lease is free.

    Within the context, only this process may replace or remove a free lease.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    with path.open("rb", buffering=0) as file:
        if _is_alive(file, path):
            yield False
            return
        former = _name(file)
    with _claimed(path.with_name(f".{former}")) as claimed:
        if claimed:
            # another process may have replaced the lease before this claim
            with path.open("rb", buffering=0) as file:
                claimed = _name(file) == former
        yield claimed


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Give whether no living process has a claim of this name.

    If so, this process has the claim within the context.
    """
    for attempt in itertools.count():
        claim = path.with_name(f"{path.name}.{attempt}")
        try:
            file = _create(claim, "")
        except FileExistsError:
            with suppress(FileNotFoundError), claim.open("rb", buffering=0) as stream:
                if not _is_alive(stream, claim):
                    continue
            yield False
            return
        try:
            yield True
        finally:
            claim.unlink(missing_ok=True)
            file.close()
        return


# --- contents of files ----------------------------------------------------------------------------


def _read(file: FileIO) -> _Content:
    file.seek(0)
    with suppress(ValueError, RecursionError, DamagedError):
        return Record(printable_data(json.loads(file.read(_LARGEST))), "a lease").read(_Content)
    return _Content()


def _name(file: FileIO) -> str:
    """Return a unique name of a lease.

    The name is the lease's token or, without a token, its time.
    """
    token = _read(file).token
    return token if token.isalnum() else str(os.fstat(file.fileno()).st_mtime_ns)


def _is_alive(file: FileIO, path: Path) -> bool:
    """Return whether the holder of an open lease lives."""
    try:
        scope = _lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    written = os.fstat(file.fileno()).st_mtime
    if scope and _read(file).locks == scope:
        return False
    # an absolute value, since a clock may have been ahead when the lease was written
    return abs(now(path.parent) - written) < LIFETIME


def _lock(file: int, how: int) -> str | None:
    """Lock an open file, as ``fcntl.flock`` does.

    Returns:
        a name for the processes that see one another's locks on the file: those that share a kernel
        and a mounted file system. A host name is not enough, since containers on several machines
        may share it. "" if this kernel has no name of its own; None if the file system has no
        locks.

    Raises:
        BlockingIOError: if another process holds the lock.
    """
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        raise
    except OSError:
        return None
    kernel = _kernel()
    return kernel and f"{kernel}-{os.fstat(file).st_dev:x}"


@functools.cache
def _kernel() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # Linux without it is a sandbox, where host names and addresses are often not unique
    if platform.system() == "Linux":
        return ""
    return f"{re.sub(r'[^A-Za-z0-9-]', '-', platform.node())[:60]}-{uuid.getnode():x}"


@functools.cache
def _note_no_locks() -> None:
    warnings.warn(
        "The file system of the store has no file locks. Processes are kept apart by heartbeats "
        f"instead: the work of a process that was killed is taken over after {LIFETIME:g} s.",
        Fallback,
        stacklevel=2,
    )
