"""``jembench doctor``: the versions, the devices and the store of this machine."""

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import click

from jembench.cli import options
from jembench.cli.output import print_json, print_table
from jembench.errors import error_text
from jembench.version import __version__

NEEDED = {
    "torch": "torch",
    "torchvision": "torchvision",
    "torch-fidelity": "torch_fidelity",
    "scikit-learn": "sklearn",
}
"""Distributions, and a module of each to import: incompatible parts of PyTorch fail only on import.
"""

ENOUGH_SPACE = 2**30  # bytes: some fits of a wide residual network with their samples


class Advice(NamedTuple):
    """A line of the report.

    jembench works without a ``missing`` part; a ``broken`` part must be fixed.
    """

    area: str
    mark: Literal["ok", "missing", "broken"]
    what: str
    remedy: str = ""


@click.command()
@options.store
@options.listing_format
def doctor(store: Path, format: str) -> int:
    """Report the versions, the devices and the store of a machine.

    If something is broken, its remedy is printed and the exit code is 1. `jembench list` says which
    components work.
    """
    ours = Advice("versions", "ok", f"Python {platform.python_version()}, jembench {__version__}")
    libraries = map(check_library, NEEDED, NEEDED.values())
    findings = [ours, *libraries, *_devices(), *check_store(store)]
    if format == "json":
        print_json(list(map(Advice._asdict, findings)))
    else:
        rows = []
        for finding in findings:
            text = f"{finding.what}\n{finding.remedy}".strip()
            rows.append((finding.mark, finding.area, text))
        print_table(("", "area", "what there is, and what to do about it"), rows)
    return int(any(finding.mark == "broken" for finding in findings))


def check_library(distribution: str, module: str) -> Advice:
    """Check that a library can be imported."""
    try:
        importlib.import_module(module)
        version = importlib.metadata.version(distribution)
        return Advice("versions", "ok", f"{distribution} {version}")
    # incompatible binary parts of a library may raise any error
    except Exception as error:
        what = f"{distribution} cannot be imported: {error_text(error)}"
        return Advice("versions", "broken", what, f"pip install --force-reinstall {distribution}")


def _devices() -> Iterator[Advice]:
    try:
        import torch
    except Exception:  # reported among the versions
        return
    capability = torch.backends.cpu.get_cpu_capability()
    cpu = f"CPU: {os.cpu_count()} cores, {torch.get_num_threads()} threads, {capability}"
    yield Advice("devices", "ok", cpu)
    if not torch.cuda.is_available():
        remedy = (
            "Not needed for digits. For CIFAR use a machine with a GPU and a build of PyTorch for "
            "it."
        )
        yield Advice("devices", "missing", "no GPU: everything runs on the CPU", remedy)
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        bfloat16 = "bfloat16" if gpu.major >= 8 else "no bfloat16"
        memory = f"{gpu.total_memory / 2**30:.0f} GiB"
        yield Advice("devices", "ok", f"cuda:{index}: {gpu.name}, {memory}, {bfloat16}")


def check_store(root: Path) -> Iterator[Advice]:
    """Check that a store can be written and has space."""
    folder = root.absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        what = f"{folder} cannot be written: {error.strerror}"
        yield Advice("store", "broken", what, "Choose another folder with --store.")
        return
    space = f"{root}: {free / 2**30:.1f} GiB free"
    if free >= ENOUGH_SPACE:
        yield Advice("store", "ok", space)
    else:
        remedy = "Free some space, or choose a folder on another disk with --store."
        yield Advice("store", "broken", space, remedy)
