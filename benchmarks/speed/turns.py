"""Timing in turns, so that a busy moment of the machine affects all contestants."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch

from jembench.models import devices

Turn = Mapping[str, float]
"""Seconds that each contestant took."""


class Spread(NamedTuple):
    """The median and range of turns."""

    median: float
    low: float
    high: float


def take_turns(
    contestants: Mapping[str, Callable[[], object]], turns: int, device: torch.device
) -> list[Turn]:
    """Time the contestants one after the other, ``turns`` times, in reverse order every other time.

    They must be warmed up: compiled, with allocated memory and filled buffers.
    """
    names = list(contestants)
    return [
        {name: seconds(contestants[name], device) for name in (names[::-1] if turn % 2 else names)}
        for turn in range(turns)
    ]


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the wall-clock time of one call, including the work of the device."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def synchronise(device: torch.device) -> None:
    """Wait for the work of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: Iterable[float]) -> Spread:
    """Return the median, the lowest and the highest value."""
    ordered = sorted(values)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1])


def hardware(device: torch.device) -> str:
    """Return the name of the device and the number of threads."""
    gpu = f"{devices.name(device)}; " if device.type == "cuda" else ""
    threads, cores = torch.get_num_threads(), os.cpu_count()
    return f"{gpu}{devices.processor()}; threads {threads}, cores {cores}"
