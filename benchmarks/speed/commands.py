"""The time of a command by several installations of jembench, which alternate in one run.

    python benchmarks/speed/commands.py -p old/bin/jembench -p new/bin/jembench -- run hybrid

Prints CPU seconds of all processes of the command, wall time, and wall time by the rate of float32
products, which is measured before each command: the last one compares machines if nothing else
runs.
"""

from __future__ import annotations

import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
import rate
import torch
from turns import Spread, seconds, spread

CPU = torch.device("cpu")


class Cost(NamedTuple):
    """The cost of one command."""

    cpu: float  # seconds of all its processes
    wall: float  # seconds
    products: float  # GFLOP of products in the wall time, by one core


@click.command()
@click.option(
    "--program",
    "-p",
    "programs",
    multiple=True,
    required=True,
    type=click.Path(exists=True),
    help="Repeatable.",
)
@click.option("--turns", default=3, show_default=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(programs: tuple[str, ...], turns: int, arguments: tuple[str, ...]) -> None:
    """Print what a command with ARGUMENTS costs by each program, in an empty folder each time."""
    torch.set_num_threads(1)
    product = rate.matrix_product(torch.float32, CPU)

    costs: dict[str, list[Cost]] = {program: [] for program in programs}
    for turn in range(turns):
        for program in programs[::-1] if turn % 2 else programs:
            speed = product.operations / seconds(product.multiply, CPU) / 1e9
            command = [str(Path(program).absolute()), *arguments]  # it runs in another folder
            costs[program].append(_cost(command, speed))
    for program, measured in costs.items():
        spreads = Cost(*map(spread, zip(*measured, strict=True)))
        texts = [f"{name} {_text(value)}" for name, value in spreads._asdict().items()]
        click.echo(f"{program}: {', '.join(texts)}")


def _cost(command: list[str], speed: float) -> Cost:
    """Run a command, and return what it costs; ``speed`` is in GFLOP/s."""
    before, start = _cpu_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    wall = time.perf_counter() - start
    return Cost(_cpu_seconds() - before, wall, wall * speed)


def _cpu_seconds() -> float:
    """Return the CPU seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _text(value: Spread) -> str:
    return f"{value.median:.1f} ({value.low:.1f} to {value.high:.1f})"


if __name__ == "__main__":
    main()
