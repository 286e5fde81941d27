"""The worker that executors are checked with: it takes the place of ``python -m jembench`` and
computes nothing.

It is copied beside the checks' other files and started from there, so it imports the standard
library alone. Its arguments are ``work``, the ids of units and a folder. The file of a unit in the
folder says how it ends; the file ``trace`` gets a line for each unit that begins.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

PATIENCE = 60.0
"""Seconds after which a sleeping unit ends that is not stopped."""

UNKNOWN = "Error: No such command 'work'."
"""The error of a worker of another version."""


def main() -> None:
    """Carry out the units that the arguments name."""
    _, *units, folder = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    for unit in units:
        for each in (line.rstrip() for line in sys.stdin) if unit == "-" else [unit]:
            for name in each.split():
                carry_out(Path(folder), name)


def carry_out(folder: Path, unit: str) -> None:
    """Do what a unit's file says, and print how it ended."""
    what, _, text = (folder / unit).read_text(encoding="utf-8").partition(" ")
    before = begun(folder).count(unit)
    note(folder, unit)
    print(f"{unit} begins", file=sys.stderr, flush=True)
    how = what
    if what == "dies" or (what == "dies-once" and not before):
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exits":
        print(UNKNOWN, file=sys.stderr, flush=True)
        sys.exit(2)
    elif what == "sleeps":
        _sleep(unit)
    elif what == "meets":
        seconds, *others = text.split()
        how, text = (
            ("done", "") if _meet(folder, others, float(seconds)) else ("failed", "it was alone")
        )
    _end(unit, "done" if what == "dies-once" else how, text)


def note(folder: Path, unit: str) -> None:
    """Note that a unit begins."""
    with (folder / "trace").open("a") as trace:
        trace.write(f"{unit} {os.getpid()}\n")


def begun(folder: Path) -> list[str]:
    """Return the units that have begun, as often as they have."""
    return [line.split()[0] for line in _lines(folder)]


def pids(folder: Path) -> set[int]:
    """Return the processes that have begun units."""
    return {int(line.split()[1]) for line in _lines(folder)}


def _lines(folder: Path) -> list[str]:
    path = folder / "trace"
    return path.read_text().splitlines() if path.exists() else []


def _sleep(unit: str) -> NoReturn:
    """Wait for SIGTERM."""
    try:
        time.sleep(PATIENCE)
    except SystemExit:
        _end(unit, "stopped", "")
        raise
    sys.exit(1)


def _meet(folder: Path, others: list[str], seconds: float) -> bool:
    """Wait until all of these units have begun; return False if some do not."""
    end = time.monotonic() + seconds
    while not set(others) <= set(begun(folder)):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _end(unit: str, how: str, text: str) -> None:
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun starts
        print(
            json.dumps({"id": unit, "how": how, "text": text, "host": platform.node(), "log": ""}),
            flush=True,
        )


if __name__ == "__main__":
    main()
