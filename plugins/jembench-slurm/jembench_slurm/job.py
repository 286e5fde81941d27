"""What runs in a job of Slurm: a worker, and its clean stop at the signal of submitit. It is pickled as plain data."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from submitit.helpers import DelayedSubmission

_TIME_IS_UP = {signal.SIGUSR1, signal.SIGUSR2}
"""Slurm sends it to every process of a job; a worker, which does not expect it, would end at once."""


@dataclass
class Units:
    """Units of work that one job carries out, one after the other.

    Called, it starts a worker and returns a dictionary: in ``ended`` a record for each unit that has ended (the fields
    of :class:`jembench.interfaces.running.Ended`), ``host``, and the exit ``code`` of the worker.
    """

    arguments: list[str]  # of ``python -m jembench``, for a worker that reads ids from stdin
    environment: dict[str, str]
    ids: list[str]
    ended: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread: threading.Thread | None = None

    def __call__(self) -> dict[str, Any]:
        signal.pthread_sigmask(signal.SIG_BLOCK, _TIME_IS_UP)  # the worker inherits it
        self._worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "jembench", *self.arguments],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._thread = threading.Thread(target=self._feed)  # the main thread waits for signals
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TIME_IS_UP)
        self._thread.join()
        return {"ended": self.ended, "host": socket.gethostname(), "code": self._worker.wait()}

    def checkpoint(self) -> DelayedSubmission:
        """Stop the worker, which saves how far it is. What is left runs when submitit has queued the job again."""
        if self._thread:
            self._worker.terminate()
            self._thread.join()
        ended = [record for record in self.ended if record["how"] != "stopped"]
        left = [one for one in self.ids if one not in {record["id"] for record in ended}]
        return DelayedSubmission(Units(self.arguments, self.environment, left, ended))

    def _feed(self) -> None:
        """Give the worker one id after the other. No line after an id means that it died."""
        with suppress(BrokenPipeError), self._worker as worker:
            for one in self.ids:
                print(one, file=worker.stdin, flush=True)
                if not (line := worker.stdout.readline()):
                    return
                self.ended.append(json.loads(line))
                if self.ended[-1]["how"] == "stopped":
                    return
