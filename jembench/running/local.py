"""The executor ``local``: units of work one by one, in this process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from jembench.interfaces.running import Driver, Ended, Job


@dataclass(eq=False, kw_only=True)
class Queued:
    """An executor's queue of units, sorted by their order."""

    here = True
    _queue: list[Job] = field(default_factory=list, init=False)
    _cancelled: bool = field(default=False, init=False)

    def open(self, driver: Driver) -> None:
        """Keep the run's driver; start no worker yet."""
        self._driver = driver

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue units."""
        self._queue.extend(jobs)
        self._queue.sort(key=lambda job: job.order)


@dataclass(eq=False, kw_only=True)
class LocalExecutor(Queued):
    """One unit of work after the other, in this process."""

    slots = 1
    in_process = True

    def ended(self, seconds: float) -> list[Ended]:
        """Carry out the next unit, or wait if there is none."""
        if not self._queue:
            time.sleep(seconds)
            return []
        job = self._queue.pop(0)
        if self._cancelled:
            return [Ended(id=job.id, how="stopped")]
        return [self._driver.carry_out(job)]

    def cancel(self) -> None:
        """Drop queued units."""
        self._cancelled = True

    def close(self) -> None:
        """Do nothing, since no worker was started."""
