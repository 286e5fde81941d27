"""Model FLOP utilisation: floating-point operations per second, relative to those of the network's
convolutions alone.

The operations are those that the algorithm needs, for both implementations: PyTorch's counter on
the textbook's network counts convolutions and matrix products, a multiplication and an addition as
two. A matrix product is no measure for them: on CPUs, oneDNN's convolutions may be faster than
MKL's products.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import textbook
import torch
from contests import DATA, Setting
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry
from turns import seconds

SMALLEST, LARGEST = 1024, 16_384
SLOWEST = 1.0  # seconds: no larger product is tried after one that took as long
# seconds, about, that a measurement takes: a shorter one would fall into a lull of a busy machine
LONG_ENOUGH = 0.5

CONVOLUTIONS = (torch.ops.aten.convolution, torch.ops.aten.convolution_backward)


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of the floating-point operations of convolutions and matrix products, and a record
    of the former.

    A multiplication and an addition count as two. PyTorch's ``FlopCounterMode`` also records the
    modules, which fails within ``autograd.grad``.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, since to skip this mode PyTorch would import its compiler, which takes
        seconds.
        """
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.convolutions: list[tuple[Any, Any]] = []  # functions and arguments

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if operations := flop_registry.get(function.overloadpacket):
            self.count += operations(*args, **(kwargs or {}), out_val=result)
        if function.overloadpacket in CONVOLUTIONS:
            self.convolutions.append((function, args))
        return result


class Work(NamedTuple):
    """A work on tensors without content, and the number of its floating-point operations."""

    carry_out: Callable[[], object]
    operations: int


class Works(NamedTuple):
    """The parts of an iteration of JEM."""

    step: Work  # of SGLD: a forward pass and the gradient towards the images
    loss: Work  # the three batches forward and backward


def works_of(setting: Setting, net: nn.Module) -> Works:
    """Return the works of the algorithm on tensors without content."""
    net = copy.deepcopy(net).to("meta")
    x = torch.empty((setting.batch, *DATA.shape), device="meta")
    y = torch.empty(setting.batch, dtype=torch.int64, device="meta")

    def step() -> None:
        textbook.langevin(net, x, 1)

    def learn() -> None:
        textbook.jem_loss(net, x, x, x, y).backward()

    return Works(Work(step, operations(step)), Work(learn, operations(learn)))


def operations(work: Callable[[], object]) -> int:
    with OperationCounter() as counter:
        work()
    count: int = counter.count
    return count


class Convolutions(NamedTuple):
    """The convolutions of a work, forward and backward, without the rest of it."""

    compute: Callable[[], object]
    operations: int


def convolutions_of(
    work: Callable[[], object],
    dtype: torch.dtype,
    layout: torch.memory_format,
    device: torch.device,
) -> Convolutions:
    """Return the convolutions of a work on tensors without content, on random numbers of one
    precision and layout.
    """
    with OperationCounter() as counter:
        work()
    tensors: dict[torch.Size, torch.Tensor] = {}

    def filled(empty: torch.Tensor) -> torch.Tensor:
        if empty.shape not in tensors:
            numbers = torch.randn(empty.shape, device=device).to(dtype)
            tensors[empty.shape] = (
                numbers.to(memory_format=layout) if numbers.ndim == 4 else numbers
            )
        return tensors[empty.shape]

    calls = [
        (function, tree_map_only(torch.Tensor, filled, args))
        for function, args in counter.convolutions
    ]

    def compute() -> None:
        with torch.no_grad():
            for function, args in calls:
                function(*args)

    compute()  # warm
    return Convolutions(compute, operations(compute))


class MatrixProduct(NamedTuple):
    """Products of square matrices, a measure of the machine."""

    size: int
    multiply: Callable[[], object]
    operations: int  # of one call


def matrix_product(dtype: torch.dtype, device: torch.device) -> MatrixProduct:
    """Return the product of the size with the highest rate."""
    best, rate, size, taken = None, 0.0, SMALLEST, 0.0
    while size <= LARGEST and taken < SLOWEST:
        product, taken = _product(size, dtype, device)
        if best is None or product.operations / taken > rate:
            best, rate = product, product.operations / taken
        size *= 2
    assert best is not None
    return best


def _product(size: int, dtype: torch.dtype, device: torch.device) -> tuple[MatrixProduct, float]:
    """Return the product of a size, repeated if it is short, and the seconds of a call (the best of
    three).
    """
    left, right = (torch.randn((size, size), device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)

    def multiply(times: int = 1) -> None:
        for _ in range(times):
            torch.mm(left, right, out=out)

    multiply()  # warm
    times = max(1, round(LONG_ENOUGH / seconds(multiply, device)))

    def several() -> None:
        multiply(times)

    taken = min(seconds(several, device) for _ in range(3))
    return MatrixProduct(size, several, times * 2 * size**3), taken
