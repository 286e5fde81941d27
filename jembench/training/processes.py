"""Several processes, each on a device of its own, that train one model together.

Every process holds the whole model, its part of every batch and its part of the chains. The gradients are averaged
before each step, and so all make the same one: what they hold of the model stays the same, bit for bit.

The average is one all-reduce of all gradients in one piece, after the backward pass. DistributedDataParallel would
overlap it with that pass, but wraps ``forward``, and these models are called through ``training_loss``; beside the
twenty passes of the chains there is little to be won.

Rank 0 alone reads and writes files, validates and decides. The others serve: they wait for its commands, without a time
limit, since an evaluation may lie between two fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map

from jembench.errors import ProcessLost, error_text

T = TypeVar("T")

COMMAND_TIMEOUT = timedelta(days=3650)
"""How long a process waits for a command. One that ends closes its connections, which ends the waiting at once."""

BARRIER_TIMEOUT = timedelta(seconds=60)
"""How long the processes wait for one another after one has failed in the middle of a command."""


class ProcessGroup:
    """The processes that train one model; this one is a single process, whose methods do nothing."""

    rank = 0
    size = 1

    def part(self, n: int) -> slice:
        """Which of n things, a multiple of ``size``, are this process's."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, the same bits in each."""

    def highest_(self, tensor: Tensor) -> None:
        """Replace each element by its highest value in any process."""

    def share_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by that of rank 0."""

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks, in rank 0; an empty list in the others."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """The value of rank 0, in every process."""
        return value

    def meet_after(self, error: Exception) -> None:
        """Meet the others after an error that should have met all of them.

        Raises:
            ProcessLost: if it has not: the others are still in the middle of what failed here.
        """


SINGLE = ProcessGroup()
"""One process."""


class DistributedGroup(ProcessGroup):
    """The processes of ``torch.distributed``'s default group, which must have been initialised.

    Tensors that are gathered or broadcast arrive on the CPU.

    Raises:
        ProcessLost: from every method, if a process has gone.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        with self._all_present():
            self._commands: Any = dist.new_group(backend="gloo", timeout=COMMAND_TIMEOUT)
            self._barrier: Any = dist.new_group(backend="gloo", timeout=BARRIER_TIMEOUT)

    def average_(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            return
        with torch.no_grad():
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            with self._all_present():
                dist.all_reduce(flat)
            flat /= self.size
            means = torch.split(flat, [tensor.numel() for tensor in tensors])
            torch._foreach_copy_(list(tensors), [mean.view_as(x) for mean, x in zip(means, tensors, strict=True)])

    def highest_(self, tensor: Tensor) -> None:
        with self._all_present():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)

    def share_(self, tensors: Sequence[Tensor]) -> None:
        with self._all_present():
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def gather(self, value: T) -> list[T]:
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with self._all_present():
            dist.gather_object(_on_cpu(value), values, group=self._commands)
        return values or []

    def broadcast(self, value: Any) -> Any:
        values = [_on_cpu(value) if self.rank == 0 else value]
        with self._all_present():
            dist.broadcast_object_list(values, group=self._commands)
        return value if self.rank == 0 else values[0]

    def leave(self) -> None:
        """Part, once rank 0 has no more orders; the others have been waiting for that."""
        if self.rank == 0:
            self.broadcast(None)
        with self._all_present():
            dist.barrier(self._barrier)  # so that no process closes its connections before all have received it
        dist.destroy_process_group()

    def meet_after(self, error: Exception) -> None:
        try:
            dist.barrier(self._barrier)
        except RuntimeError:
            raise ProcessLost(
                f"Process {self.rank + 1} of {self.size} that train together failed, and the others did not "
                f"({error_text(error)}). The same command goes on from the last checkpoint."
            ) from error

    @contextmanager
    def _all_present(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # of which the errors of torch.distributed's backends are
            cause = re.sub(r"^\[\S*\] ", "", str(error)).partition(". ")[0].partition("\n")[0]
            raise ProcessLost(
                f"Process {self.rank + 1} of {self.size} that train together has lost another one, which failed or "
                f"was ended ({cause}). The same command goes on from the last checkpoint."
            ) from error


class Controller:
    """Calls methods of an object in every process at once. Used by rank 0.

    The other processes are in :func:`serve` meanwhile, until the context ends. After an error that a call raised in
    every process, the group can go on.
    """

    def __init__(self, target: Any, group: ProcessGroup) -> None:
        self._target = target
        self._group = group
        self._calling = False

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Call a method in every process and return the result of this one."""
        self._group.broadcast((method, arguments))
        self._calling = True
        result = getattr(self._target, method)(*arguments)
        self._calling = False
        return result

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, ProcessLost) or not isinstance(error, Exception | None):
            return
        if self._calling and error is not None:
            self._group.meet_after(error)
        else:
            self._group.broadcast(None)


def serve(target: Any, group: ProcessGroup) -> None:
    """Call on ``target`` what rank 0 calls on its own object with :class:`Controller`, until its context ends."""
    while command := group.broadcast(None):
        method, arguments = command
        try:
            getattr(target, method)(*arguments)
        except ProcessLost:
            raise
        except Exception as error:
            group.meet_after(error)
            return


def _on_cpu(value: T) -> T:
    """The value with all tensors in it on the CPU: another process may not have the device that they are on."""
    moved: T = tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf, value)
    return moved
