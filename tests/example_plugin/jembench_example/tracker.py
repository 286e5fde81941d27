"""A log of training: one line of JSON per logged window."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.interfaces import Event


class JsonLines:
    """Appends windows of training to a file."""

    def __init__(self, file: str) -> None:
        self._path = Path(file)

    def event(self, event: Event) -> None:
        """Write a line if the event is the end of a window."""
        if event.kind == "window":
            with self._path.open("a") as stream:
                stream.write(json.dumps(dataclasses.asdict(event)) + "\n")
