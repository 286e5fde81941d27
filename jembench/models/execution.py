"""How a network is computed: its mode, the precision, the layout of its maps, compiled or as it is written.

None of it changes what is computed but for rounding. Whatever cannot be had falls back, with one warning.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar
from weakref import WeakSet

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from jembench.errors import Fallback
from jembench.interfaces import DataSpec

P = ParamSpec("P")
T = TypeVar("T")
Made = TypeVar("Made", bound=torch.optim.Optimizer)

Precision = Literal["float32", "bfloat16"]
"""What the network computes in. Weights, energies, gradients and images are float32 in either case."""

graphs: WeakSet[Any] = WeakSet()
"""What holds CUDA graphs of its own, and lets go of them by ``forget()``."""


@contextmanager
def mode(model: nn.Module, *, train: bool) -> Iterator[None]:
    """Put every module into training or evaluation mode, and each back into its own afterwards."""
    before = {module: module.training for module in model.modules()}
    if train in {
        not training for training in before.values()
    }:  # to set the modes of WRN-28-10 takes half a millisecond
        model.train(train)
    try:
        yield
    finally:
        for module, training in before.items():
            if module.training != training:
                module.training = training


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter requires a gradient for a while."""
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
    """Give all buffers, such as the running statistics of batch norm, their values back afterwards."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """bfloat16 and float16 as float32; float32 and float64 as they are."""
    return x if x.element_size() >= 4 else x.float()


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """The choices, none of them left open."""

    precision: Precision = "float32"
    channels_last: bool = False
    compiled: bool = False
    captured: bool = False  # whether a chain is one CUDA graph
    searched: bool = False  # whether cuDNN tries its algorithms on each new shape and keeps the fastest


PLAIN = Execution()
"""As PyTorch does it where nothing is said."""


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """The network runs in that precision, whatever autocast the caller is in."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def searching(search: bool) -> Iterator[None]:
    """Let cuDNN try its algorithms for a while; without ``search`` it does as PyTorch is set."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = search or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class _StridedProjections(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watch for strided 1x1 convolutions of fewer channels than a block of AVX-512 has."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            weight, stride = args[1], args[3]
            self.seen |= weight.shape[1] < 16 and max(weight.shape[2:]) == 1 and max(stride) > 1
        return func(*args, **(kwargs or {}))


def to_channels_last(model: Any, data: DataSpec) -> bool:
    """Lay the model's weights out channels-last, where convolutions are fastest.

    Two images are passed through the network first, to see what it does. Its weights stay contiguous

    - if it flattens its maps with ``.view``, which only contiguous maps allow;
    - on a CPU, if it has a strided 1x1 convolution of few channels: PyTorch 2.14 and 2.15 compute its weight gradient
      wrongly or write past its memory (oneDNN issue 6035);
    - if it has neither logits nor energies.

    Returns:
        Whether the weights are laid out channels-last.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    look = getattr(model, "logits", None) or getattr(model, "energy", None)
    if look is None:
        return False
    model.to(memory_format=torch.channels_last)
    try:
        with torch.no_grad(), mode(model, train=False), _StridedProjections() as projections:  # type: ignore[no-untyped-call]
            look(torch.zeros(2, *data.shape, device=device))
    except RuntimeError as error:
        model.to(memory_format=torch.contiguous_format)
        if "view size is not compatible" not in str(error):
            raise
        warnings.warn("The network flattens its maps with .view, which keeps it from its fastest layout.", Fallback, 1)
        return False
    if projections.seen and device.type == "cpu":
        model.to(memory_format=torch.contiguous_format)
        return False
    return True


def compiled(function: Callable[P, T], given_up: list[str] | None = None, *, captured: bool = True) -> Callable[P, T]:
    """``function`` by ``torch.compile``; as it is, with one warning, where that fails.

    Args:
        function: what is called often, with tensors of the same shapes.
        captured: whether each call is a CUDA graph on a GPU; False where the caller captures several calls as one.
        given_up: a list that the reason is appended to when compilation fails; the functions of one training share it,
            and the first of them warns.

    Raises:
        torch.OutOfMemoryError: as the function or its compilation does. It says nothing about the compiler.
    """
    given_up = [] if given_up is None else given_up
    how = "reduce-overhead" if captured else "default"
    fast: Callable[P, T] | None = None
    failed = False

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal fast, failed
        if not failed:
            try:
                fast = fast or torch.compile(function, fullgraph=True, dynamic=False, mode=how)
                return own(fast(*args, **kwargs)) if captured else fast(*args, **kwargs)
            except Exception as error:  # compilers fail in many ways; what is wrong with the function fails again below
                if is_out_of_memory(error):
                    raise
                fast, failed = None, True
                cause = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                if not given_up:
                    warnings.warn(f"Not compiled, which is slower but gives the same results ({cause}).", Fallback, 1)
                given_up.append(cause)
        return function(*args, **kwargs)

    return call


def forget_compiled() -> None:
    """Let go of all compiled functions and CUDA graphs of this process; those in use are compiled again when called.

    The compiler keeps what it made of a function for at most eight networks, and then refuses the next one
    (``torch._dynamo.config.recompile_limit``). CUDA graphs hold memory for as long as they are kept.
    """
    for holder in list(graphs):
        holder.forget()
    if "torch._dynamo" in sys.modules:  # the compiler was used
        torch.compiler.reset()


def without_compiler(optimizer: type[Made]) -> type[Made]:
    """The same optimiser, whose methods do not import PyTorch's compiler: that takes 1.5 s, and none is compiled.

    PyTorch wraps them in functions that import it in order to keep it out.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")
    plain = {name: inspect.unwrap(getattr(optimizer, name)) for name in names}
    return type(optimizer.__name__, (optimizer,), plain | {"step": torch.no_grad()(plain["step"])})


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device's memory was too small; a compiler wraps that error in its own."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if isinstance(one, torch.OutOfMemoryError):
            return True
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            left += [one.__cause__, one.__context__, getattr(one, "inner_exception", None)]
    return False


def tf32(device: torch.device) -> list[str]:
    """The operations whose float32 has ten bits of mantissa here, as TensorFloat-32.

    On GPUs that know it, these are convolutions by PyTorch's default, and matrix products if the user asked for it.
    """
    if device.type != "cuda" or not torch.cuda.is_bf16_supported(including_emulation=False):
        return []
    settings = {
        "convolutions": torch.backends.cudnn.allow_tf32,
        "matrix products": torch.get_float32_matmul_precision() != "highest",
    }
    return [name for name, is_on in settings.items() if is_on]


def own(value: T) -> T:
    """Copies of what a CUDA graph has written, since its next replay writes there again."""
    copied: T = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) and leaf.is_cuda else leaf, value)
    return copied
