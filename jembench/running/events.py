"""Progress events: from training and measuring to the display and to the trackers that the user chose."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
import warnings
from collections.abc import Callable
from typing import Any

from jembench.catalog import registry
from jembench.catalog.spec import split_list
from jembench.errors import Fallback
from jembench.experiment.works import Work
from jembench.interfaces import Event, Tracker
from jembench.store.outcome import FitKey
from jembench.store.works import WorkFiles

VARIABLE = "JEMBENCH_TRACKERS"
"""The environment variable that lists trackers: registered names or import paths, with options."""

Report = Callable[[Event], None]
"""Sends one event."""


def chosen_trackers() -> list[str]:
    """The specs in ``JEMBENCH_TRACKERS``."""
    return split_list(os.environ.get(VARIABLE, ""))


class Events:
    """Sends each event to the display, to the trackers of ``JEMBENCH_TRACKERS`` and to the file of its unit of work.

    A tracker that raises is left out from then on, with a warning: it must not end a training of days.

    Args:
        display: what shows the progress, or None.
        files: where the events of units are written, or None.

    Raises:
        SpecError: for a tracker or an option that does not exist.
    """

    def __init__(self, display: Tracker | None = None, files: WorkFiles | None = None) -> None:
        self._display = display
        self._files = files
        self._trackers: dict[str, Tracker] = {
            spec: registry.resolve("trackers", spec).make() for spec in chosen_trackers()
        }

    def of(self, fit: FitKey, work: Work | None = None) -> Report:
        """A function that sends the events of one fit, or of a unit of work on it."""
        names = {"model": fit.model, "dataset": fit.dataset, "recipe": fit.recipe, "seed": fit.seed, "id": fit.id}
        unit: dict[str, Any] = {"work": work.id, "unit": work.kind} if work else {}
        worker = f"{platform.node()}:{os.getpid()}"

        def report(event: Event) -> None:
            whole = dataclasses.replace(event, fit=names, worker=worker, time=time.time(), **unit)
            if self._files and work:
                self._files.append(whole)
            self.send(whole)

        return report

    def send(self, event: Event) -> None:
        """Send an event that is whole, and in its file."""
        if self._display:
            self._display.event(event)
        for spec, tracker in list(self._trackers.items()):
            try:
                tracker.event(event)
            except Exception as error:
                del self._trackers[spec]
                warnings.warn(
                    f"The tracker {spec} failed and gets no more events: {type(error).__name__}: {error}",
                    Fallback,
                    stacklevel=2,
                )
