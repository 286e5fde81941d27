"""``jembench doctor``: what works on this machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import click

from jembench import __version__
from jembench.api.listing import describe
from jembench.catalog import discovery
from jembench.cli import options
from jembench.cli.output import print_json, print_table
from jembench.errors import JembenchError, Unavailable, error_text

LIBRARIES = {
    "torch": "torch",
    "torchvision": "torchvision",
    "torch-fidelity": "torch_fidelity",
    "scikit-learn": "sklearn",
}
"""What must import, and the module to import: parts of PyTorch that do not fit each other fail only then."""

ENOUGH_SPACE = 2**30  # bytes: some fits of a wide residual network with their samples


class Finding(NamedTuple):
    """One line of the report. jembench works without what is ``missing``; what is ``broken`` must be fixed."""

    area: str
    mark: Literal["ok", "missing", "broken"]
    what: str
    remedy: str = ""


@click.command()
@options.store
@options.listing_format
def doctor(store: Path, format: str) -> int:
    """Report what works on this machine, and how to fix the rest.

    The exit code is 1 if something is broken. Missing optional parts are no failure.
    """
    findings = [*_versions(), *_devices(), *_datasets(), *_weights(), *_plugins(), *check_store(store)]
    if format == "json":
        print_json([finding._asdict() for finding in findings])
    else:
        rows = [(f.mark, f.area, f"{f.what}\n{f.remedy}".strip()) for f in findings]
        print_table(("", "area", "what there is, and what to do about it"), rows)
    return int(any(finding.mark == "broken" for finding in findings))


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "ok", f"Python {platform.python_version()}, jembench {__version__}")
    for distribution, module in LIBRARIES.items():
        yield check_library(distribution, module)


def check_library(distribution: str, module: str) -> Finding:
    """Import a library."""
    try:
        importlib.import_module(module)
        return Finding("versions", "ok", f"{distribution} {importlib.metadata.version(distribution)}")
    except Exception as error:  # a library whose binary parts do not fit fails in whatever way it likes
        what = f"{distribution} cannot be imported: {error_text(error)}"
        return Finding("versions", "broken", what, f"pip install --force-reinstall {distribution}")


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except Exception:  # reported among the versions
        return
    capability = torch.backends.cpu.get_cpu_capability()
    yield Finding("devices", "ok", f"CPU: {os.cpu_count()} cores, {torch.get_num_threads()} threads, {capability}")
    if not torch.cuda.is_available():
        remedy = "Not needed for digits. For CIFAR use a machine with a GPU and a build of PyTorch for it."
        yield Finding("devices", "missing", "no GPU: everything runs on the CPU", remedy)
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        bfloat16 = "bfloat16" if gpu.major >= 8 else "no bfloat16"
        yield Finding("devices", "ok", f"cuda:{index}: {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {bfloat16}")


def _datasets() -> Iterator[Finding]:
    for component in discovery.components("datasets"):
        described = describe(component)
        required = [str(option) for option in described.options if option.required]
        if required:
            yield Finding("data", "ok", f"{component.name}: to be given {', '.join(required)}")
        elif not described.problem:  # otherwise reported among the plugins
            yield check_dataset(component)


def check_dataset(component: discovery.Component) -> Finding:
    """Read a dataset's test images."""
    try:
        images = discovery.load(component)().split("test").images
    except Unavailable as error:
        return Finding("data", "missing", component.name, str(error))
    except JembenchError as error:
        return Finding("data", "broken", component.name, str(error))
    except Exception as error:  # a plugin's
        remedy = f"Update or uninstall {component.distribution}."
        return Finding("data", "broken", f"{component.name}: {error_text(error)}", remedy)
    shape = "x".join(map(str, images.shape[1:]))
    return Finding("data", "ok", f"{component.name}: {len(images):,} test images of {shape}")


def _weights() -> Iterator[Finding]:
    try:
        from jembench.metrics.inception_features import cached_path
    except ImportError:  # reported among the versions
        return
    path = cached_path()
    if path.is_file():
        yield Finding("weights", "ok", f"Inception: {path}")
    else:
        remedy = (
            "Needed for IS, FID, KID and PRC of images of 32 pixels and more: "
            "--set fid.features=inception:download=true fetches them (96 MB)."
        )
        yield Finding("weights", "missing", f"Inception: there is no {path}", remedy)


def _plugins() -> Iterator[Finding]:
    found = discovery.catalogue()
    broken = [described for described in map(describe, found.components) if described.problem]
    for described in broken:
        component = described.component
        what = f"{component}: {described.problem}"
        yield Finding("plugins", "broken", what, f"Update or uninstall {component.distribution}.")
    for unreadable in found.unreadable:
        what = f"{unreadable.distribution}: its entry points cannot be read ({unreadable.problem})"
        yield Finding("plugins", "missing", what, "Nothing, unless it is a plugin: then update or uninstall it.")
    distributions = {f"{component.distribution} {component.version}" for component in found.components}
    works = len(found.components) - len(broken)
    yield Finding("plugins", "ok", f"{works} components work, of {', '.join(sorted(distributions))}")


def check_store(root: Path) -> Iterator[Finding]:
    """Whether a store can be written, and the space left for it."""
    folder = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not folder.is_dir():
        yield Finding("store", "broken", f"{folder} is a file", "Choose another folder with --store.")
        return
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        what = f"{folder} cannot be written: {error.strerror}"
        yield Finding("store", "broken", what, "Choose a folder that you may write to with --store.")
        return
    state = "writable" if root.is_dir() else "made by the first run"
    remedy = "" if free >= ENOUGH_SPACE else "Free some space, or choose a folder on another disk with --store."
    yield Finding("store", "broken" if remedy else "ok", f"{root}: {state}, {free / 2**30:.1f} GiB free", remedy)
