"""The libraries that networks and images come from, each an extra of this distribution."""

from importlib import import_module
from typing import Any

from jembench.plugin import Unavailable


def library(name: str, extra: str) -> Any:
    """Import a library.

    Raises:
        Unavailable: if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise Unavailable(
            f"{name} is not installed: pip install 'jembench-zoo[{extra}]'."
        ) from error
