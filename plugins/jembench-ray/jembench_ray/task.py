"""What runs on a Ray worker: it has a unit of work carried out by a child process."""

from __future__ import annotations

import json
import os
import platform
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from jembench.interfaces.running import Ended, Job

GRACE = 10.0
"""Seconds in which a child that has nothing to do may end by itself."""

LOOK = 0.2
"""Seconds between two looks at whether Ray has cancelled the task."""


class Died(Exception):
    """The child died. Ray tries the task again. Arguments: what is known, and the host."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit of work, with all that a Ray worker needs to know."""

    job: Job
    store: str  # of the driver
    arguments: tuple[str, ...]  # of the child's command
    environment: Mapping[str, str]
    shared: bool | None  # whether the store is here too; None: look
    kept: bool  # whether the child stays for the next unit


class Report(NamedTuple):
    """What comes back from a task."""

    ended: Ended | None  # None: the unit is to be submitted again, with the files that it needs
    files: Mapping[str, np.ndarray[Any, Any]] | None = None  # new ones, by path; None: they are in the driver's store


def carry_out(unit: Unit, files: Mapping[str, Any] | None) -> Report:
    """Carry out a unit in the driver's store, or, where that is out of reach, in one of its own.

    Args:
        unit: what is to be done.
        files: references to the contents of files that it needs, by path; None: none are sent before a node is known
            that does not reach the store.

    Raises:
        Died: if the child does.
    """
    works = Path(unit.store, "works")
    if unit.shared or (unit.shared is None and (works / f"{unit.job.id}.json").is_file()):
        return Report(_carry_out(unit, works, ()))
    if files is None:
        return Report(None)
    with tempfile.TemporaryDirectory(prefix="jembench-") as folder:
        store = Path(folder)
        (store / "works").mkdir()
        (store / "works" / f"{unit.job.id}.json").write_text(unit.job.text)
        sent = _receive(store, files or {})
        ended = _carry_out(unit, store / "works", ("--store", folder))
        return Report(ended, _new_files(unit.job, store, sent))


def _receive(store: Path, files: Mapping[str, Any]) -> dict[Path, int]:
    """Write the files that were sent along; gives when."""
    import ray

    for name, content in zip(files, ray.get(list(files.values())), strict=True):
        write_file(store / name, content)
    return {path: path.stat().st_mtime_ns for path in store.rglob("*")}


def write_file(path: Path, content: np.ndarray[Any, Any]) -> None:
    """Write bytes to a new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content.tofile(path)


def _new_files(job: Job, store: Path, sent: Mapping[Path, int]) -> dict[str, np.ndarray[Any, Any]]:
    """The files that the unit has left: of a training all, for its record vouches for all of them."""
    found = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    new = [path for path, changed in found.items() if job.kind == "train" or sent.get(path) != changed]
    names = {path.relative_to(store).as_posix(): path for path in new}
    return {
        name: np.fromfile(path, np.uint8)
        for name, path in names.items()
        if not name.startswith("leases/") and name != f"works/{job.id}.json"
    }


# --- the child --------------------------------------------------------------------------------------------------------


def _carry_out(unit: Unit, works: Path, more: tuple[str, ...]) -> Ended:
    """Have the child carry out a unit. What it prints is in ``works``, unless all went well."""
    log = works / f"{unit.job.id}.log"
    child = _Child.of(unit, more)
    try:
        with log.open("ab", buffering=0) as stream:
            ended = child.carry_out(unit.job.id, stream)
    except BaseException:
        child.end()
        raise
    if not unit.kept or more:
        child.process.kill()  # it has nothing to do, and would take a second to end by itself
        child.end()
    if ended.how in ("done", "busy", "stopped"):
        log.unlink()
    return ended


@dataclass(kw_only=True)
class _Child:
    """A process that carries out one unit after the other, and ends when this one does: that closes its stdin."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]
    said: bytes = b""  # on stdout, and not looked at yet
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    @classmethod
    def of(cls, unit: Unit, more: tuple[str, ...]) -> _Child:
        """The child that the last unit has left, if it fits, or a new one."""
        global _kept
        command = (sys.executable, "-P", "-m", "jembench", *unit.arguments, *more)
        environment = {**os.environ, **unit.environment}
        child, _kept = _kept, None
        if child and (child.process.poll() is not None or child.key != (command, environment)):
            child.end()
            child = None
        if not child:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
            child = cls(command=command, environment=environment, process=process)
            child.selector.register(child.stream("stdout"), selectors.EVENT_READ)
            child.selector.register(child.stream("stderr"), selectors.EVENT_READ)
        _kept = child if unit.kept and not more else None
        return child

    @property
    def key(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """What decides whether another unit may use it."""
        return self.command, self.environment

    def stream(self, name: str) -> IO[bytes]:
        """One of its pipes."""
        stream: IO[bytes] = getattr(self.process, name)
        return stream

    def carry_out(self, unit: str, log: IO[bytes]) -> Ended:
        """Carry out a unit; what is printed on stderr goes to the log.

        Raises:
            Died: if it does.
        """
        with suppress(BrokenPipeError):  # it has died, which its stdout tells
            self.stream("stdin").write(f"{unit}\n".encode())
            self.stream("stdin").flush()
        node, asked = os.getppid(), False  # to stop
        while True:
            try:
                alive, ended = self.listen(log)
            except KeyboardInterrupt:  # ray.cancel, which may come again
                if not asked:  # a second signal would end it before it has saved
                    self.process.terminate()
                asked = True
                continue
            if os.getppid() != node:  # the node's raylet died. Ray would let the task run on
                self.process.terminate()
                self.end()
                os._exit(1)
            if ended:
                return ended
            if not alive:
                code = self.process.wait()
                if asked:
                    return Ended(id=unit, how="stopped", host=platform.node())
                raise Died(f"its worker process ended with exit code {code}", platform.node())

    def listen(self, log: IO[bytes]) -> tuple[bool, Ended | None]:
        """Wait a moment for what it prints: whether it goes on, and how the unit has ended, if it has."""
        events = self.selector.select(LOOK)
        alive = bool(events) or self.process.poll() is None
        for key, _ in events:
            data = os.read(key.fd, 2**16)
            if not data:
                self.selector.unregister(key.fileobj)
            if key.fileobj is self.process.stderr:
                log.write(data)
            else:
                self.said += data
        *lines, self.said = self.said.split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError):  # printed by something else
                return True, Ended(**json.loads(line))
        return alive, None

    def end(self) -> None:
        """End it: by itself, if it has nothing to do."""
        global _kept
        _kept = None
        with suppress(OSError):
            self.stream("stdin").close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.selector.close()


_kept: _Child | None = None
"""The child that waits for the next unit."""
