"""Devices: their names, and how a network is computed on each."""

import platform
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch
from threadpoolctl import threadpool_limits

from jembench.errors import Remark, SpecError, Unavailable
from jembench.interfaces import DataSpec
from jembench.models.execution import Execution

SMALL = 1024
"""The largest number of values of a small image. Small images are computed in one CPU thread and in
float32, not compiled.
"""


def execution(
    data: DataSpec,
    device: torch.device,
    *,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    layout: Literal["auto", "contiguous", "channels_last"] = "auto",
    compile: Literal["auto", "on", "off"] = "auto",
) -> Execution:
    """Return the execution of a network on a device.

    ``auto`` selects what was measured to be fastest.

    ``compile="auto"`` compiles networks only on GPUs and for large images: on CPUs the compiled
    gradient was slower than the plain one, and compiling takes a minute, as long as a whole
    training on small images. On GPUs, unless ``compile`` is off, a chain is one CUDA graph, which
    is captured within a second.
    """
    on_gpu = device.type == "cuda"
    is_heavy = on_gpu and data.dimensions > SMALL
    if precision == "auto":
        precision = "float32"
        # where the hardware multiplies bfloat16
        if is_heavy and torch.cuda.is_bf16_supported(including_emulation=False):
            precision = "bfloat16"
    return Execution(
        precision=precision,
        channels_last=layout != "contiguous",
        compiled=compile == "on" or (compile == "auto" and is_heavy),
        captured=on_gpu and compile != "off",
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit PyTorch, numpy and scipy to one CPU thread within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, "blas"):
            yield
    finally:
        torch.set_num_threads(before)


def threads_for(data: DataSpec, device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which PyTorch works on small images in one CPU thread.

    A sampling step of the net small-8 on 8x8 images takes 3.0 ms with two threads and 4.6 with one
    (two cores of an AMD EPYC). But threads wait for each other at every layer: while other
    processes kept both cores busy, a training iteration of ten such steps took 1.7 s with two
    threads. With one thread, results also do not depend on the number of cores.
    """
    if device.type == "cpu" and data.dimensions <= SMALL:
        return one_thread()
    return nullcontext()


def resolve(name: str) -> torch.device:
    """Return the device of a name; for ``auto`` the first GPU, or the CPU if there is none.

    Raises:
        SpecError: if the text names no device.
        Unavailable: if the device is missing or cannot be used.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SpecError(
            f"{name!r} is not a device. Write cpu, cuda, cuda:1 ..., mps or auto with --device."
        ) from error
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise Unavailable(
                f"There is no device {name}: torch {torch.__version__} finds {count} CUDA devices "
                "that it can use on this machine. Use --device cpu, or see what `jembench "
                "doctor` says of the driver."
            )
        return torch.device("cuda", device.index or 0)
    try:
        torch.zeros(1, device=device).cpu()
    # each backend reports its absence in its own way
    except (RuntimeError, AssertionError, ImportError) as error:
        cause = str(error).partition(". ")[0].rstrip(".!")
        raise Unavailable(
            f"The device {name} cannot be used: {cause}. Use --device cpu or auto."
        ) from error
    if device.type == "mps":
        warnings.warn(
            "jembench is untested on MPS: compare results with those of --device cpu.",
            Remark,
            stacklevel=2,
        )
    return device


def name(device: torch.device) -> str:
    """Return the name of the GPU or the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()


def processor() -> str:
    """Return the name of the processor from /proc/cpuinfo, or else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.exists() and (model := re.search(r"model name\s*: (.+)", info.read_text())):
        return model[1].strip()
    return platform.processor() or platform.machine()
