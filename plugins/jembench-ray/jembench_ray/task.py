"""A Ray worker's task: start the process of a unit, and wait."""

from __future__ import annotations

import ctypes
import io
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jembench.interfaces.running import Ended, exit_reason

_LIBC = ctypes.CDLL(None)

LOOK = 0.5
"""Seconds between two checks that the node is alive."""


class Died(Exception):
    """The death of a worker process, after which Ray repeats the task.

    Arguments: the reason and the host.
    """


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit of work, as a Ray worker receives it."""

    id: str
    text: str  # as JSON
    store: str  # of the driver
    command: Sequence[str]  # of its worker process
    environment: Mapping[str, str]


def carry_out(unit: Unit, files: bytes | None) -> tuple[Ended | None, bytes]:
    """Carry out a unit in the driver's store or a temporary store.

    Args:
        unit: the unit.
        files: a zip of the unit's files in the driver's store; None: the driver's store is used.

    Returns:
        the ending, and a zip of the temporary store, or nothing. The ending is None if the driver's
        store is out of reach: the unit must be submitted again with its files.

    Raises:
        Died: if the worker process dies.
    """
    if files is None:
        seen = Path(unit.store, "works", f"{unit.id}.json").is_file()
        if seen:
            return (_run(unit, Path(unit.store)), b"")
        return (None, b"")
    with tempfile.TemporaryDirectory(prefix="jembench-") as folder:
        unpack(files, Path(folder))
        Path(folder, "works").mkdir(exist_ok=True)
        Path(folder, "works", f"{unit.id}.json").write_text(unit.text, encoding="utf-8")
        ended = _run(unit, Path(folder), "--store", folder)
        left = []
        for path in Path(folder).rglob("*"):
            if path.is_file() and path.parent.name != "leases":
                left.append(path)
        return ended, pack(Path(folder), left)


def pack(root: Path, files: Iterable[Path]) -> bytes:
    """Return a zip of files, under their paths relative to ``root``."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in files:
            archive.write(path, path.relative_to(root))
    return content.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Write the files of a zip into a folder."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)


def log_name(unit: str) -> str:
    """Return the name of the log of a unit's worker."""
    return f"worker-{unit}.log"


def _run(unit: Unit, store: Path, *options: str) -> Ended:
    """Run the worker process of a unit; keep its log after problems."""
    log = store / "works" / log_name(unit.id)
    with log.open("ab") as errors, _cancellations() as cancellations:
        worker = subprocess.Popen(
            [sys.executable, *unit.command[1:], *options],
            env={**os.environ, **unit.environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            preexec_fn=_end_with_parent,
        )
        printed, is_stopped = _wait(worker, cancellations)
    ended = None
    if is_stopped:
        ended = Ended(id=unit.id, how="stopped", host=platform.node())
    for line in printed.splitlines():
        with suppress(ValueError, TypeError):  # printed by something else
            ended = Ended(**json.loads(line))
    if ended is None:
        raise Died(
            f"its worker process ended with {exit_reason(worker.returncode)}", platform.node()
        )
    if ended.how in ("done", "busy", "stopped"):
        log.unlink()
    return ended


def _end_with_parent() -> None:
    """Have this process stopped when its parent dies."""
    if sys.platform == "linux":
        _LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextmanager
def _cancellations() -> Iterator[list[int]]:
    """Collect the interrupts of ray.cancel.

    An interrupt that is raised while a worker starts would leave that worker running.
    """
    seen: list[int] = []

    def record(number: int, frame: object) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, record)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(worker: subprocess.Popen[str], cancellations: list[int]) -> tuple[str, bool]:
    """Wait for a process; return its output, and whether Ray cancelled it.

    A process whose task was cancelled is stopped cleanly.
    """
    node, is_stopped = os.getppid(), False
    while True:
        # a second signal would end the worker before it has saved
        if cancellations and not is_stopped:
            worker.terminate()
            is_stopped = True
        try:
            return worker.communicate(timeout=LOOK)[0], is_stopped
        except subprocess.TimeoutExpired:
            if os.getppid() != node:  # the node's raylet died, and Ray starts the task elsewhere
                worker.terminate()
                worker.wait()
                os._exit(1)
