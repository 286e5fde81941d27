"""Model FLOP utilisation: floating-point operations per second, relative to those of a matrix product.

The operations are those that the algorithm needs, for both implementations: PyTorch's counter on the textbook's network
counts convolutions and matrix products, a multiplication and an addition as two.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import textbook
import torch
from contests import DATA, Setting
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from turns import seconds

SMALLEST, LARGEST = 1024, 16_384
SLOWEST = 1.0  # seconds: no larger product is tried after one that took as long
LONG_ENOUGH = 0.5  # seconds, about, that a measurement takes: a shorter one would fall into a lull of a busy machine


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of the floating-point operations of convolutions and matrix products.

    A multiplication and an addition count as two. PyTorch's ``FlopCounterMode`` also records the modules, which fails
    within ``autograd.grad``.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, since to skip this mode PyTorch would import its compiler, which takes seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if operations := flop_registry.get(function.overloadpacket):
            self.count += operations(*args, **(kwargs or {}), out_val=result)
        return result


class Work(NamedTuple):
    """Numbers of floating-point operations."""

    step: int  # of SGLD: a forward pass and the gradient towards the images
    iteration: int  # of JEM: all steps, and the three batches forward and backward


def work_of(setting: Setting, net: nn.Module) -> Work:
    """Count the operations of the algorithm on tensors without content."""
    net = copy.deepcopy(net).to("meta")
    x = torch.empty((setting.batch, *DATA.shape), device="meta")
    y = torch.empty(setting.batch, dtype=torch.int64, device="meta")

    def learn() -> None:
        textbook.jem_loss(net, x, x, x, y).backward()

    step = operations(lambda: textbook.langevin(net, x, 1))
    return Work(step, setting.steps * step + operations(learn))


def operations(work: Callable[[], object]) -> int:
    with OperationCounter() as counter:
        work()
    count: int = counter.count
    return count


class MatrixProduct(NamedTuple):
    """Products of square matrices."""

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
    """Return the product of a size, repeated if it is short, and the seconds of a call (the best of three)."""
    left, right = (torch.randn((size, size), device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)

    def multiply(times: int = 1) -> None:
        for _ in range(times):
            torch.mm(left, right, out=out)

    with _as_convolutions(device):
        multiply()  # warm
        times = max(1, round(LONG_ENOUGH / seconds(multiply, device)))

    def several() -> None:
        with _as_convolutions(device):
            multiply(times)

    taken = min(seconds(several, device) for _ in range(3))
    return MatrixProduct(size, several, times * 2 * size**3), taken


@contextmanager
def _as_convolutions(device: torch.device) -> Iterator[None]:
    """Multiply float32 on a GPU as its convolutions do, in TF32 unless that is turned off."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
