"""jembench: the benchmark harness for joint energy-based models and every other hybrid model.

Importing this public API imports neither torch nor numpy; a function imports its dependencies when
it is called.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

from jembench.version import __version__ as __version__

if TYPE_CHECKING:
    from jembench import metrics as metrics
    from jembench.api.check import Check as Check
    from jembench.api.check import check as check
    from jembench.api.comparison import Comparison as Comparison
    from jembench.api.comparison import compare as compare
    from jembench.api.fit import Fit as Fit
    from jembench.api.live import adapted as adapted
    from jembench.api.results import Results as Results
    from jembench.api.runs import attack as attack
    from jembench.api.runs import run as run
    from jembench.api.runs import train as train
    from jembench.api.status import status as status
    from jembench.api.stored import OpenStore as OpenStore
    from jembench.api.stored import load as load
    from jembench.api.stored import open_store as open_store

if importlib.util.find_spec("fcntl") is None:
    raise ImportError(
        "jembench runs on Linux and macOS: Python's module fcntl is missing here. On Windows, use "
        "WSL."
    )

_WHERE = {
    **dict.fromkeys(("run", "attack", "train"), "jembench.api.runs"),
    **dict.fromkeys(("open_store", "load", "OpenStore"), "jembench.api.stored"),
    **dict.fromkeys(("compare", "Comparison"), "jembench.api.comparison"),
    **dict.fromkeys(("check", "Check"), "jembench.api.check"),
    "Fit": "jembench.api.fit",
    "adapted": "jembench.api.live",
    "status": "jembench.api.status",
    "Results": "jembench.api.results",
}
"""The module of each public name."""

__all__ = [*_WHERE, "metrics"]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return importlib.import_module("jembench.metrics")
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'jembench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
