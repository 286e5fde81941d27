"""What only a GPU can show, in calls of a few minutes: each runs the next items of a list and notes its place in it.

    python benchmarks/gpu/run.py --minutes 9 --state gpu-state.json --data cifar10-jpeg.tar.xz
    python benchmarks/gpu/run.py --state gpu-state.json --list
    python benchmarks/gpu/run.py --state gpu-state.json --only profile,switches

The file holds the results. A page in Markdown lies beside it, and so does what the training needs to go on at another
machine. README.md says how to run it where nothing can be installed. This script needs nothing but Python itself: what
an item needs is imported in its own process.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from page import page

HERE = Path(__file__).parent
LINES = 30
"""The last lines of an item that are kept."""

ATTEMPTS = 2
"""Calls in which an item may be cut off by the minutes."""

OVERTIME = 3
"""An item is ended after this many times the seconds that it is expected to take."""

SPARE = 20.0
"""Seconds of a call that are left for ending the last item and for writing."""


class Item(NamedTuple):
    """Something to measure, in a process of its own."""

    name: str
    seconds: float  # that it is expected to take on a large GPU; of a lasting item: the least that are worth a start
    title: str
    lasting: bool = False  # goes on in every call that has time left, until it says that it is done


ITEMS = (
    Item("machine", 60, "What the machine has"),
    Item("tests", 120, "The tests that need a GPU"),
    Item("recipes", 120, "One iteration of every model and recipe, warnings as errors"),
    Item("speed-large", 180, "Sampling and JEM beside the textbook, WRN-28-10"),
    Item("speed-small", 120, "Sampling, JEM and evaluation beside the textbook, WRN-28-2"),
    Item("switches", 150, "Compilation, precision and captured chains"),
    Item("profile", 120, "Kernels, launches, gaps and synchronisations of an iteration"),
    Item("compiler", 240, "Nine networks compiled in one process: graph breaks, recompilations, memory"),
    Item("estimate", 150, "The estimate beside measured iterations"),
    Item("kill", 120, "A training that is killed and goes on"),
    Item("attacks", 90, "Attacks: gradients a second, memory, and a memory that is too small"),
    Item("cifar10", 90, "JEM on CIFAR-10 (JPEG) by the recipe fast", lasting=True),
)

State = dict[str, Any]


def main(arguments: Sequence[str] | None = None, items: Sequence[Item] = ITEMS) -> int:
    """Run the next items."""
    asked = _parser(items).parse_args(arguments)
    chosen = [item for item in items if not asked.only or item.name in asked.only.split(",")]
    if unknown := set(filter(None, asked.only.split(","))) - {item.name for item in items}:
        print(f"There is no item {', '.join(sorted(unknown))}. --list prints all.", file=sys.stderr)
        return 2
    state = _read(asked.state)
    if asked.list:
        for item in items:
            print(f"{item.name:12} {_status(state, item):8} {item.seconds:4.0f} s  {item.title}")
        return 0
    if asked.only:
        for item in chosen:
            state["items"].pop(item.name, None)
    signal.signal(signal.SIGTERM, _interrupt)
    end, tried = time.monotonic() + 60 * asked.minutes, set[str]()
    state["calls"].append({"began": time.strftime("%Y-%m-%d %H:%M:%S"), "host": platform.node(), "items": []})
    while item := _next(chosen, state, end - time.monotonic(), tried):
        tried.add(item.name)
        state["calls"][-1]["items"].append(item.name)
        before = state["items"].get(item.name, {})
        result = _run(item, asked, end - time.monotonic(), before.get("attempts", 0) + 1)
        state["items"][item.name] = result
        _write(asked.state, json.dumps(state, indent=1))
        _write(asked.state.with_suffix(".md"), page(state, items))
        if result["status"] == "stopped":
            return 130
    print(f"{_summary(state, items)}; {asked.state.with_suffix('.md')} is the page", flush=True)
    return 0


def _parser(items: Sequence[Item]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="length of this call (9)")
    parser.add_argument("--state", type=Path, default=Path("gpu-state.json"), help="results and place in the list")
    parser.add_argument(
        "--only", default="", help="run these items, again if they are done: " + ",".join(i.name for i in items)
    )
    parser.add_argument("--list", action="store_true", help="print the list and what is done")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try the script (cuda)")
    parser.add_argument("--size", choices=["full", "tiny"], default="full", help="tiny: seconds on a CPU")
    parser.add_argument("--data", type=Path, help="real images: a folder with train/ and test/, or a tar archive of it")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "jembench-gpu", help="folder that may be lost"
    )
    return parser


def _interrupt(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def _read(path: Path) -> State:
    return json.loads(path.read_text()) if path.exists() else {"schema": 1, "items": {}, "calls": []}


def _write(path: Path, text: str) -> None:
    """Whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def _status(state: State, item: Item) -> str:
    status: str = state["items"].get(item.name, {}).get("status", "to do")
    return status


def _is_pending(state: State, item: Item) -> bool:
    status, attempts = _status(state, item), state["items"].get(item.name, {}).get("attempts", 0)
    return status in ("to do", "part", "stopped") or (status == "cut off" and (item.lasting or attempts < ATTEMPTS))


def _next(items: Sequence[Item], state: State, left: float, tried: set[str]) -> Item | None:
    """The first item that is pending and fits in the seconds that are left; one that fits in no call starts a call."""
    pending = [item for item in items if _is_pending(state, item) and item.name not in tried]
    fitting = [item for item in pending if item.seconds <= left - SPARE]
    return next(iter(fitting or ([] if tried else pending)), None)


def _run(item: Item, asked: argparse.Namespace, left: float, attempt: int) -> State:
    """One item in its own process group, which is ended with all that it started."""
    folder = asked.work.absolute() / item.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "values.json").unlink(missing_ok=True)
    limit = max(1.0, left - SPARE if item.lasting else min(left - SPARE, OVERTIME * item.seconds))
    options = {"--device": asked.device, "--size": asked.size, "--folder": folder, "--seconds": f"{limit:.0f}"}
    options |= {"--kept": asked.state.absolute()} | ({"--data": asked.data.absolute()} if asked.data else {})
    command = [
        sys.executable,
        str(HERE / "measure.py"),
        item.name,
        *(str(part) for pair in options.items() for part in pair),
    ]
    print(f"== {item.name}: {item.title}; attempt {attempt}, {limit:.0f} s at most", flush=True)
    start, over = time.monotonic(), threading.Event()
    last = collections.deque[str](maxlen=LINES)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    timer = threading.Timer(limit, lambda: (over.set(), _kill(process)))
    timer.start()
    stopped = False
    assert process.stdout is not None
    try:
        for line in process.stdout:
            last.append(line.rstrip()[:300])
            print(f"   {line.rstrip()[:300]}", flush=True)
        process.wait()
    except KeyboardInterrupt:
        stopped = True
    finally:
        timer.cancel()
        _kill(process)
        process.wait()
        process.stdout.close()
    values = _values(folder / "values.json")
    status = "stopped" if stopped else _judged(process.returncode, item, limit, over.is_set(), values)
    seconds = time.monotonic() - start
    print(f"== {item.name}: {status} after {seconds:.0f} s", flush=True)
    result = {"status": status, "attempts": attempt, "seconds": round(seconds, 1), "values": values}
    return result if status in ("ok", "part") else {**result, "code": process.returncode, "last lines": list(last)}


def _judged(code: int, item: Item, limit: float, over: bool, values: Mapping[str, Any]) -> str:
    """How a process ended: cut off by the minutes, hung beyond what it was given, failed, done in part, or ok."""
    if over:
        return "cut off" if item.lasting or limit < OVERTIME * item.seconds else "hung"
    if code:
        return "failed"
    return "part" if item.lasting and not values.get("done") else "ok"


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _values(path: Path) -> State:
    return json.loads(path.read_text()) if path.exists() else {}


def _summary(state: State, items: Sequence[Item]) -> str:
    counts = collections.Counter(_status(state, item) for item in items)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


if __name__ == "__main__":
    sys.exit(main())
