"""Leases: a file that says who works on something, so that two processes on one store never do the same work."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jembench.files import cannot_write

LIFETIME = 120.0
"""Seconds without a sign of life after which a lease may be taken over; it is renewed four times in that time."""


@contextmanager
def lease(path: Path, lifetime: float = LIFETIME) -> Iterator[bool]:
    """Hold the lease at ``path``: gives True, or False if a living process holds it.

    A holder that was killed on this machine is known to be dead at once; one elsewhere after ``lifetime`` seconds.

    Raises:
        StoreError: if the file cannot be written.
    """
    if not _acquire(path, lifetime):
        yield False
        return
    stopped = threading.Event()
    renewal = threading.Thread(target=_renew, args=(path, lifetime, stopped), daemon=True)
    renewal.start()
    try:
        yield True
    finally:
        stopped.set()
        renewal.join()
        path.unlink(missing_ok=True)


def _acquire(path: Path, lifetime: float) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / ".guard").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # between the look and the writing nobody else may come
            if _alive(path, lifetime):
                return False
            path.write_text(json.dumps({"host": platform.node(), "pid": os.getpid(), "since": time.time()}))
            return True
    except OSError as error:
        raise cannot_write(path, error) from error


def _alive(path: Path, lifetime: float) -> bool:
    try:
        holder = json.loads(path.read_text())
        age = time.time() - path.stat().st_mtime
    except (FileNotFoundError, ValueError):  # absent, or torn by a full disk
        return False
    if holder.get("host") == platform.node() and not _running(int(holder["pid"])):
        return False
    return age < lifetime


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _renew(path: Path, lifetime: float, stopped: threading.Event) -> None:
    while not stopped.wait(lifetime / 4):
        with suppress(FileNotFoundError):  # somebody emptied the store: the work in hand is finished all the same
            os.utime(path)
