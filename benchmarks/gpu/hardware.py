"""What the machine has, and the tests that need it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import torch
from measure import ROOT, Findings, Place
from turns import seconds, spread

from jembench.models import devices

TIMES = 10  # a measurement of a rate

QUERY = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,power.limit,temperature.gpu"


def machine(place: Place, found: Findings) -> None:
    """Versions, compiler, driver, and the rates of matrix products and copies."""
    found.note("device", devices.name(place.device))
    found.note("CPU", f"{devices.processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    found.note("system", f"{platform.platform()}, Python {platform.python_version()}")
    found.note("torch", f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    found.note("packages", {name: _version(name) for name in ("triton", "torchvision", "numpy", "foolbox")})
    found.note("space", f"{shutil.disk_usage(place.folder).free / 2**30:.0f} GiB")
    for name, command in {
        "nvidia-smi": ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"],
        "nvcc": ["nvcc", "--version"],
        "C compiler": ["cc", "--version"],
    }.items():
        found.note(name, _said(command))
    if place.device.type == "cuda":
        chip = torch.cuda.get_device_properties(place.device)
        found.note("memory", f"{chip.total_memory / 2**30:.1f} GiB, {chip.multi_processor_count} multiprocessors")
        found.note("compute capability", f"{chip.major}.{chip.minor}")
        found.note("bfloat16", torch.cuda.is_bf16_supported(including_emulation=False))
    _products(place, found)
    _copies(place, found)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _said(command: list[str]) -> str:
    """The last line that a command prints, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"none ({error})"
    lines = [line for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    return f"{lines[0]} ... {lines[-1]}" if len(lines) > 1 else "".join(lines)


def _products(place: Place, found: Findings) -> None:
    n = place.size.product
    kinds = [
        ("float32", torch.float32, "highest"),
        ("tf32", torch.float32, "high"),
        ("bfloat16", torch.bfloat16, "high"),
    ]
    before = torch.get_float32_matmul_precision()
    for name, dtype, precision in kinds:
        torch.set_float32_matmul_precision(precision)
        left, right = (torch.randn((n, n), device=place.device).to(dtype) for _ in range(2))
        rates = _rates(lambda left=left, right=right: left @ right, 2 * n**3 / 1e12, place)
        found.row(
            "matrix products", numbers=name, size=n, **{"TFLOP/s": rates.median, "low": rates.low, "high": rates.high}
        )
    torch.set_float32_matmul_precision(before)


def _copies(place: Place, found: Findings) -> None:
    here = torch.empty(place.size.copied, dtype=torch.uint8)
    there, other = (torch.empty_like(here, device=place.device) for _ in range(2))
    kinds: dict[str, Callable[[], object]] = {
        "within the device, read and written": lambda: other.copy_(there),
        "to the device": lambda: there.copy_(here),
        "from the device": lambda: here.copy_(there),
    }
    if place.device.type == "cuda":
        pinned = here.pin_memory()
        kinds["to the device, pinned"] = lambda: there.copy_(pinned)
        kinds["from the device, pinned"] = lambda: pinned.copy_(there)
    for name, copy in kinds.items():
        moved = len(here) * (2 if name.startswith("within") else 1) / 1e9
        rates = _rates(copy, moved, place)
        found.row("copies", what=name, **{"GB/s": rates.median, "low": rates.low, "high": rates.high})


def _rates(work: Callable[[], object], amount: float, place: Place):
    for _ in range(3):
        work()
    return spread(amount / seconds(work, place.device) for _ in range(TIMES))


def tests(place: Place, found: Findings) -> None:
    """Those that are marked for a GPU.

    Raises:
        SystemExit: if one fails.
    """
    files = [str(path) for path in ROOT.glob("*/**/test_*.py") if "pytest.mark.gpu" in path.read_text()]
    if place.size.backend == "eager":  # of a tiny run
        files = [path for path in files if path.endswith("test_augment.py")]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-rfEs", "-p", "no:cacheprovider", *sorted(files)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line.rstrip(), flush=True)
            if line.startswith(("FAILED", "ERROR")):
                found.row("failed", test=line.strip())
            for count, what in re.findall(r"(\d+) (passed|failed|skipped|error)", line) if " in " in line else []:
                found.note(what, int(count))
    found.aim("exit code of the tests", process.returncode, process.returncode == 0)
    if process.returncode:
        raise SystemExit(process.returncode)
