"""The executor ``ray``: a remote task for each unit of work."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import platform
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jembench.interfaces.running import Driver, Ended, Job
from jembench.plugin import Unavailable
from jembench.store.fits import WEIGHTS, weights_digest
from jembench.store.merge import merge
from jembench.store.store import Store
from jembench.store.works import LOGS
from jembench_ray import task

if TYPE_CHECKING:
    from ray import ObjectRef

AGAIN = 3.0
"""Seconds after which tasks are cancelled again: Ray may lose the request for a task that is just
starting.
"""


class RayExecutor:
    """Units of work as tasks of Ray.

    Ray queues and places the units, and repeats units of lost nodes.

    Args:
        address: of the cluster: ``host:port``, ``auto`` or ``local``; "": RAY_ADDRESS, or
            ``local``.
        gpus: of each process of a unit, where the cluster has GPUs.
        cpus: cores of each process of a unit.
        retries: how often a unit whose worker or node died is tried again.
    """

    in_process = False
    _sends_files = False  # True once a node did not reach the store

    def __init__(self, address: str, *, gpus: float, cpus: float, retries: int) -> None:
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._gpus = gpus
        self._cpus = cpus
        self._retries = retries
        self._running: dict[ObjectRef, Job] = {}
        self._refused: list[Ended] = []  # units for which no node has room
        self._is_ours = False  # True if this executor connected to Ray
        self._cancelled = 0.0  # when units were last asked to stop, by time.monotonic()

    @cached_property
    def _ray(self) -> Any:
        """Ray, connected to the cluster.

        Raises:
            Unavailable: if Ray is not installed, the cluster cannot be reached, or its
                versions differ.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        # a local Ray listens on loopback only: whoever reaches a Ray can run code
        if self._address == "local":
            # otherwise Ray replaces 127.0.0.1
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            options |= {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        try:
            import ray
        except ImportError as error:
            raise Unavailable(
                f"Ray cannot be imported ({error}). Install it: pip install jembench-ray"
            ) from error
        if ray.is_initialized():  # by the user's own program
            return ray
        try:
            if ":" in self._address:  # without an answer Ray would try for minutes
                host, _, port = self._address.rpartition(":")
                place = (host.strip("[]"), int(port))
                socket.create_connection(place, timeout=10).close()
            with _own_signals():
                ray.init(address=self._address, **options)
        except SystemExit:  # Ray's own answer to SIGTERM
            ray.shutdown()
            signal.raise_signal(signal.SIGTERM)
            raise
        # also Ray's bare Exception, when a busy machine is too slow for it
        except Exception as error:
            ray.shutdown()
            said = " ".join(str(error).split()).removesuffix(".")
            reason = said or type(error).__name__
            raise Unavailable(
                f"The Ray cluster {self._address} cannot be used: {reason}. Start it (ray start "
                "--head), name another one (ray:address=host:port, or RAY_ADDRESS), install its "
                "versions of Python and Ray here, give the token of its head if it asks for one "
                "(RAY_AUTH_MODE=token with RAY_AUTH_TOKEN, or the file ~/.ray/auth_token), or "
                "use this machine alone: ray:address=local, or --jobs auto without Ray."
            ) from error
        self._is_ours = True
        return ray

    @cached_property
    def _nodes(self) -> list[Mapping[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    @property
    def here(self) -> bool:
        """True if all nodes are this machine."""
        hosts = {node["NodeManagerHostname"] for node in self._nodes}
        return hosts == {platform.node()}

    @property
    def slots(self) -> int:
        """The number of units of one process that fit on the nodes."""
        return max(1, self._room(self._needs(1)))

    def _needs(self, processes: int) -> dict[str, float]:
        """Return the resources that a unit takes of a node."""
        has_gpus = any(node["Resources"].get("GPU") for node in self._nodes)
        # each of several processes has whole GPUs of its own
        gpus = self._gpus if processes == 1 else math.ceil(self._gpus) * processes
        needs = {"CPU": self._cpus * processes}
        return needs | {"GPU": gpus} if gpus and has_gpus else needs

    def _room(self, needs: Mapping[str, float]) -> int:
        """Return the number of units for which the nodes have room."""
        room = 0
        for node in self._nodes:
            has = node["Resources"]
            room += min(int(has.get(name, 0) / number) for name, number in needs.items())
        return room

    def open(self, driver: Driver) -> None:
        """Connect to Ray, or start it.

        Raises:
            Unavailable: if Ray cannot be reached or started.
        """
        self._driver = driver
        options = {"max_retries": self._retries, "retry_exceptions": [task.Died]}
        self._task = self._ray.remote(**options)(task.carry_out)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Give units to Ray."""
        root = self._driver.store
        for job in jobs:
            needs = self._needs(job.gpus)
            if not self._room(needs):
                what = " and ".join(f"{number:g} {name}s" for name, number in needs.items())
                text = (
                    f"No node of the Ray cluster has {what}. Ask for less, for example "
                    "ray:cpus=1,gpus=0."
                )
                ended = Ended(id=job.id, how="refused", text=text)
                self._refused.append(ended)
                continue
            environment = {"OMP_NUM_THREADS": str(math.ceil(self._cpus))}
            environment |= self._driver.environment
            if "GPU" not in needs:  # else Ray would show the unit all GPUs of the node
                environment["CUDA_VISIBLE_DEVICES"] = ""
            unit = task.Unit(
                id=job.id,
                text=job.text,
                store=str(root),
                command=self._driver.command([job]),
                environment=environment,
            )
            files = None
            if self._sends_files:
                files = task.pack(root, files_of(Store(root), job.text))
            options = {"num_cpus": needs["CPU"], "num_gpus": needs.get("GPU", 0)}
            ref = self._task.options(**options).remote(unit, files)
            self._running[ref] = job

    def ended(self, seconds: float) -> list[Ended]:
        """Wait for an ending; return all endings so far."""
        if self._refused:
            endings, self._refused = self._refused, []
            return endings
        if not self._running:
            time.sleep(seconds)
            return []
        if self._cancelled and time.monotonic() - self._cancelled > AGAIN:
            self.cancel()
        with _as_raised():
            refs = list(self._running)
            ready, _ = self._ray.wait(refs, timeout=seconds)
            if ready:  # all units that have ended, not only the first
                ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
            endings = [self._ending(ref, self._running.pop(ref)) for ref in ready]
            return [ended for ended in endings if ended]

    def _ending(self, ref: ObjectRef, job: Job) -> Ended | None:
        """Return the ending of a unit; None: submitted again with its files."""
        from ray import exceptions

        try:
            ended, left = self._ray.get(ref)
        except exceptions.RayError as error:
            if self._cancelled or isinstance(error, exceptions.TaskCancelledError):
                return Ended(id=job.id, how="stopped")
            cause = getattr(error, "cause", error)
            reason, *host = cause.args or [type(error).__name__]
            text = f"{' '.join(str(reason).split())}. The unit was tried {self._retries + 1} times."
            lost = Ended(id=job.id, how="lost", text=text, host="".join(host))
            return self._with_log(lost)
        if ended is None:
            if self._cancelled:
                return Ended(id=job.id, how="stopped")
            self._sends_files = True
            self.submit([job])
            return None
        return self._with_log(self._receive(ended, left) if left else ended)

    def _with_log(self, ended: Ended) -> Ended:
        log = self._driver.store / "works" / task.log_name(ended.id)
        if log.exists():
            return dataclasses.replace(ended, log=str(log))
        return ended

    def _receive(self, ended: Ended, left: bytes) -> Ended:
        """Merge the store that a unit has left into the run's store."""
        with tempfile.TemporaryDirectory(prefix="jembench-") as folder:
            task.unpack(left, Path(folder))
            for log in Path(folder, "works").glob(LOGS):
                shutil.copy(log, self._driver.store / "works")
            copy_caches(Path(folder), self._driver.store)
            merged = merge(Store(Path(folder)), Store(self._driver.store))
        problems = [file for file in merged if file.status in ("busy", "damaged")]
        if not problems or ended.how != "done":
            return ended
        is_busy = all(problem.status == "busy" for problem in problems)
        text = "; ".join(f"{problem.file}: {problem.reason}" for problem in problems)
        return dataclasses.replace(ended, how="busy" if is_busy else "failed", text=text)

    def cancel(self) -> None:
        """Drop what is queued, and ask each worker to stop."""
        self._cancelled = time.monotonic()
        for ref in self._running:
            self._ray.cancel(ref)

    def close(self) -> None:
        """End all workers, and the connection to Ray if it is ours."""
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._running.clear()
        if self._is_ours:
            self._ray.shutdown()
            self._is_ours = False


def files_of(store: Store, text: str) -> list[Path]:
    """Return the files of a store that a unit of work reads.

    These are the files of its fit, its cells, and those that all fits share.

    Args:
        store: the store of the run.
        text: the unit as JSON.
    """
    work = json.loads(text)
    fit = work["fit"]["id"]  # the id alone finds a file
    folders = [home := store.place("fits", f"-{fit}"), store.features]
    if (home / WEIGHTS[0]).exists():
        folders.append(store.readings_of(fit, weights_digest(home)))
    paths: list[Path] = []
    for folder in folders:
        paths += [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for cell in work["cells"]:
        paths.append(store.place("cells", f"-{cell['id']}.json"))
        paths.append(store.place("arrays", f"-{cell['id']}.npz"))
    visible = [path for path in paths if not path.name.startswith(".")]
    return [path for path in visible if path.exists()]


def copy_caches(left: Path, root: Path) -> None:
    """Copy predictions, attacks and feature networks that ``root`` lacks.

    Some units have no other result, and units without a GPU read these files, which are checked
    when they are read.
    """
    caches = [*left.glob("readings/*/*"), *left.glob("features/*/*")]
    for path in caches:
        to = root / path.relative_to(left)
        if path.is_file() and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            # a temporary name, which the next run removes if this run is killed
            new = to.with_name(f".jembench-{os.urandom(8).hex()}.tmp")
            shutil.copy(path, new)
            new.replace(to)


@contextmanager
def _as_raised() -> Iterator[None]:
    """Raise the exception of a signal's handler, not Ray's SystemError."""
    try:
        yield
    except SystemError as error:
        raise error.__cause__ or error from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
