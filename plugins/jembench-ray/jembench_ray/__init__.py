"""Ray as an executor of jembench.

Units of work run as tasks of a Ray cluster, or of a Ray on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Range, SpecError

if TYPE_CHECKING:
    from jembench_ray.executor import RayExecutor


def ray(
    *,
    address: str = "",
    gpus: Annotated[float, Range(least=0)] = 1.0,
    cpus: Annotated[float, Range(least=0.01)] = 1.0,
    retries: Annotated[int, Range(least=0)] = 2,
) -> RayExecutor:
    """Tasks of a Ray cluster: one for each unit of work.

    ``address`` is ``host:port`` of a cluster, or ``auto`` for a cluster that runs on this machine.
    The default is the cluster that RAY_ADDRESS names; without RAY_ADDRESS, as with ``local``, a Ray
    is started on this machine for the time of the run. A unit takes ``gpus`` GPUs (``0.5``: two
    units share one GPU) and ``cpus`` cores, and a unit that N processes train takes N times as
    many; on a cluster without GPUs a unit takes only cores. A unit whose worker or node died is
    tried again, up to ``retries`` times.

    Raises:
        SpecError: if an option is out of range.
    """
    from jembench_ray.executor import RayExecutor

    if "://" in address:
        raise SpecError(
            f"address of ray is {address!r}, a Ray client. Start jembench on a machine of the "
            "cluster, with host:port of its head node, such as ray:address=10.0.0.1:6379."
        )
    host, _, port = address.rpartition(":")
    is_host = host and port.isdecimal() and 0 < int(port) < 2**16
    if not is_host and address not in ("", "auto", "local"):
        raise SpecError(f"address of ray is {address!r}; it must be host:port, auto or local.")
    if gpus > 1 and gpus % 1:
        raise SpecError(f"gpus of ray is {gpus:g}; above 1 it must be a whole number.")
    return RayExecutor(address, gpus=gpus, cpus=cpus, retries=retries)
