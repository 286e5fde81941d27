"""The execution of a network: mode, precision, memory layout and compilation.

The choices change results by rounding only. A choice that is not possible falls back to the plain
choice, with one warning.
"""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar, cast

import torch
from torch import nn
from torch.utils._pytree import tree_map

from jembench.errors import Fallback
from jembench.interfaces import DataSpec

P = ParamSpec("P")
T = TypeVar("T")

Precision = Literal["float32", "bfloat16"]
"""The precision inside the network. Weights, energies, gradients and images are float32 in either
case.
"""


@contextmanager
def mode(model: nn.Module, *, train: bool) -> Iterator[None]:
    """Put every module into a mode within the context.

    Each module's own mode is restored afterwards.
    """
    before = {module: module.training for module in model.modules()}
    # only if needed: for WRN-28-10 it takes half a millisecond
    if any(training != train for training in before.values()):
        model.train(train)
    try:
        yield
    finally:
        for module, training in before.items():
            if module.training != training:
                module.training = training


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no parameter require a gradient for the duration of the context."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_()


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Restore all buffers, such as running statistics, at the end of the context."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Convert bfloat16 and float16 to float32; return float32 and float64 unchanged."""
    return x if x.element_size() >= 4 else x.float()


def in_full(head: nn.Linear, features: torch.Tensor) -> torch.Tensor:
    """Apply the last layer, (B, D) -> (B, K), in the precision of its weights.

    The caller's autocast does not change this precision.

    The resolution of bfloat16 around 64 is half a nat, too coarse for differences of energies.
    """
    if features.is_meta:  # a device without autocast, on which operations are counted
        return cast(torch.Tensor, head(features))
    with torch.autocast(features.device.type, enabled=False):
        return cast(torch.Tensor, head(features))


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """The choices of execution, with ``auto`` resolved."""

    precision: Precision = "float32"
    channels_last: bool = False
    compiled: bool = False
    captured: bool = False  # whether a chain is one CUDA graph


PLAIN = Execution()
"""PyTorch's defaults."""


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which the network runs in a precision.

    The caller's autocast does not change it.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def to_channels_last(model: Any, data: DataSpec) -> bool:
    """Convert weights to channels-last, and return whether this was possible.

    Convolutions are fastest in this layout.

    Two images are passed through the network to test it. Its weights stay contiguous

    - if it flattens its maps with ``.view``, which only contiguous maps allow;
    - on a CPU, if it has a strided 1x1 convolution of fewer channels than a block of AVX-512:
      PyTorch 2.14 and 2.15 compute its weight gradient wrongly or write past its memory (oneDNN
      issue 6035);
    - if it has neither logits nor energies.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    forward = getattr(model, "logits", None) or getattr(model, "energy", None)
    if forward is None or (device.type == "cpu" and any(map(_is_thin_stride, model.modules()))):
        return False
    model.to(memory_format=torch.channels_last)
    try:
        with torch.no_grad(), mode(model, train=False):
            forward(torch.zeros(2, *data.shape, device=device))
    except RuntimeError as error:
        model.to(memory_format=torch.contiguous_format)
        if "view size is not compatible" not in str(error):
            raise
        warnings.warn(
            "The network flattens its maps with .view, which keeps it from its fastest layout.",
            Fallback,
            1,
        )
        return False
    return True


def _is_thin_stride(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d) or layer.weight.shape[1] >= 16:
        return False
    return max(layer.kernel_size) == 1 and max(layer.stride) > 1


def compiled(
    function: Callable[P, T], given_up: list[str] | None = None, *, captured: bool = True
) -> Callable[P, T]:
    """Return the function compiled by ``torch.compile``.

    Where compilation fails, the function runs unchanged, with one warning.

    Args:
        function: called often, with tensors of the same shapes.
        captured: whether each call is a CUDA graph on a GPU; False where the caller captures
            several calls as one.
        given_up: a list to which the reason is appended when compilation fails; the functions of
            one training share it, and only the first failure warns.

    Raises:
        torch.OutOfMemoryError: if the function or its compilation runs out of memory, which is no
        failure of the compiler.
    """
    given_up = [] if given_up is None else given_up
    compile_mode = "reduce-overhead" if captured else "default"
    fast: Callable[P, T] | None = None

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast
        if fast is not function:
            try:
                with nullcontext() if fast else _without_advice():
                    fast = fast or torch.compile(
                        function, fullgraph=True, dynamic=False, mode=compile_mode
                    )
                    value = fast(*args, **kwargs)
                return own(value) if captured else value
            # compilers fail in many ways; the function's own errors are raised again below
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                fast = function
                cause = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                if not given_up:
                    warnings.warn(
                        f"Not compiled, which is slower but gives the same results ({cause}).",
                        Fallback,
                        1,
                    )
                given_up.append(cause)
        return function(*args, **kwargs)

    return call


@contextmanager
def _without_advice() -> Iterator[None]:
    """Suppress the compiler's advice to use TF32, which would change results.

    The advice concerns products of float32 matrices.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
        yield


def forget_compiled() -> None:
    """Discard this process's compiled functions; later calls compile them again.

    The compiler keeps its results for at most eight networks of a function, and then refuses the
    next one (``torch._dynamo.config.recompile_limit``).
    """
    if "torch._dynamo" in sys.modules:  # the compiler was used
        torch.compiler.reset()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device's memory was too small.

    Compilers may have wrapped the memory error in other errors.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, torch.OutOfMemoryError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def own(value: T) -> T:
    """Copy the tensors that a CUDA graph has written, since its next replay overwrites them."""
    copied: T = tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) and leaf.is_cuda else leaf,
        value,
    )
    return copied


@functools.cache
def light(optimizer: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return an optimiser's class without the decorators that import PyTorch's compiler.

    Importing the compiler takes longer than importing PyTorch. The decorators only matter within
    compiled code, which no step is part of; the decorator of ``step`` also turns gradients off.
    """
    decorated = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in decorated}
    methods["step"] = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), methods)
