"""The executor ``ray``: a remote task for each unit of work, on a Ray cluster or on a Ray of this machine alone."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from jembench.interfaces.running import Driver, Ended, Job
from jembench.plugin import Unavailable
from jembench.store.merge import merge_stores
from jembench.store.works import work_files
from jembench_ray import task

if TYPE_CHECKING:
    import numpy as np
    from ray import ObjectRef

AGAIN = 3.0
"""Seconds after which units are asked again to stop: Ray may lose it for one that is just starting."""

LOST = 30.0
"""Seconds after which Ray has lost it for good. It ends its worker then, and the unit stops as its stdin ends."""

KNOCK, GONE = 5.0, 30.0
"""Seconds between two looks at the head of the cluster, and until a run without it ends. Ray ends it after 60."""

OBJECT_STORE = 100 * 2**20
"""Bytes of memory for the object store of a Ray of our own, which needs next to none; Ray's least is 75 MiB."""

QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}


@contextmanager
def _as_raised() -> Iterator[None]:
    """Give the exception that a signal's handler raised within Ray, which makes a SystemError of it."""
    try:
        yield
    except SystemError as error:
        raise error.__cause__ or error from None


class RayExecutor:
    """Runs each unit of work as a task of Ray, which queues it, finds it a place and tries it again if that is lost.

    Args:
        address: of the cluster: ``host:port``, ``auto`` or ``local``.
        gpus: of each unit that runs a network, where the cluster has GPUs.
        cpus: cores of such a unit.
        statistics_cpus: cores of each other unit.
        retries: how many times a unit is tried again whose worker or node died.
        shared: whether all nodes see the store.
    """

    def __init__(
        self,
        address: str,
        *,
        gpus: float,
        cpus: float,
        statistics_cpus: float,
        retries: int,
        shared: Literal["auto", "yes", "no"],
    ) -> None:
        self._address = address
        self._needs = {1: {"GPU": gpus, "CPU": cpus}, 0: {"GPU": 0.0, "CPU": statistics_cpus}}
        self._retries = retries
        self._shared = {"auto": None, "yes": True, "no": False}[shared]
        self._cancelled = 0.0  # when units were first asked to stop, by time.monotonic(); 0: they were not
        self._asked = 0.0  # and when last
        self._sends_files = False  # whether a node is known that does not see the store
        self._running: dict[ObjectRef, Job] = {}
        self._contents: dict[Path, tuple[tuple[int, int], ObjectRef]] = {}  # of files that were sent: state, content
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of a Ray of our own
        self._connected = False  # by us
        self._nodes: list[Mapping[str, float]] = []  # what they have
        self._knocked = self._answered = 0.0  # when the head was looked at, and when it last answered

    @property
    def here(self) -> bool:
        """Whether a Ray was started on this machine."""
        self._connect()
        return self._folder is not None

    @property
    def gpus(self) -> bool:
        """Return whether units that run a network get GPUs."""
        self._connect()
        return self._needs[1]["GPU"] > 0

    @property
    def slots(self) -> int:
        """How many units that run a network the nodes have room for."""
        self._connect()
        needs = {name: value for name, value in self._needs[1].items() if value}
        return max(1, sum(min(int(node.get(name, 0) / value) for name, value in needs.items()) for node in self._nodes))

    # --- connecting ---------------------------------------------------------------------------------------------------

    def open(self, driver: Driver) -> None:
        """Connect to a cluster, or start Ray.

        Raises:
            Unavailable: if the cluster cannot be reached, is of another version, or has no room for a unit.
        """
        self._driver = driver
        self._connect()
        try:
            for needs in self._needs.values():
                self._check_room(needs)
        except Unavailable:
            self.close()
            raise
        self._tasks = {gpus: self._task(needs) for gpus, needs in self._needs.items()}

    def _connect(self) -> None:
        """Connect, unless that has been done, and look which nodes there are."""
        if self._nodes:
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise Unavailable(f"Ray cannot be imported ({error}). Install it: pip install jembench-ray") from error
        self._ray: Any = ray
        ray._private.worker._worker_logs_enabled = False  # it would print on stdout, for a lost node in spite of QUIET
        if not ray.is_initialized():  # by the user's own program
            self._connected = True
            address = self._address
            if address == "auto":
                address = os.environ.get("RAY_ADDRESS") or _known_cluster() or "local"
            with _own_signals():
                if address == "local":
                    self._start()
                else:
                    self._join(address)
        self._nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("GPU") for node in self._nodes):
            self._needs[1]["GPU"] = 0

    def _join(self, address: str) -> None:
        """Connect to a cluster that runs."""
        try:
            _knock(address)
            self._ray.init(address=address, **QUIET)
        except (OSError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            self._ray.shutdown()
            what = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
            raise Unavailable(
                f"The Ray cluster at {address} cannot be used: {what}. Start it (ray start --head), name another one "
                "(ray:address=host:port, or RAY_ADDRESS), install its versions of Python and Ray here, give the token "
                "of its head if it asks for one (RAY_AUTH_MODE=token with RAY_AUTH_TOKEN, or the file "
                "~/.ray/auth_token), or use this machine alone: ray:address=local."
            ) from error

    def _start(self) -> None:
        """Start a Ray that only this machine can reach, and that ends with this process."""
        from ray._private import ray_constants

        # Not where `ray start` writes: no other run is to find it. Its sockets need a short path.
        self._folder = tempfile.TemporaryDirectory(prefix="jembench-ray-", dir="/tmp", ignore_cleanup_errors=True)
        options = {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
        private = {"_temp_dir": self._folder.name, "_node_ip_address": "127.0.0.1"}
        # Ray replaces 127.0.0.1 by an address that other machines reach, but where it makes no clusters, as on macOS.
        with mock.patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False):
            try:
                self._ray.init(address="local", **options, **private, **QUIET)
            except Exception as error:  # Ray raises it so, when a busy machine is too slow for it
                raise Unavailable(
                    f"Ray cannot be started on this machine: {' '.join(str(error).split())} Try again when the machine "
                    "is less busy, or use its cores and GPUs without Ray: --jobs auto."
                ) from error

    def _check_room(self, needs: Mapping[str, float]) -> None:
        if any(all(node.get(name, 0) >= value for name, value in needs.items()) for node in self._nodes):
            return
        has = sorted({f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in self._nodes})
        raise Unavailable(
            f"A unit of work needs {needs['CPU']:g} cores and {needs['GPU']:g} GPUs, and no node of the Ray cluster "
            f"has that: there are nodes of {'; '.join(has)}. Ask for less, for example ray:cpus=1,gpus=0."
        )

    def _task(self, needs: Mapping[str, float]) -> Any:
        # A Ray worker ends with the unit that had a GPU, and frees it; others stay for the next unit.
        kept = {"max_calls": 1} if needs["GPU"] else {}
        return self._ray.remote(
            num_gpus=needs["GPU"],
            num_cpus=needs["CPU"],
            max_retries=self._retries,
            retry_exceptions=[task.Died],
            **kept,
        )(task.carry_out)

    # --- units --------------------------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[Job]) -> None:
        """Give units to Ray."""
        for job in jobs:
            self._submit(job)

    def _submit(self, job: Job) -> None:
        needs = self._needs[job.gpus]
        # The cores that Ray counts are those that the unit uses. One without a GPU must not see those of others.
        environment = {"OMP_NUM_THREADS": str(math.ceil(needs["CPU"]))}
        if not needs["GPU"]:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        unit = task.Unit(
            job=job,
            store=str(self._driver.store),
            arguments=tuple(self._driver.arguments(["-"])),
            environment=environment | dict(self._driver.environment),
            shared=self._shared,
            kept=self._connected and not needs["GPU"],
        )
        self._running[self._tasks[job.gpus].remote(unit, self._files(job) if self._sends_files else None)] = job

    def _files(self, job: Job) -> dict[str, ObjectRef]:
        """The contents of the files that a unit needs, by path."""
        return {path.as_posix(): self._content(path) for path in work_files(self._driver.store, job.text)}

    def _content(self, name: Path) -> ObjectRef:
        """What a file of the store contains, put into Ray's object store once."""
        import numpy as np

        path = self._driver.store / name
        status = path.stat()
        state = status.st_size, status.st_mtime_ns
        if self._contents.get(name, (None,))[0] != state:
            self._contents[name] = state, self._ray.put(np.fromfile(path, np.uint8))
        return self._contents[name][1]

    @_as_raised()
    def ended(self, seconds: float) -> list[Ended]:
        """Wait for the first unit to end, and return all that have.

        Raises:
            Unavailable: if the head of the cluster is gone.
        """
        self._check_head()
        if not self._running:
            time.sleep(seconds)
            return []
        if self._cancelled and time.monotonic() - self._asked > AGAIN:
            self.cancel()
        # Without fetching: results come when they are asked for.
        ready, _ = self._ray.wait(list(self._running), timeout=seconds, fetch_local=False)
        if ready:
            everything = len(self._running)
            ready, _ = self._ray.wait(list(self._running), num_returns=everything, timeout=0, fetch_local=False)
        return [ended for ref in ready if (ended := self._ending(ref, self._running.pop(ref)))]

    def _check_head(self) -> None:
        now = time.monotonic()
        if now - self._knocked < KNOCK:
            return
        self._knocked, self._answered = now, self._answered or now
        address = self._ray.get_runtime_context().gcs_address
        try:
            _knock(address)
            self._answered = now
        except OSError as error:
            if now - self._answered >= GONE:
                raise Unavailable(
                    f"The head of the Ray cluster at {address} has not answered for {GONE:g} s: it has ended, or its "
                    "machine was lost. Start the cluster again; the same command goes on from what the store has."
                ) from error

    def _ending(self, ref: ObjectRef, job: Job) -> Ended | None:
        """How a unit has ended; None if it is submitted again, with the files that it needs."""
        from ray import exceptions

        try:
            report: task.Report = self._ray.get(ref)
        except exceptions.TaskCancelledError:
            return Ended(id=job.id, how="stopped")
        except task.Died as error:
            text, host = error.cause.args  # type: ignore[attr-defined]
            return self._lost(job, f"{text}, {self._tries}", host)
        except exceptions.RayTaskError as error:
            return Ended(id=job.id, how="failed", text=" ".join(str(error.cause).split()), log=self._log(job))
        except exceptions.RayError as error:
            if self._cancelled:
                return Ended(id=job.id, how="stopped")
            return self._lost(job, " ".join(str(error).split()), "")
        if report.ended is None:
            self._sends_files = True
            self._submit(job)
            return None
        ended = report.ended
        if report.files is not None:
            ended = self._receive(ended, report.files)
        if ended.how in ("done", "busy", "stopped"):
            return ended
        return Ended(id=ended.id, how=ended.how, text=ended.text, host=ended.host, log=self._log(job))

    @property
    def _tries(self) -> str:
        return f"{self._retries + 1} times" if self._retries else "once"

    def _lost(self, job: Job, text: str, host: str) -> Ended:
        return Ended(id=job.id, how="lost", text=text, host=host, log=self._log(job))

    def _log(self, job: Job) -> str:
        log = self._driver.store / "works" / f"{job.id}.log"
        return str(log) if log.exists() else ""

    def _receive(self, ended: Ended, files: Mapping[str, np.ndarray[Any, Any]]) -> Ended:
        """Write into the store what a unit has left in one of its own."""
        with tempfile.TemporaryDirectory(prefix="jembench-") as folder:
            for name, content in files.items():
                if name.startswith("works/"):  # events and a log
                    with (self._driver.store / name).open("ab") as stream:
                        stream.write(content.tobytes())
                else:
                    task.write_file(Path(folder, name), content)
            problems = merge_stores(Path(folder), self._driver.store)
        if not problems or ended.how != "done":
            return ended
        how: Literal["busy", "failed"] = "busy" if all(problem.status == "busy" for problem in problems) else "failed"
        text = "; ".join(f"{problem.file}: {problem.reason}" for problem in problems)
        return Ended(id=ended.id, how=how, text=text, host=ended.host, log=ended.log)

    def cancel(self) -> None:
        """Drop what is queued, and ask each worker to stop."""
        self._asked = time.monotonic()
        self._cancelled = self._cancelled or self._asked
        for ref in self._running:
            self._ray.cancel(ref, force=self._asked - self._cancelled > LOST)

    def close(self) -> None:
        """End all workers, and a Ray of our own."""
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._running.clear()
        self._contents.clear()
        if self._connected:
            self._ray.shutdown()
            self._connected = False
        if self._folder:
            self._folder.cleanup()


def _known_cluster() -> str | None:
    """The address of the cluster that `ray start` has noted on this machine, if it still runs."""
    from ray._private import services

    with suppress(OSError):
        if address := services.find_bootstrap_address(None):
            _knock(address)
            return address
    return None


def _knock(address: str) -> None:
    """Fail at once if nothing listens there: Ray would try for two minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM: Ray replaces it."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
