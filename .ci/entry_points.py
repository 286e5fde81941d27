"""Install those editable distributions again whose entry points are not those of their
pyproject.toml.

python .ci/entry_points.py -e FOLDER -e FOLDER ...
"""

import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path


def is_stale(folder):
    project = tomllib.loads(Path(folder, "pyproject.toml").read_text())["project"]
    groups = project.get("entry-points", {}) | {"console_scripts": project.get("scripts", {})}
    wanted = {(group, *point) for group, points in groups.items() for point in points.items()}
    return wanted != {
        (point.group, point.name, point.value)
        for point in distribution(project["name"]).entry_points
    }


stale = [word for folder in sys.argv[2::2] if is_stale(folder) for word in ("-e", folder)]
if stale:
    subprocess.run(
        ["uv", "pip", "install", "--quiet", "--no-deps", "--reinstall", *stale], check=True
    )
