"""Slurm as an executor of jembench: units run as jobs, by submitit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range, SpecError

if TYPE_CHECKING:
    from jembench_slurm.executor import SlurmExecutor

_DURATION = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?")  # 1d12h, 8h, 90m


def slurm(
    *,
    partition: str = "",
    gpus: Annotated[int, Range(least=0)] | None = None,
    cpus: Annotated[int, Range(least=0)] = 0,
    memory: str = "",
    time: str = "8h",
    array: Annotated[int, Range(least=1)] = 16,
    retries: Annotated[int, Range(least=0)] = 2,
    setup: str = "",
) -> SlurmExecutor:
    """Jobs of a Slurm cluster, by submitit.

    Jobs continue after a time limit or a preemption.

    Each unit of work is a job of ``partition`` with ``gpus`` GPUs (``none``: one, if the partition
    has any), ``cpus`` cores and ``memory`` (``32G``); 0 and an empty text leave the choice to the
    cluster. A unit that N processes train gets N times the GPUs and cores. At its time limit,
    ``time`` (``8h``, ``30m``, ``1d12h``), a job saves a checkpoint and is queued again. At most
    ``array`` jobs of one array run at the same time. A unit whose job died is submitted again, up
    to ``retries`` times. ``setup`` is a line of shell that a job runs first: ``module load cuda``.

    Raises:
        SpecError: if an option is out of range or has another form.
    """
    from jembench_slurm.executor import SlurmExecutor

    if not re.fullmatch(r"[\w.,:@+-]*", partition):  # it becomes a line of the batch script
        raise SpecError(
            f"partition of slurm is {partition!r}; it must be the name of a partition, or "
            "several: a,b."
        )
    if memory and not re.fullmatch(r"[1-9]\d*[KMGT]B?", memory):
        raise SpecError(
            f"memory of slurm is {memory!r}; it must be a whole number with a unit, such as 32G "
            "or 500M."
        )
    limit = minutes(time)
    parameters = {
        "partition": partition or None,
        "time": limit,
        # before the limit, to stop and to save a checkpoint
        "signal_delay_s": min(120, 15 * limit),
        "mem": memory or None,
        "setup": [setup] if setup else None,
    }
    return SlurmExecutor(parameters, gpus=gpus, cpus=cpus, array=array, retries=retries)


def minutes(time: str) -> int:
    """Return a time limit in minutes, from ``8h``, ``90m`` or ``1d12h``.

    Raises:
        SpecError: if ``time`` has another form, or is less than a minute.
    """
    match = _DURATION.fullmatch(time)
    if not match:
        days = hours = rest = 0
    else:
        days, hours, rest = (int(match[part] or 0) for part in "dhm")
    if total := (days * 24 + hours) * 60 + rest:
        return total
    raise SpecError(
        f"time of slurm is {time!r}; it must be a minute or more, such as 8h, 30m or 1d12h."
    )
