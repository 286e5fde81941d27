"""Where jobs run. ``local`` runs them one after the other in this process; others join as plugins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


class LocalExecutor:
    """Runs jobs one after the other, and comes back to those that another process is busy with."""

    def run(self, jobs: Sequence[Callable[[], bool]]) -> None:
        """Call every job until it says True; one that says False is waiting for another process."""
        waiting = list(jobs)
        while waiting:
            busy = [job for job in waiting if not job()]
            if len(busy) == len(waiting):
                time.sleep(1)
            waiting = busy


def local() -> LocalExecutor:
    """One fit after the other, in this process."""
    return LocalExecutor()
