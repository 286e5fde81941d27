"""A Slurm job: a worker, and its clean stop at submitit's signal.

It is pickled as plain data.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from submitit.helpers import DelayedSubmission

_LIBC = ctypes.CDLL(None)

_TIME_IS_UP = {signal.SIGUSR1, signal.SIGUSR2}
"""The signals of the time limit. Slurm sends one to every process of a job, which would end a
worker at once: it handles neither.
"""


def _end_with_parent() -> None:
    """Have this process stopped when its parent dies.

    Not all clusters find a process without its parent.
    """
    _LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@dataclass
class UnitJob:
    """A unit of work as a job of Slurm.

    A call runs a worker and returns the fields of the :class:`jembench.interfaces.running.Ended`
    that the worker printed, or its exit code if it died.
    """

    command: Sequence[str]
    environment: Mapping[str, str]

    def __post_init__(self) -> None:
        self._thread: threading.Thread | None = None

    def __call__(self) -> dict[str, Any] | int:
        """Run the worker to its end."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _TIME_IS_UP)  # the worker inherits the mask
        command = [sys.executable, *self.command[1:]]
        environment = {**os.environ, **self.environment}
        self._worker = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            preexec_fn=_end_with_parent,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TIME_IS_UP)
        self._thread.join()  # this thread answers signals
        return self._ended or self._worker.returncode

    def _listen(self) -> None:
        self._ended: dict[str, Any] = {}
        for line in self._worker.communicate()[0].splitlines():
            with suppress(ValueError):  # printed by something else
                self._ended = json.loads(line)

    def checkpoint(self) -> DelayedSubmission:
        """Stop the worker, which saves its state, to be queued again."""
        if self._thread:
            self._worker.terminate()
            self._thread.join()
        return DelayedSubmission(UnitJob(self.command, self.environment))
