"""Where data lie on the user's machine. The only place that reads these environment variables.

``JEMBENCH_DATA`` names the folder of downloaded datasets, ``~/.cache/jembench/data`` otherwise. What can be made again
(decoded images) goes to ``~/.cache/jembench``, or ``$XDG_CACHE_HOME/jembench`` where that is set, so that the datasets
themselves may lie on a disk that is shared and read-only.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's folder for what can be downloaded or computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jembench"


def data_folder(root: str = "") -> Path:
    """``root`` if it is given, else ``$JEMBENCH_DATA``, else ``data`` in the cache folder; absolute."""
    chosen = root or os.environ.get("JEMBENCH_DATA")
    return Path(chosen).expanduser().absolute() if chosen else cache_folder().absolute() / "data"
