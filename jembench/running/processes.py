"""The executor ``processes``: workers on this machine, one for each GPU, or the cores of the CPU shared out."""

from __future__ import annotations

import dataclasses
import heapq
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple

from jembench.errors import SpecError
from jembench.interfaces.running import Driver, Ended, Job

GRACE = 10.0
"""Seconds in which a worker that has nothing to do may end by itself."""


class _Place(NamedTuple):
    """Where a worker runs."""

    number: int
    gpu: str | None  # what CUDA calls it; "": none of this machine's; None: the machine has none


@dataclass(kw_only=True)
class _Worker:
    """A process that carries out one unit after the other."""

    place: _Place
    process: subprocess.Popen[str]
    log: Path
    job: Job | None = None
    leaving: bool = False  # it was stopped, and gets no other unit


class Processes:
    """Starts workers on this machine, and gives each the next unit when it has ended one.

    Args:
        jobs: the number of workers; None: one for each GPU, or for each core of the CPU.
        per_gpu: the workers that share a GPU.
        retries: how many times a unit is tried again whose worker died.
    """

    here = True

    def __init__(self, jobs: int | None, per_gpu: int, retries: int) -> None:
        self._jobs = jobs
        self._per_gpu = per_gpu
        self._retries = retries
        self._queue: list[tuple[int, Job]] = []
        self._workers: dict[_Place, _Worker] = {}
        self._lines: queue.SimpleQueue[tuple[_Worker, str]] = queue.SimpleQueue()
        self._died: dict[str, int] = defaultdict(int)  # by the id of the unit
        self._endings: list[Ended] = []  # of units that never began
        self._kept: set[Path] = set()  # logs of failures
        self._cancelled = False

    @cached_property
    def _gpus(self) -> list[str]:
        import torch

        named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        count = torch.cuda.device_count()
        return named if len(named) == count else [str(number) for number in range(count)]

    @cached_property
    def slots(self) -> int:
        """The number of workers."""
        return self._jobs or len(self._gpus) * self._per_gpu or _cores()

    @property
    def gpus(self) -> bool:
        """Whether there are GPUs to share out."""
        return bool(self._gpus)

    @cached_property
    def _places(self) -> dict[int, list[_Place]]:
        """The places by the GPUs that a unit needs there: units for the CPU have workers of their own."""
        if not self._gpus:
            everywhere = [_Place(number, None) for number in range(self.slots)]
            return {0: everywhere, 1: everywhere}
        with_gpu = [_Place(number, self._gpus[number % len(self._gpus)]) for number in range(self.slots)]
        return {0: [_Place(self.slots + number, "") for number in range(self.slots)], 1: with_gpu}

    def open(self, driver: Driver) -> None:
        """Make the command of a worker; none is started yet."""
        self._driver = driver
        self._command = [sys.executable, "-P", "-m", "jembench", *driver.arguments(["-"])]

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue units."""
        for job in jobs:
            heapq.heappush(self._queue, (job.order, job))

    def ended(self, seconds: float) -> list[Ended]:
        """Give waiting units to free workers, and wait for the first one to end."""
        self._assign()
        found, self._endings = self._endings, []
        while not found:
            try:
                worker, line = self._lines.get(timeout=seconds)
            except queue.Empty:
                return []
            found = self._hear(worker, line)
            self._assign()
            seconds = 0.0
        return found

    def cancel(self) -> None:
        """Drop what is queued and ask each worker to stop."""
        self._cancelled = True
        self._endings += [Ended(id=job.id, how="stopped") for _, job in self._queue]
        self._queue.clear()
        for worker in self._workers.values():
            if worker.job:
                worker.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End all workers: those at work at once, the others by themselves."""
        for worker in self._workers.values():
            if worker.job:
                worker.process.kill()
            with suppress(OSError):
                _stdin(worker).close()
        for worker in self._workers.values():
            try:
                worker.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.log not in self._kept:
                worker.log.unlink(missing_ok=True)
        self._workers.clear()

    # --- workers ------------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Give the first units to free places; units behind one that has none may have another kind of place."""
        later = []
        while self._queue:
            order, job = heapq.heappop(self._queue)
            place = next((place for place in self._places[job.gpus] if not self._is_busy(place)), None)
            if place is None:
                later.append((order, job))
                if not self._gpus:
                    break
            else:
                self._give(place, job)
        for waiting in later:
            heapq.heappush(self._queue, waiting)

    def _is_busy(self, place: _Place) -> bool:
        worker = self._workers.get(place)
        return worker is not None and (worker.job is not None or worker.leaving)

    def _give(self, place: _Place, job: Job) -> None:
        if place not in self._workers:
            self._workers[place] = self._start(place)
        worker = self._workers[place]
        worker.job = job
        with suppress(OSError):  # it has died, which its stdout tells
            stdin = _stdin(worker)
            stdin.write(f"{job.id}\n")
            stdin.flush()

    def _start(self, place: _Place) -> _Worker:
        folder = self._driver.store / "works"
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"worker-{os.getpid()}-{place.number}.log"
        threads = str(max(1, _cores() // self.slots))
        environment = {"OMP_NUM_THREADS": threads, **os.environ, **self._driver.environment}
        if place.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = place.gpu
        with log.open("a") as errors:
            process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the driver alone
            )
        worker = _Worker(place=place, process=process, log=log)
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        return worker

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout
        with worker.process.stdout as lines:
            for line in lines:
                self._lines.put((worker, line))
        self._lines.put((worker, ""))

    def _hear(self, worker: _Worker, line: str) -> list[Ended]:
        """What a line of a worker says; "" is the end of its stdout."""
        if not line:
            return self._bury(worker)
        try:
            ended = Ended(**json.loads(line))
        except (ValueError, TypeError):  # printed by something else
            return []
        worker.job, worker.leaving = None, ended.how == "stopped"
        if ended.how in ("done", "busy", "stopped"):
            return [ended]
        self._kept.add(worker.log)
        return [dataclasses.replace(ended, log=str(worker.log))]

    def _bury(self, worker: _Worker) -> list[Ended]:
        """Take in that a worker has ended: its unit is tried again."""
        code, job = worker.process.wait(), worker.job
        if self._workers.get(worker.place) is worker:
            del self._workers[worker.place]
        _stdin(worker).close()
        if job is None:
            worker.log.unlink(missing_ok=True)
            return []
        if self._cancelled:  # before it could say so
            return [Ended(id=job.id, how="stopped", host=platform.node())]
        self._died[job.id] += 1
        if self._died[job.id] <= self._retries:
            self.submit([job])
            return []
        self._kept.add(worker.log)
        text = f"its worker ended with exit code {code}, {self._died[job.id]} times"
        return [Ended(id=job.id, how="lost", text=text, host=platform.node(), log=str(worker.log))]


def _stdin(worker: _Worker) -> IO[str]:
    assert worker.process.stdin
    return worker.process.stdin


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(*, jobs: int | None = None, per_gpu: int = 1, retries: int = 2) -> Processes:
    """Several units of work at once on this machine: one for each GPU, or for each core of the CPU."""
    if (jobs is not None and jobs < 1) or per_gpu < 1 or retries < 0:
        raise SpecError(
            f"processes has jobs={jobs}, per_gpu={per_gpu} and retries={retries}; jobs and per_gpu must be at least 1, "
            "retries at least 0."
        )
    return Processes(jobs, per_gpu, retries)
