"""Processes that train one model together, started by ``torchrun``.

Every process holds the whole model, sampler and order of the data, and computes its part of each
batch and of the chains. The ends of all chains are gathered, gradients and running statistics are
averaged, and so the state stays the same in every process, bit for bit. Only rank 0 reads and
writes files, and runs the guard; the other processes repeat the calls of rank 0 on their own
trainers.

Imports torch only inside functions: a command determines its rank before it needs torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from jembench.errors import ProcessLost, error_text

if TYPE_CHECKING:
    import torch
    from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT = timedelta(days=365)
"""The longest wait for rank 0, which measures between two trainings. If a process fails, torchrun
ends the others.
"""


@dataclass(frozen=True)
class Group:
    """The processes that train one model.

    By default the group is this process alone, and its methods have no effect.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on this machine

    def cut(self, values: T) -> T:
        """Return this process's rows of every tensor."""
        if self.size == 1:
            return values

        def own(x: Tensor) -> Tensor:
            begin = self.rank * len(x) // self.size
            end = (self.rank + 1) * len(x) // self.size
            return x[begin:end]

        return _map(own, values)

    def gather(self, values: T) -> T:
        """Join each tensor in ``values`` with those of other processes, by rank."""
        if self.size == 1:
            return values
        import torch
        from torch import distributed

        def joined(x: Tensor) -> Tensor:
            x = x.contiguous()
            parts = [torch.empty_like(x) for _ in range(self.size)]
            distributed.all_gather(parts, x)
            return torch.cat(parts)

        return _map(joined, values)

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, in one all-reduce."""
        if self.size == 1 or not tensors:
            return
        import torch
        from torch import distributed

        with torch.no_grad():
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            distributed.all_reduce(flat)
            means = torch.split(flat / self.size, [tensor.numel() for tensor in tensors])
            shaped = [mean.view_as(x) for mean, x in zip(means, tensors, strict=True)]
            torch._foreach_copy_(list(tensors), shaped)

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0.

        In the other processes the value's tensors are on the CPU.

        Raises:
            ProcessLost: if another process has ended.
        """
        if self.size == 1:
            return value
        from torch import device, distributed

        values = [_map(lambda x: x.detach().cpu(), value)]
        with self._together():
            distributed.broadcast_object_list(values, device=device("cpu"))
        return value if self.rank == 0 else values[0]

    def call(self, method: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a method of the trainer in every process.

        Rank 0 calls it, while the other processes :meth:`follow`.

        Raises:
            ProcessLost: if the call fails in one of several processes.
        """
        if self.size == 1:
            return method(*arguments, **options)
        self.broadcast((method.__name__, arguments, options))
        with self._together():
            return method(*arguments, **options)

    def follow(self, trainer: Any) -> None:
        """Repeat the calls of rank 0 on this trainer, until :meth:`leading` ends."""
        while order := self.broadcast(None):
            method, arguments, options = order
            getattr(trainer, method)(*arguments, **options)

    @contextmanager
    def leading(self, work: str = "") -> Iterator[None]:
        """Let the other processes take part in ``work``, if given.

        Their part ends at the end of the context.

        Raises:
            ProcessLost: if another process has ended.
        """
        if self.size == 1:
            yield
            return
        if work:
            self.broadcast(work)
        try:
            yield
        except Exception as error:
            if not isinstance(error, ProcessLost):
                self.broadcast(None)
            raise
        self.broadcast(None)

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, ProcessLost):
                raise
            raise ProcessLost(
                f"Process {self.rank + 1} of {self.size} that train together failed, or has lost "
                f"another process ({error_text(error)}). The same command goes on from the last "
                "checkpoint."
            ) from error


def _map(function: Any, values: T) -> T:
    """Apply a function to every tensor in ``values``."""
    from torch import Tensor
    from torch.utils._pytree import tree_map_only

    mapped: T = tree_map_only(Tensor, function, values)
    return mapped


group = Group()
"""The group that this process has joined; by default, this process alone."""


def launched(environment: Mapping[str, str] = os.environ) -> Group:
    """Return the group that torchrun has started this process in.

    Without torchrun, the group is this process alone.
    """
    if "TORCHELASTIC_RUN_ID" not in environment:
        return Group()
    return Group(*(int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))


@contextmanager
def joined(started: Group, device: str) -> Iterator[torch.device]:
    """Join the processes that torchrun started, within the context.

    Yields:
        the device of this process: for ``cuda``, and for ``auto`` if there are GPUs, the GPU of its
        local rank.

    Raises:
        Unavailable: if the device is missing.
    """
    global group
    import torch
    from torch import distributed

    from jembench.models import devices

    own, backend = devices.resolve(device), "gloo"
    if own.type == "cuda":
        own, backend = devices.resolve(f"cuda:{started.local_rank}"), "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(own)
    distributed.init_process_group(backend, timeout=TIMEOUT)
    group = started
    try:
        if group.rank:
            yield own
        else:
            with group.leading():
                yield own
    finally:
        group = Group()
        distributed.destroy_process_group()
