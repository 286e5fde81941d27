"""Leases: files that keep two processes on one store from doing the same work.

The holder keeps a lock on its file. The system frees it the moment the process ends, however it ends, so on one machine
the lock alone decides. Another machine may not see the lock: there the time of the holder's last heartbeat decides.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path

from jembench.files import cannot_write

LIFETIME = 120.0
"""Seconds without a heartbeat after which another machine may take a lease over. There are four beats in them."""


@contextmanager
def lease(path: Path, lifetime: float = LIFETIME) -> Iterator[bool]:
    """Hold the lease at ``path``: gives True, or False if a living process holds it.

    Raises:
        StoreError: if the file cannot be written.
    """
    held = _acquire(path, lifetime)
    if held is None:
        yield False
        return
    stopped = threading.Event()
    renewal = threading.Thread(target=_renew, args=(held, lifetime, stopped), daemon=True)
    renewal.start()
    try:
        yield True
    finally:
        stopped.set()
        renewal.join()
        _release(path, held)


def sweep(folder: Path, lifetime: float = LIFETIME) -> None:
    """Remove the leases in ``folder`` that no living process holds: those that could be taken over."""
    for path in folder.glob("*.json"):
        with suppress(OSError), _guarded(path) as now, path.open("rb+", buffering=0) as file:
            if _lock(file) and not _held_elsewhere(file, now, lifetime):
                path.unlink()


def _acquire(path: Path, lifetime: float) -> FileIO | None:
    """The locked file, or None."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _guarded(path) as now, ExitStack() as unless_held:
            file = unless_held.enter_context(path.open("ab+", buffering=0))
            if not _lock(file) or _held_elsewhere(file, now, lifetime):
                return None
            file.truncate(0)
            file.write(json.dumps({"host": platform.node(), "pid": os.getpid()}).encode())
            unless_held.pop_all()
            return file
    except OSError as error:
        raise cannot_write(path, error) from error


def _release(path: Path, held: FileIO) -> None:
    with suppress(OSError), _guarded(path):  # a store that was removed meanwhile needs no release
        if _is_mine(held) and os.path.samestat(os.fstat(held.fileno()), path.stat()):
            path.unlink()
    held.close()


@contextmanager
def _guarded(path: Path) -> Iterator[float]:
    """Exclude other processes from acquiring and releasing. Gives the time by the clock of the store's file system."""
    with (path.parent / ".guard").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        os.utime(guard.fileno())
        yield os.fstat(guard.fileno()).st_mtime


def _lock(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held_elsewhere(file: FileIO, now: float, lifetime: float) -> bool:
    host = _host(file)
    return host not in ("", platform.node()) and now - os.fstat(file.fileno()).st_mtime < lifetime


def _host(file: FileIO) -> str:
    """Who wrote the file; empty if it is new, or torn by a full disk."""
    file.seek(0)
    try:
        return str(json.load(file)["host"])
    except (ValueError, LookupError, TypeError):
        return ""


def _is_mine(held: FileIO) -> bool:
    """False if another machine took the lease over while this one was asleep."""
    return _host(held) == platform.node()


def _renew(held: FileIO, lifetime: float, stopped: threading.Event) -> None:
    while not stopped.wait(lifetime / 4):
        with suppress(OSError):  # the next heartbeat makes up for one that failed
            if _is_mine(held):
                os.utime(held.fileno())
