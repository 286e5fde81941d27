"""Measure what only a GPU can show, item by item, in calls of a few minutes.

    python benchmarks/gpu/run.py --minutes 9 --data cifar10-jpeg
    python benchmarks/gpu/run.py --only cudnn,paper
    python benchmarks/gpu/run.py --device cpu --size tiny

Each item runs in a process of its own and is stopped at its limit. Each measurement is a line of
``results.jsonl`` in the output folder as soon as it is made. A later call runs the items that are
not done; the training of the speedrun goes on from its checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
import timed
import torch
import trained
from place import Place

ITEMS: dict[str, tuple[Callable[[Place], None], float]] = {
    "machine": (timed.machine, 20),
    "tests": (timed.tests, 80),
    "recount": (trained.recount, 140),
    "speedrun": (trained.speedrun, 260),
    "cudnn": (timed.cudnn, 50),
    "iteration": (timed.iteration, 170),
    "paper": (timed.paper, 40),
    "profile": (timed.profile, 90),
    "estimate": (timed.estimate, 120),
    "compute": (timed.compute, 200),
    "attacks": (timed.attacks, 120),
    "recipes": (timed.recipes, 120),
    "speed": (timed.speed, 300),
}
"""Each item, and its limit in seconds.

Those up to ``paper`` take at most 13 minutes together, and the others what is left.
"""

GRACE = 5.0
"""Seconds in which the processes of an item that is stopped may end by themselves."""


def is_done(out: Path, item: str) -> bool:
    """Return whether the results have the end of an item."""
    return "done" in _ends(out, item)


def _ends(out: Path, item: str) -> list[str]:
    """Return how the calls of an item ended so far."""
    results = out / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row["ended"] for row in rows if row["item"] == item and "ended" in row]


def carry_out(command: list[str], seconds: float) -> str:
    """Run an item, stop it and all that it has started at its limit, and return how it ended."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return "out of time"
    finally:
        _stop(process)
    return "done" if code == 0 else f"exit code {code}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the processes of an item: on a GPU that they hold, the next item would be slower."""
    end = time.monotonic() + GRACE
    with suppress(ProcessLookupError):  # none is left
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@click.command(help=__doc__)
@click.option("--minutes", default=9.0, show_default=True, help="Length of this call.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("gpu"),
    show_default=True,
    help="Output folder.",
)
@click.option("--only", default="", help=f"Run these items again: {','.join(ITEMS)}.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--size", type=click.Choice(["full", "tiny"]), default="full", show_default=True)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Real images.",
)
@click.option("--item", type=click.Choice(list(ITEMS)), hidden=True, help="Run it in this process.")
def main(
    minutes: float,
    out: Path,
    only: str,
    device: str,
    size: str,
    data: Path | None,
    item: str | None,
) -> None:
    """Run the items that are not done, each in a process of its own."""
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    place = Place(
        device=torch.device(device),
        tiny=size == "tiny",
        out=out,
        data=data and data.absolute(),
        seconds=60 * minutes,
    )
    if item:
        ITEMS[item][0](place)
        return
    end = time.monotonic() + 60 * minutes
    undone = [name for name in ITEMS if not is_done(out, name)]
    untried_first = sorted(undone, key=lambda name: bool(_ends(out, name)))
    for name in only.split(",") if only else untried_first:
        left, limit = end - time.monotonic(), ITEMS[name][1]
        if left < min(limit, 60 * minutes) and not only:
            continue  # a shorter one may fit
        seconds = min(limit, left)
        command = [sys.executable, __file__, "--item", name, "--out", str(out), "--device", device]
        command += ["--size", size, "--minutes", str(seconds / 60)]
        command += ["--data", str(data)] if data else []
        began = time.monotonic()
        ended = carry_out(command, seconds)
        place.note(name, ended=ended, took=time.monotonic() - began)


if __name__ == "__main__":
    main()
