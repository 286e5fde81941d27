"""The executor ``local``: one unit of work after the other, in this process."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

from jembench.interfaces.running import Driver, Ended, Job


class LocalExecutor:
    """Carries units out one after the other, in this process."""

    slots = 1
    here = True

    def __init__(self) -> None:
        self._queue: list[tuple[int, Job]] = []
        self._dropped: list[Ended] = []

    def open(self, driver: Driver) -> None:
        """Remember how a unit is carried out."""
        self._driver = driver

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue units."""
        for job in jobs:
            heapq.heappush(self._queue, (job.order, job))

    def ended(self, seconds: float) -> list[Ended]:
        """Carry out the next unit; without one, wait."""
        if self._dropped:
            dropped, self._dropped = self._dropped, []
            return dropped
        if not self._queue:
            time.sleep(seconds)
            return []
        return [self._driver.carry_out(heapq.heappop(self._queue)[1])]

    def cancel(self) -> None:
        """Drop what is queued."""
        self._dropped = [Ended(id=job.id, how="stopped") for _, job in sorted(self._queue, key=lambda pair: pair[0])]
        self._queue.clear()

    def close(self) -> None:
        """Leave nothing."""


def local() -> LocalExecutor:
    """Carry out one unit of work after the other, in this process."""
    return LocalExecutor()
