"""Slurm as an executor of jembench: units of work run as jobs of a cluster, by submitit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range, SpecError

if TYPE_CHECKING:
    from jembench_slurm.executor import SlurmExecutor

_DURATION = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?")  # 1d12h, 8h, 90m
_CLOCK = re.compile(r"(?:(?P<d>\d+)-)?(?P<h>\d+):(?P<m>\d\d):\d\d")  # as Slurm writes it: 1-12:00:00, 08:00:00

NotNegative = Annotated[int, Range(least=0)]
AtLeast1 = Annotated[int, Range(least=1)]


def slurm(
    *,
    partition: str = "",
    cpu_partition: str = "",
    gpus: str = "auto",
    cpus: NotNegative = 0,
    memory: str = "",
    time: str = "8h",
    array: AtLeast1 = 16,
    pack: AtLeast1 = 1,
    retries: NotNegative = 2,
    setup: str = "",
) -> SlurmExecutor:
    """Jobs of a Slurm cluster, by submitit: arrays, which continue after a time limit or a preemption.

    Units of work that run a network go to ``partition`` with ``gpus`` GPUs each (``auto``: one, if the partition has
    any); all others go without a GPU to ``cpu_partition``, by default the same one. A job has ``cpus`` cores and
    ``memory`` (``32G``); 0 and the empty text leave that to the cluster. At its time limit, ``time`` (``8h``, ``30m``,
    ``1-12:00:00``), it saves a checkpoint and is queued again. At most ``array`` jobs of one array run at the same
    time. If there are more units than that, up to ``pack`` of them share a job, one after the other. A unit whose job
    died is submitted again, up to ``retries`` times. ``setup`` is a line of shell that a job runs first: ``module load
    cuda``.

    Raises:
        SpecError: if an option is out of range or not of that form.
    """
    from jembench_slurm.executor import SlurmExecutor

    if gpus != "auto" and not gpus.isdecimal():
        raise SpecError(f"gpus of slurm is {gpus!r}; it must be auto, or a whole number of at least 0.")
    if memory and not re.fullmatch(r"[1-9]\d*[KMGT]B?", memory):
        raise SpecError(f"memory of slurm is {memory!r}; it must be a whole number with a unit, such as 32G or 500M.")
    limit = minutes(time)
    common = {
        "time": limit,
        "signal_delay_s": min(120, 15 * limit),  # before the limit, to stop and to save a checkpoint
        "cpus_per_task": cpus or None,
        "srun_args": ["--cpus-per-task", str(cpus)] if cpus else None,  # Slurm 22.05 does not take it from the job
        "mem": memory or None,
        "setup": [setup] if setup else None,
    }
    networks = {**common, "partition": partition or None}
    others = {**common, "partition": cpu_partition or partition or None}
    return SlurmExecutor(networks, others, gpus=gpus, array=array, pack=pack, retries=retries)


def minutes(time: str) -> int:
    """A time limit in minutes, from ``8h``, ``1d12h`` or Slurm's ``1-12:00:00``; seconds are left out.

    Raises:
        SpecError: if it has another form, or is less than a minute.
    """
    match = _DURATION.fullmatch(time) or _CLOCK.fullmatch(time)
    days, hours, rest = (int(match[part] or 0) for part in "dhm") if match else (0, 0, 0)
    if total := (days * 24 + hours) * 60 + rest:
        return total
    raise SpecError(f"time of slurm is {time!r}; it must be a minute or more, such as 8h, 30m, 1d12h or 1-12:00:00.")
