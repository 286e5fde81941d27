"""The provenance of a result: versions, plugins, commit, hardware and command."""

import datetime
import functools
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from jembench.catalog import discovery
from jembench.files import digest

COMMAND = shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "jembench"), *sys.argv[1:]])
"""The command line of this process, quoted for a shell; ``python -m jembench`` counts as
``jembench``.
"""


def collect(
    device: str, components: list[discovery.Component], command: str = ""
) -> dict[str, Any]:
    """Return the provenance by which a result can be judged and repeated.

    Its values have types of JSON.

    Args:
        device: of the computation, such as "cpu" or "cuda:0".
        components: of the computation, recorded with distribution, version and entry point.
        command: the user's command; "": the command of this process.
    """
    import torch

    plugins = set()
    for component in components:
        plugin = str(component)
        file = getattr(sys.modules.get(component.module), "__file__", None)
        if file and not component.distribution:
            plugin += f" ({Path(file).name}, sha256:{digest(Path(file))[:12]})"
        plugins.add(plugin)
    return {
        "command": command or COMMAND,
        **_of_process(device),
        "threads": torch.get_num_threads(),
        "plugins": sorted(plugins),
        "time": datetime.datetime.now(datetime.UTC).isoformat(),
    }


@functools.cache
def _of_process(device: str) -> dict[str, Any]:
    """Return the commit, the versions of packages, and the machine.

    The packages are jembench and its requirements.
    """
    import torch

    from jembench.models import devices

    commit, source = "", Path(__file__).parents[1]  # "": an installed wheel
    if (source.parent / ".git").exists():
        command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12"]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
            commit = done.stdout.strip()
    required = []
    for line in importlib.metadata.requires("jembench") or ():
        if "extra ==" not in line:
            required.append(re.split(r"[^\w.-]", line)[0])
    packages = {}
    for name in ("jembench", *sorted(required)):
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    hardware = {"device": device, "processor": devices.processor(), "cores": os.cpu_count()}
    if device.startswith("cuda"):
        hardware |= {"gpu": devices.name(torch.device(device)), "cuda": torch.version.cuda}
    return {
        "commit": commit,
        "python": platform.python_version(),
        "packages": packages,
        "hardware": hardware,
        "host": platform.node(),
    }
