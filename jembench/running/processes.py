"""The executor ``processes``, with workers on this machine.

Each GPU has a worker or, without GPUs, each core of the CPU.
"""

import ctypes
import dataclasses
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Annotated

from jembench.catalog.validation import Range
from jembench.interfaces.running import Ended, Ending, Job, exit_reason
from jembench.running.local import Queued

DRIVER = "JEMBENCH_DRIVER"
"""Environment variable, set by jembench: the id of the process that started a worker. The worker
ends with that process.
"""

POLL = 0.05
"""Seconds between two checks of the workers."""

IDLE = 10.0
"""Seconds after which a worker without units ends, which frees its memory."""

PATIENCE = 60.0
"""Seconds that idle workers have at the end of a run to let their trackers finish."""


@dataclass(kw_only=True)
class _Worker:
    """A process that carries out batches of units."""

    process: subprocess.Popen[bytes]
    jobs: list[Job]  # units that have not ended; the first is in progress
    places: list[str]  # its GPUs; "" on the CPU
    printed: IO[bytes]  # its stdout
    log: Path  # its stderr
    read: int = 0  # number of bytes read of its stdout
    keeps_log: bool = False
    since: float = 0.0  # the time when its last unit ended

    @property
    def is_idle(self) -> bool:
        """True if the worker waits for units."""
        takes_more = self.process.stdin is not None and not self.process.stdin.closed
        return not self.jobs and takes_more and self.process.poll() is None

    def give(self, jobs: list[Job]) -> None:
        """Let the worker carry out a batch."""
        self.jobs = jobs
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the process has died, which the next check detects
            self.process.stdin.write(" ".join(job.id for job in jobs).encode() + b"\n")
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """Let the worker end after its units."""
        if self.process.stdin:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def endings(self) -> Iterator[Ended]:
        """Yield the endings printed since the last call."""
        file = self.printed.fileno()  # the worker has its own position in the file
        new = os.pread(file, os.fstat(file).st_size - self.read, self.read)
        whole = new[: new.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError, TypeError):  # a line that is no ending
                yield Ended(**json.loads(line))


@dataclass(eq=False, kw_only=True)
class Processes(Queued):
    """Several units of work at once on this machine: a worker per GPU, or per core of the CPU.

    A worker carries out one batch after the other, each a share of the waiting units, so that
    batches get smaller and all places end at about the same time.

    Args:
        jobs: the number of places; None: one per GPU, or per core of the CPU.
        per_gpu: the number of places that share a GPU.
        retries: the number of times that a unit is retried after the death of its worker.
    """

    in_process = False

    jobs: Annotated[int, Range(least=1)] | None = None
    per_gpu: Annotated[int, Range(least=1)] = 1
    retries: Annotated[int, Range(least=0)] = 2
    _workers: list[_Worker] = field(default_factory=list, init=False)
    _deaths: Counter[str] = field(default_factory=Counter, init=False)  # by the id of the unit
    _endings: list[Ended] = field(default_factory=list, init=False)  # not yet returned by ended()

    @cached_property
    def _gpus(self) -> list[str]:
        named = list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
        count = gpu_count()
        if len(named) == count:
            return named
        return list(map(str, range(count)))

    @cached_property
    def slots(self) -> int:
        """The number of places."""
        return self.jobs or len(self._gpus) * self.per_gpu or _cores()

    @cached_property
    def _free(self) -> list[str]:
        """The free places."""
        return list(itertools.islice(itertools.cycle(self._gpus or [""]), self.slots))

    def ended(self, seconds: float) -> list[Ended]:
        """Give waiting units to workers, and wait for the first ending."""
        until = time.monotonic() + seconds
        while True:
            while self._queue and (self._give() or self._start()):
                pass
            for worker in list(self._workers):
                self._check(worker)
            left = until - time.monotonic()
            if self._endings or left <= 0:
                endings, self._endings = self._endings, []
                return endings
            time.sleep(min(left, POLL))

    def cancel(self) -> None:
        """Drop queued units and ask each worker to stop."""
        self._cancelled = True
        self._stop(self._queue)
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)  # torchrun forwards it

    def close(self) -> None:
        """Let idle workers end, then kill all that are left."""
        for worker in self._workers:
            worker.dismiss()
        until = time.monotonic() + PATIENCE
        try:
            for worker in self._workers:
                if not worker.jobs:
                    left = max(0.0, until - time.monotonic())
                    with suppress(subprocess.TimeoutExpired):
                        worker.process.wait(left)
        finally:
            for worker in self._workers:
                with suppress(ProcessLookupError):
                    os.killpg(worker.process.pid, signal.SIGKILL)  # with the processes of torchrun
            for worker in list(self._workers):
                self._remove(worker)

    # --- workers ----------------------------------------------------------------------------------

    def _give(self) -> bool:
        """Give units to an idle worker, or free idle workers' GPUs."""
        idle = [worker for worker in self._workers if worker.is_idle]
        if self._queue[0].gpus > 1:
            for worker in idle:
                worker.dismiss()
        elif idle:
            idle[0].give(self._next_batch())
            return True
        return False

    def _next_batch(self) -> list[Job]:
        """Take a batch, with equally many GPUs each, off the queue."""
        gpus = self._queue[0].gpus
        size = max(1, len(self._queue) // (2 * self.slots)) if gpus == 1 else 1
        jobs = list(itertools.takewhile(lambda job: job.gpus == gpus, self._queue[:size]))
        del self._queue[: len(jobs)]
        return jobs

    def _start(self) -> bool:
        """Start a worker for the first waiting units, if places are free.

        Processes that train together get a GPU each.
        """
        gpus, most = self._queue[0].gpus, len(self._gpus[: self.slots])
        if gpus > most > 0:
            text = f"It needs {gpus} GPUs together, and this run has {most} on this machine."
            self._end(self._queue.pop(0).id, "refused", text)
            return True
        free = self._free
        if self._gpus:
            free = list(dict.fromkeys(free))  # processes of one training share no GPU
        places = free[:gpus]
        if len(places) < min(gpus, self.slots):
            return False
        for place in places:
            self._free.remove(place)
        self._workers.append(self._open_worker(self._next_batch(), places))
        return True

    def _open_worker(self, jobs: list[Job], places: list[str]) -> _Worker:
        """Start the process of a worker."""
        folder = self._driver.store / "works"
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"worker-{os.getpid()}-{time.time_ns():x}.log"
        cores = str(max(1, _cores() // self.slots))
        environment = {"OMP_NUM_THREADS": cores, **os.environ, **self._driver.environment}
        alone, stdin = jobs[0].gpus == 1, subprocess.DEVNULL
        if alone:  # otherwise torchrun is the parent
            stdin = subprocess.PIPE
            environment[DRIVER] = str(os.getpid())
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(places)
        printed = tempfile.TemporaryFile()  # noqa: SIM115
        with log.open("wb") as errors:
            process = subprocess.Popen(
                self._driver.command(jobs, more=alone),
                env=environment,
                stdin=stdin,
                stdout=printed,
                stderr=errors,
                start_new_session=True,  # Ctrl-C reaches the driver alone
            )
        return _Worker(process=process, jobs=jobs, places=places, printed=printed, log=log)

    def _check(self, worker: _Worker) -> None:
        """Record a worker's endings; queue a dead worker's remaining units again."""
        code = worker.process.poll()  # first, so that the whole output of an ended worker is read
        for ended in worker.endings():
            self._record(worker, ended)
        if code is None:
            if worker.is_idle and time.monotonic() - worker.since > IDLE:
                worker.dismiss()
            return

        # the worker has ended, perhaps before its units
        if self._cancelled:
            self._stop(worker.jobs)
        elif worker.jobs:
            first = worker.jobs[0].id
            self._deaths[first] += 1
            if self._deaths[first] > self.retries:
                worker.keeps_log = True
                text = f"its worker ended with {exit_reason(code)}, {self._deaths[first]} times"
                self._end(first, "lost", text, str(worker.log))
                del worker.jobs[0]
            self.submit(worker.jobs)
        self._remove(worker)

    def _record(self, worker: _Worker, ended: Ended) -> None:
        """Record the ending of a unit of a worker."""
        worker.jobs = [job for job in worker.jobs if job.id != ended.id]
        worker.since = time.monotonic()
        if ended.how not in ("done", "busy", "stopped"):
            worker.keeps_log = True
            ended = dataclasses.replace(ended, log=str(worker.log))
        self._endings.append(ended)
        if ended.how == "stopped":  # the worker carries out no further unit
            self._stop(worker.jobs)
            worker.dismiss()

    def _end(self, unit: str, how: Ending, text: str = "", log: str = "") -> None:
        """Record a unit that ended without a worker."""
        self._endings.append(Ended(id=unit, how=how, text=text, host=platform.node(), log=log))

    def _stop(self, jobs: list[Job]) -> None:
        """Record as stopped the units that will not be carried out."""
        for job in jobs:
            self._end(job.id, "stopped")
        jobs.clear()

    def _remove(self, worker: _Worker) -> None:
        """Wait for the end of a worker's process, and free its places."""
        worker.process.wait()
        worker.dismiss()
        worker.printed.close()
        if not worker.keeps_log:
            worker.log.unlink(missing_ok=True)
        self._free += worker.places
        self._workers.remove(worker)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """Return PyTorch's number of threads; before its import, by the environment."""
    if "torch" in sys.modules:
        import torch

        return torch.get_num_threads()
    setting = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if setting.isdecimal():
        return int(setting)
    return _cores()


def gpu_count() -> int:
    """Return the number of CUDA devices; only a driver makes it import PyTorch."""
    if "torch" not in sys.modules and not _has_driver():
        return 0
    import torch

    return torch.cuda.device_count()


def _has_driver() -> bool:
    """Return whether NVIDIA's driver can be loaded, or AMD's device exists."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return Path("/dev/kfd").exists()
