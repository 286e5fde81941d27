"""Starting and joining the processes that train one model together.

The same command line runs in every process. It was started by torchrun, by Slurm's ``srun``, or by hand with
``--devices N``: then the process that is there starts the others. ``torch.distributed`` joins them.

The others are started here, not by torchrun, which puts every process, rank 0 too, into a session without the terminal;
after SIGTERM it exits with 1 and a traceback instead of 3; and when it is killed itself, its workers go on training.

Imports nothing heavy: torch is imported once there is a group to join.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from jembench.errors import ProcessLost, SpecError, Unavailable
from jembench.stopping import Stopped

if TYPE_CHECKING:
    import torch

    from jembench.training.processes import ProcessGroup

RANK = "JEMBENCH_RANK"
"""The environment variable by which a process that was started here knows which it is."""

GRACE = 10.0
"""Seconds in which a process may find out by itself that another one has gone, before it is ended."""


class Placement(NamedTuple):
    """Which of how many processes this one is, and who has started them."""

    rank: int = 0
    size: int = 1
    nodes: int = 1
    launcher: Literal["", "jembench", "torchrun", "slurm"] = ""

    @property
    def started(self) -> bool:
        """Whether all processes are there already: they wait for one another even if there is nothing to do."""
        return self.launcher != ""


class Joined(NamedTuple):
    """The group, and the device of this process."""

    group: ProcessGroup
    device: torch.device


def placement(devices: int | None, environment: Mapping[str, str] = os.environ) -> Placement:
    """Where this process stands.

    Args:
        devices: how many processes there are to be; None: as many as a launcher has started. With 1, each process of a
            launcher works on its own.
        environment: what launchers tell.

    Raises:
        SpecError: if a launcher has started another number.
    """
    found = _launched(devices, environment)
    if devices == 1 or found is None:
        return Placement(size=devices or 1)
    if devices not in (None, found.size):
        raise SpecError(
            f"--devices is {devices}, but {found.launcher} has started {found.size} processes. Leave --devices out, or "
            "give both the same number."
        )
    if found.size % found.nodes or (found.launcher == "slurm" and "SLURM_NTASKS_PER_NODE" not in environment):
        raise SpecError(
            f"{found.launcher} has started {found.size} processes on {found.nodes} machines. Start the same number on "
            "each: torchrun --nproc-per-node N, srun --ntasks-per-node N."
        )
    return found if found.size > 1 else Placement()


def _launched(devices: int | None, environment: Mapping[str, str]) -> Placement | None:
    """What a launcher says, if there is one. An allocation of Slurm's without ``srun`` is none."""

    def number(name: str, default: int = 1) -> int:
        text = environment.get(name) or str(default)
        if not text.isdecimal() or len(text) > 9:
            raise SpecError(
                f"The environment variable {name} is {text[:40]!r}; launchers set it to a whole number. Unset it, "
                "or start the processes with torchrun, srun or --devices."
            )
        return int(text)

    if environment.get(RANK):
        return Placement(number(RANK), devices or 1, 1, "jembench")
    if "TORCHELASTIC_RUN_ID" in environment:
        found = Placement(number("RANK", 0), number("WORLD_SIZE"), number("GROUP_WORLD_SIZE"), "torchrun")
    elif number("SLURM_STEP_NUM_TASKS") > 1 and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        found = Placement(number("SLURM_PROCID", 0), number("SLURM_STEP_NUM_TASKS"), number("SLURM_NNODES"), "slurm")
    else:
        return None
    if found.rank >= found.size or not found.nodes:
        raise SpecError(
            f"The environment says that {found.launcher} has started process {found.rank} of {found.size} on "
            f"{found.nodes} machines, which cannot be. Unset its variables, or start the processes with it."
        )
    return found


@contextmanager
def joined(place: Placement, device: str, arguments: Sequence[str]) -> Iterator[Joined]:
    """Join the group for the duration of the context. A process that no launcher started starts the others.

    Args:
        place: where this process stands.
        device: what ``--device`` says: in a group a kind of device, of which every process has its own.
        arguments: the command line to be repeated, without the program.

    Raises:
        Unavailable: if a device is missing.
        SpecError: if the device is one for all.
        ProcessLost: if a process has gone.
    """
    found = check(place, device)
    if place.size == 1:
        from jembench.training.processes import SINGLE

        yield Joined(SINGLE, found)
        return
    with _process_kept(), _other_processes(place, arguments):
        own = _join(place, found.type)
        from jembench.training.processes import DistributedGroup

        group = DistributedGroup()
        try:
            yield Joined(group, own)
        except ProcessLost:
            raise
        except (Exception, Stopped):
            if place.rank == 0:
                group.leave()
            raise
        group.leave()


def check(place: Placement, device: str) -> torch.device:
    """Find out whether the processes can have what they need, before any is started.

    Returns:
        the device; in a group, of what kind each process has one.

    Raises:
        Unavailable: if a device is missing.
        SpecError: if there is no such device, or it is one for all.
    """
    from jembench.models import devices

    found = devices.resolve(device)
    if place.size > 1:
        _check_kind(device, found, place)
    return found


def _check_kind(device: str, found: torch.device, place: Placement) -> None:
    """Whether there is one of the kind for each process."""
    import torch

    if ":" in device or found.type not in ("cpu", "cuda"):
        raise SpecError(
            f"--device is {device}, and --devices asks for {place.size} of a kind. Write --device cuda or --device cpu."
        )
    here = place.size // place.nodes
    if found.type == "cuda" and torch.cuda.device_count() < here:
        raise Unavailable(
            f"{here} processes need a GPU each, and torch {torch.__version__} finds {torch.cuda.device_count()} that "
            "each of them can use. Take fewer with --devices, or let every process see all GPUs of its machine."
        )


@contextmanager
def _process_kept() -> Iterator[None]:
    """Joining a group sets environment variables and the number of threads: afterwards both are as before."""
    import torch

    environment, threads = dict(os.environ), torch.get_num_threads()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)


def _join(place: Placement, kind: str) -> torch.device:
    """Find the others; gives the device of this process. The CPU's cores are shared out among the processes."""
    import torch
    import torch.distributed as dist

    here = place.size // place.nodes
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // here))
    backend, own, bound = "gloo", torch.device(kind), None
    if kind == "cuda":
        number = {"torchrun": "LOCAL_RANK", "slurm": "SLURM_LOCALID"}.get(place.launcher, RANK)
        backend, own = "nccl", torch.device(kind, int(os.environ.get(number, "0")))
        bound = own
        torch.cuda.set_device(own)
    try:
        if place.launcher == "slurm":
            os.environ.update(slurm_address(os.environ) | os.environ)
        dist.init_process_group(backend, rank=place.rank, world_size=place.size, device_id=bound)
    except (RuntimeError, ValueError) as error:
        raise ProcessLost(
            f"The {place.size} processes that are to train together have not found one another ({error})."
        ) from error
    return own


def slurm_address(environment: Mapping[str, str]) -> dict[str, str]:
    """Where the processes that ``srun`` has started find the first: on its first node, at a port given by the job.

    Lists of nodes look like ``gpu[03-05,9],big1``.
    """
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "127.0.0.1")
    first = re.sub(r"\[(\d+)[^]]*\]", r"\1", nodes).partition(",")[0]
    return {"MASTER_ADDR": first, "MASTER_PORT": str(15000 + int(environment.get("SLURM_JOB_ID", "0")[-4:]))}


@contextmanager
def _other_processes(place: Placement, arguments: Sequence[str]) -> Iterator[None]:
    """Start the other processes unless a launcher has, and end all of them when one ends.

    An external launcher ends its processes itself.
    """
    if place.launcher == "jembench":
        threading.Thread(target=_end_with_the_first, daemon=True).start()
    if place.started:
        yield
        return
    os.environ.update(_address())
    others = [_start(rank, arguments) for rank in range(1, place.size)]
    ended = threading.Event()
    for process in others:
        threading.Thread(target=_end_with, args=(process, ended), daemon=True).start()
    try:
        yield
        for process in others:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
    finally:
        ended.set()
        for process in others:
            process.kill()
            process.communicate()


def _address() -> dict[str, str]:
    """The environment variables by which the processes of this machine find the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def _start(rank: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Another process of the same command. An interrupt from the keyboard reaches the first process alone."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "jembench", *arguments],
        env={**os.environ, RANK: str(rank)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end_with(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    """End the first process when another one has gone and it has not noticed: it may wait for it in a driver."""
    process.wait()
    if not ended.wait(GRACE):
        print(
            "Error: A process that trained with this one has ended too early. The same command goes on from the last "
            "checkpoint.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(ProcessLost.exit_code)


def _end_with_the_first() -> None:
    """End when the first process does, however it does: it holds the other end of stdin, and never writes to it."""
    os.read(0, 1)
    os._exit(ProcessLost.exit_code)
