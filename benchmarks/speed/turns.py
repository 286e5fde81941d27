"""Timing in turns: each turn's work is compared with the work beside it, so that a busy moment falls on both."""

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
    """What the turns gave."""

    median: float
    low: float
    high: float


def take_turns(contestants: Mapping[str, Callable[[], object]], turns: int, device: torch.device) -> list[Turn]:
    """Time the contestants one after the other, ``turns`` times, in reverse order every other time.

    They are warm already: compiled, their memory allocated, their buffers filled.
    """
    names = list(contestants)
    return [
        {name: seconds(contestants[name], device) for name in (names[::-1] if turn % 2 else names)}
        for turn in range(turns)
    ]


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock time of one call, up to when the device has finished it."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def synchronise(device: torch.device) -> None:
    """Wait for all that was asked of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: Iterable[float]) -> Spread:
    """Median, lowest, highest."""
    ordered = sorted(values)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1])


def hardware(device: torch.device) -> str:
    """The device's name, and how many threads of the CPU compute."""
    gpu = f"{devices.name(device)}; " if device.type == "cuda" else ""
    threads, cores = torch.get_num_threads(), os.cpu_count()
    return f"{gpu}{devices.processor()}; threads {threads}, cores {cores}"
